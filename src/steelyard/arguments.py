"""Command lines whose errors are one line, with exit code 2, and the types of their arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import NoReturn

from steelyard.printable import printable
from steelyard.wording import nearest

_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)", re.DOTALL)

SECONDS_MAX = 86_400


class OneLineParser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage that argparse prints."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; `message` may quote what a user typed."""
        text = printable(" ".join(_nearest(message).split()))
        self.exit(2, f"{self.prog}: {text} (--help shows the options)\n")


def _nearest(message: str) -> str:
    """Let an error of argparse name the choice that was probably meant, not all that there are."""
    found = _INVALID_CHOICE.search(message)
    if found is None:
        return message
    near = nearest(found[1], re.findall(r"[\w-]+", found[2]))
    if not near:
        return message
    return message[: found.start()] + f"no {found[1]!r}; did you mean {near[0]}?"


# -- types of arguments; each raises ArgumentTypeError ---------------------------------------------


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return the type of whole numbers between two."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most}"
            )
        return int(text)

    return read


def seconds(text: str) -> float:
    """Read a number of seconds, a day at most."""
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {SECONDS_MAX}")
    return number


def name_and_value(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
