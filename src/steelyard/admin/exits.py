"""The exit codes of all commands.

Servers, `check`, `backup`, `sim` and `pipeline` have meanings of their own for 1 and 2, which their
help describes.
"""

from __future__ import annotations

from steelyard.errors import (
    ConfigError,
    MessageError,
    SteelyardError,
    StorageError,
    UnreachableError,
)

SUCCESS = 0

FAILED = 1
"""A request failed: no such topic or group, no nameserver, a refusal."""

WRONG = 2
"""An invalid command line: an unknown option, an illegal name, an unusable file or directory.

Also input that can be no message, such as an empty line.
"""

UNREACHABLE = 3
"""A broker did not answer, or refuses its part: what was printed, if anything, lacks it."""

INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of SIGINT, as in shells."""

CLOSED_PIPE = 141
"""The reader of the output, such as `head`, has closed it: 128 plus SIGPIPE, as in other programs.
"""


def code_of(error: SteelyardError) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, UnreachableError):
        return UNREACHABLE
    return WRONG if isinstance(error, (ConfigError, MessageError, StorageError)) else FAILED


EXPLAINED = (
    f"Exit codes: {SUCCESS} success; {FAILED} failed (no such topic or group, no nameserver, a"
    " refusal);"
    f" {WRONG} wrong arguments; {UNREACHABLE} a broker did not answer;"
    f" {INTERRUPTED} interrupted (Ctrl-C); {CLOSED_PIPE} the reader of the output closed the pipe."
)
"""The end of help texts."""

SERVERS_EXPLAINED = (
    f"Exit codes: {SUCCESS} stopped; {FAILED} failed; {WRONG} a setting is wrong, or a port or data"
    " directory is in use."
)
"""The same of the commands that start one server."""
