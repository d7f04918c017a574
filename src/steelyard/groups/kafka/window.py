"""The window in which changes of a group's members become one rebalance.

Members that are deployed one by one come one after the other, and each of them would be a rebalance
of the whole group. So a group collects them:

- A join that follows another one closely waits until no more have come for twice the time between
  the two (`QUIET_MS_MIN` at least), and for the window's limit at most, counted from the first that
  waits.
- A join that comes later than half of that limit after the one before takes effect at once: it may
  well be the only one, or the next one would come too late.
- A change that leaves partitions without a reader, or readers without their topic, is urgent: it
  ends the window, and takes whatever waits along. Of urgent changes that follow each other, one
  takes effect every `QUIET_MS_MIN`.

A join that waits costs nobody a pause: whoever has the partitions now goes on reading them. Apache
has a fixed interval instead, for KIP-848 (`group.consumer.assignment.interval.ms`), which also
holds up members that leave.
"""

from __future__ import annotations

import msgspec

QUIET_MS_MIN = 50
"""Least quiet time that ends a window, and least time between two urgent changes."""

RESTLESS_MS = 5_000
"""Time after a join in which more are expected."""


class JoinWindow(msgspec.Struct):
    """The window of a group. `most_ms`: its limit; with 0 everything takes effect at once.

    Tell it of each change, and call `ended` when what waited has taken effect.
    """

    most_ms: int
    joined_at: int | None = None
    """When the latest join came."""
    ended_at: int | None = None
    """When changes last took effect."""
    since: int | None = None
    """When the first of the changes came that wait; None if none do."""
    quiet_at: int | None = None
    """When the joins take effect that wait."""
    urgent_at: int | None = None
    """When the urgent changes take effect that wait."""

    def joined(self, now: int) -> None:
        """Note a join."""
        gap = None if self.joined_at is None else max(now - self.joined_at, 0)
        self.joined_at = now
        if self.since is None:
            self.since = now
            is_alone = gap is None or 2 * gap > self.most_ms
        else:
            is_alone = self.quiet_at == self.since
        quiet = max(QUIET_MS_MIN, 2 * (gap or 0))
        self.quiet_at = self.since + (
            0 if is_alone else min(now - self.since + quiet, self.most_ms)
        )

    def urgent(self, now: int, *, at_once: bool = False) -> None:
        """Note a change that cannot wait, or only until the next urgent one may take effect."""
        self.since = now if self.since is None else self.since
        at = now
        if self.ended_at is not None and self.most_ms and not at_once:
            at = max(at, min(self.ended_at, now) + QUIET_MS_MIN)
        self.urgent_at = at if self.urgent_at is None else min(self.urgent_at, at)

    def ended(self, now: int) -> None:
        """Note that everything that waited has taken effect."""
        self.ended_at = now
        self.since = self.quiet_at = self.urgent_at = None

    @property
    def due_at(self) -> int | None:
        """Return when everything that waits takes effect; None if nothing waits."""
        times = [at for at in (self.quiet_at, self.urgent_at) if at is not None]
        return min(times, default=None)

    def is_restless(self, now: int) -> bool:
        """Return whether members have joined lately, so that more are expected."""
        return (
            bool(self.most_ms)
            and self.joined_at is not None
            and (now - self.joined_at < RESTLESS_MS)
        )

    def is_due(self, now: int) -> bool:
        """Return whether what waits takes effect now."""
        return self.due_at is None or now >= self.due_at
