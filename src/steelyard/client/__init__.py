"""The clients that programs use: `aio` and `blocking`, what both share, and what an administrator does."""
