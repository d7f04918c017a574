"""What reads found to be wrong with the files of a store, until somebody takes and reports it."""

from __future__ import annotations

import msgspec

FINDINGS_MAX = 1_000
"""Findings that wait to be taken; more are counted only. The broker takes them after each event."""


class Finding(msgspec.Struct, frozen=True):
    """Something in a file that is not as it was written.

    `position`, `size`: where in the file, bytes. `offset`, `count`: the offsets of the queue that it concerns.
    `mended`: an index row that was rebuilt from the log; nothing is lost. Else the messages cannot be read.
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
    """All findings of a store. `damaged`, `mended`: how often something of the kind was met since the start."""

    def __init__(self) -> None:
        self.damaged = 0
        self.mended = 0
        self.waiting: dict[tuple[str, int], Finding] = {}
        """By path and position, so that what is met again and again waits once."""

    def note(self, finding: Finding) -> None:
        if finding.mended:
            self.mended += 1
        else:
            self.damaged += 1
        if len(self.waiting) < FINDINGS_MAX:
            self.waiting[finding.path, finding.position] = finding

    def take(self) -> list[Finding]:
        """What was found since the last time, in that order."""
        found = list(self.waiting.values())
        self.waiting.clear()
        return found
