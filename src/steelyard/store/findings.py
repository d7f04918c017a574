"""Damage that reads found in the files of a store, kept until it is reported."""

from __future__ import annotations

import msgspec

FINDINGS_MAX = 1_000
"""Findings that wait to be taken; further ones are only counted. The broker takes them each event.
"""


class Finding(msgspec.Struct, frozen=True):
    """Something in a file that is not as it was written.

    `position`, `size`: location in the file, in bytes. `offset`, `count`: the affected offsets of
    the queue. `mended`: an index row that was rebuilt from the log, so that nothing is lost;
    otherwise the messages cannot be read.
    """

    path: str
    position: int
    size: int
    topic: str
    queue_id: int
    offset: int
    count: int
    problem: str
    mended: bool = False


class Findings:
    """All findings of a store. `damaged`, `mended`: how often each kind was met since the start."""

    def __init__(self) -> None:
        self.damaged = 0
        self.mended = 0
        self.waiting: dict[tuple[str, int], Finding] = {}
        """By path and position, so that damage met repeatedly is reported once."""

    def note(self, finding: Finding) -> None:
        if finding.mended:
            self.mended += 1
        else:
            self.damaged += 1
        if len(self.waiting) < FINDINGS_MAX:
            self.waiting[finding.path, finding.position] = finding

    def take(self) -> list[Finding]:
        """Return the findings since the last call, in order."""
        found = list(self.waiting.values())
        self.waiting.clear()
        return found
