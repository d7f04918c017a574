"""`steelyard completion SHELL`: a script for shell completion of commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from steelyard.admin import exits

SHELLS = ("bash", "zsh", "fish")

_PATHS = {"FILE": "FILE", "DIR": "DIRECTORY"}
"""shtab's names for values of options with such a metavar."""


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], program: argparse.ArgumentParser
) -> None:
    """`program`: the parser of the whole command line, for which the script is written."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that lets a shell complete commands and options. For bash and"
        " zsh"
        " put"
        ' `eval "$(steelyard completion bash)"` (zsh) into ~/.bashrc (~/.zshrc, after compinit);'
        " for fish put the script into"
        " ~/.config/fish/completions/steelyard.fish.",
        epilog=f"Exit codes: {exits.SUCCESS} success; {exits.WRONG} wrong arguments;"
        f" {exits.CLOSED_PIPE} the reader of the output closed the pipe.",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=partial(run, program))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    import shtab

    for action in _actions(parser):
        kind = _PATHS.get(str(action.metavar))
        if kind is not None:
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]  # where shtab looks for it
    print(shtab.complete(parser, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
