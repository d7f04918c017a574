"""`steelyard completion SHELL`: the script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

SHELLS = ("bash", "zsh", "fish")

_PATHS = {"FILE": "FILE", "DIR": "DIRECTORY"}
"""What shtab calls the values of options with such a metavar."""


def add_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], program: argparse.ArgumentParser
) -> None:
    """`program`: the parser of the whole command line, which the script completes."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a script that lets a shell complete commands and options. For bash and zsh put"
        ' `eval "$(steelyard completion bash)"` (zsh) into ~/.bashrc (~/.zshrc, after compinit); for fish put the script into'
        " ~/.config/fish/completions/steelyard.fish.",
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
    """Options and arguments of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
