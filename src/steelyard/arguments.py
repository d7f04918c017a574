"""Command lines whose errors are one line, with exit code 2."""

from __future__ import annotations

import argparse
from typing import NoReturn

from steelyard.printable import printable


class OneLineParser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage that argparse prints."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; `message` may quote what a user typed."""
        text = printable(" ".join(message.split()))
        self.exit(2, f"{self.prog}: {text} (--help shows the options)\n")
