"""The clients that programs use: `aio` and `blocking`, their shared code, and administration."""
