"""What the commands that ask a cluster share: the option -n, and a loop around an `Administrator`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.live.administrator import Administrator

Asking = Callable[["Administrator", argparse.Namespace], Awaitable[str]]
"""A command: asks, and returns what to print, with its last line feed."""


def add_nameserver_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--namesrvAddr",
        dest="nameservers",
        metavar="HOST:PORT[;HOST:PORT]",
        help="nameservers; default: the variable NAMESRV_ADDR, or 127.0.0.1:9876",
    )


def add_asking_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    asking: Asking,
    text: str,
) -> argparse.ArgumentParser:
    """A parser with -n whose command runs `asking` and prints what it returns."""
    parser = commands.add_parser(name, help=text, description=text)
    add_nameserver_option(parser)
    parser.set_defaults(run=lambda options: _run(asking, options))
    return parser


def log_to_stderr(level: str) -> None:
    """Log on standard error, from this level on. Commands that end with an error say it themselves."""
    import logging

    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _run(asking: Asking, options: argparse.Namespace) -> int:
    from steelyard.live.administrator import Administrator
    from steelyard.live.loops import run

    log_to_stderr("CRITICAL")

    async def ask() -> str:
        async with Administrator(options.nameservers) as administrator:
            return await asking(administrator, options)

    print(run(ask()), end="")
    return 0
