"""The command line: `steelyard up | nameserver | broker | produce | consume | check | admin | pipeline | sim ...`.

Wrong arguments, unreachable servers and everything else that Steelyard raises on purpose come as one line
on standard error and exit code 2; a traceback means a bug in Steelyard.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from steelyard.errors import SteelyardError
from steelyard.printable import printable

EXIT_WRONG = 2
EXIT_INTERRUPTED = 130


def _pipeline(arguments: Sequence[str]) -> int:
    from steelyard.spark.pipeline import main as pipeline

    return pipeline(arguments)


def _sim(arguments: Sequence[str]) -> int:
    from steelyard.sim.__main__ import main as sim

    return sim(arguments)


PROGRAMS = {"pipeline": _pipeline, "sim": _sim}
"""Commands with a command line of their own; everything after the name is theirs."""

SERVERS = ("up", "nameserver", "broker")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_WRONG, f"{self.prog}: {message} (--help shows the options)\n")


def build_parser() -> argparse.ArgumentParser:
    """All commands; each leaves a function in `run` that takes the options and returns an exit code."""
    from steelyard import __version__
    from steelyard.admin import (
        checking,
        clusters,
        consuming,
        groups,
        kafka_groups,
        members,
        messages,
        offsets,
        producing,
        rates,
        serving,
        topics,
    )

    parser = _new_parser()
    parser.add_argument("--version", action="version", version=f"steelyard {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serving.add_commands(commands)
    producing.add_commands(commands)
    consuming.add_commands(commands)
    checking.add_commands(commands)
    admin = commands.add_parser("admin", help="mqadmin's commands, flags and columns")
    admin_commands = admin.add_subparsers(metavar="COMMAND", required=True)
    for module in (topics, groups, kafka_groups, members, offsets, messages, clusters, rates):
        module.add_commands(admin_commands)
    return parser


def _server_parser() -> argparse.ArgumentParser:
    """Only the commands of `serving`: the others load 70 ms of what a server that starts does not need."""
    from steelyard.admin import serving

    parser = _new_parser()
    serving.add_commands(parser.add_subparsers(metavar="COMMAND", required=True))
    return parser


def _new_parser() -> argparse.ArgumentParser:
    return Parser(
        prog="steelyard",
        description="A message queue that speaks RocketMQ's protocol.",
        epilog="Also: steelyard pipeline (Spark jobs over topics), steelyard sim (the simulator).",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments and arguments[0] in PROGRAMS:
            return PROGRAMS[arguments[0]](arguments[1:])
        is_server = bool(arguments) and arguments[0] in SERVERS
        parser = _server_parser() if is_server else build_parser()
        options = parser.parse_args(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except SteelyardError as error:
        print(f"steelyard: {_one_line(error)}", file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough, such as `head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _one_line(error: BaseException) -> str:
    return printable(" ".join(str(error).split())) or type(error).__name__
