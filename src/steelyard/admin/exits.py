"""The exit codes of all commands. `up` and `check` give some of them a meaning of their own, which their help tells."""

from __future__ import annotations

SUCCESS = 0

FAILED = 1
"""What was asked for could not be done: a topic or group does not exist, a server cannot be reached or refuses."""

WRONG = 2
"""The command line cannot be right: an unknown option, an illegal name, a file or directory that cannot be used."""

INTERRUPTED = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells count it."""

CLOSED_PIPE = 141
"""Whoever read the output has closed it, such as `head`: 128 and the number of SIGPIPE, as of other programs."""

EXPLAINED = (
    f"Exit codes: {SUCCESS} success; {FAILED} failed (no such topic or group, a server unreachable or refusing);"
    f" {WRONG} wrong arguments; {INTERRUPTED} interrupted (Ctrl-C); {CLOSED_PIPE} the reader of the output closed the pipe."
)
"""For the end of the help texts."""
