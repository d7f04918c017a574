"""The command line: `steelyard COMMAND`.

Wrong arguments, unreachable servers and all other errors that Steelyard raises on purpose are
reported as one line on standard error and an exit code of `exits`; a traceback means a bug in
Steelyard.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steelyard.admin import exits, streams
from steelyard.arguments import OneLineParser
from steelyard.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.printable import printable

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


def _pipeline(arguments: Sequence[str]) -> int:
    try:
        from steelyard.spark.pipeline import main as pipeline
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs Spark: pip install 'steelyard[spark]' ({error})") from None

    return pipeline(arguments)


def _sim(arguments: Sequence[str]) -> int:
    from steelyard.sim.__main__ import main as sim

    return sim(arguments)


PROGRAMS = {"pipeline": _pipeline, "sim": _sim}
"""Commands with a command line of their own, which get all arguments after the name."""

PROGRAM_TEXTS = {"pipeline": "run Spark jobs over topics", "sim": "run the simulator"}
"""Their descriptions in the help."""

MODULES = {
    **dict.fromkeys(("up", "nameserver", "broker", "http", "console"), "serving"),
    "produce": "producing",
    "consume": "consuming",
    "check": "checking",
    "backup": "backing_up",
    "admin": "administration",
}
"""By command, the module of this package that adds it."""

_BACK_IN_TIME = re.compile(r"-\d")
"""Values such as -1h, which argparse would interpret as options."""


class Parser(OneLineParser):
    """Reports errors in one line, and explains the exit codes at the end of each help text."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("epilog", exits.EXPLAINED)
        super().__init__(**settings)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """As argparse's own, but ignores a closed pipe."""
        (file or sys.stdout).write(self.format_help())


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """Build the parser; each command sets `run`, a function from options to an exit code.

    With one of `MODULES` it knows only the commands of that module: to load all takes 200 ms.
    """
    parser: argparse.ArgumentParser = Parser(
        prog="steelyard",
        description="A message queue that speaks the wire protocols of RocketMQ and Kafka.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    modules = [MODULES[command]] if command in MODULES else dict.fromkeys(MODULES.values())
    for module in modules:
        importlib.import_module(f"steelyard.admin.{module}").add_commands(commands)
    if command in MODULES:
        return parser

    from steelyard.admin import completing
    from steelyard.version import __version__

    parser.add_argument("--version", action="version", version=f"steelyard {__version__}")
    for name, text in PROGRAM_TEXTS.items():
        commands.add_parser(
            name, help=text
        )  # for the help and completion; `_run` has handled it before
    completing.add_commands(commands, parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. Without `arguments`: that of this process."""
    if arguments is None:
        streams.prepare()
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except streams.OutputError as error:
        streams.discard_output()
        print(f"steelyard: {error}", file=sys.stderr)
        return exits.FAILED
    except SteelyardError as error:
        print(f"steelyard: {_one_line(error)}", file=sys.stderr)
        return exits.code_of(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        streams.discard_output()
        return exits.CLOSED_PIPE


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in PROGRAMS:
        return PROGRAMS[arguments[0]](arguments[1:])
    parser = build_parser(arguments[0] if arguments else "")
    options = parser.parse_args(_joined(arguments))
    try:
        code: int = options.run(options)
    except (AuthenticationError, BrokerError, RemotingError, RouteError) as error:
        from steelyard.admin.logins import add_advice
        from steelyard.admin.ports import mistaken

        text = mistaken(options)
        if text:
            raise ConnectError(text) from None
        add_advice(error, options)
        raise
    return code


def _joined(arguments: Sequence[str]) -> list[str]:
    """Convert `--from -1h` to `--from=-1h`."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--from" and _BACK_IN_TIME.match(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _one_line(error: BaseException) -> str:
    """Format an error with its notes."""
    words = " ".join(str(error).split()) or type(error).__name__
    return printable("; ".join([words, *getattr(error, "__notes__", [])]))
