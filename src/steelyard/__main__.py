"""`python -m steelyard` is the command line."""

from steelyard.admin.main import main

if __name__ == "__main__":
    raise SystemExit(main())
