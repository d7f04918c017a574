"""How many messages wait for each group on this broker, queue by queue: those not delivered to it, and those that a member fetched ahead.

A queue is watched from its first delivery or commit on as long as the group is active, also while nobody reads it. Between
two deliveries a backlog only grows, so its peaks are just before deliveries: there it is looked at, but not more often than
every LOOK_MS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from steelyard.ledger.events import Backlog, Delivered

LOOK_MS = 10
"""Between two looks at the backlog of a group in a topic; a topic with many queues is looked at less often."""
QUEUES_PER_MS = 20
"""So many queues lengthen the time between two looks by a millisecond."""
FORGET_MS = 600_000
"""A group to which nothing was delivered, and that committed nothing, for so long is not watched any more."""
WATCHED_MAX = 10_000
"""Most queues that are watched, of all groups together; so many take some 10 ms a second."""


class _Position(msgspec.Struct):
    """Where a group is in a queue.

    `first`, `next`: of the last delivery to `client`. `behind`: messages delivered before that one which the client had not
    finished by its last commit; those of the last delivery itself do not count, for nobody can have finished them yet.
    """

    client: str
    first: int
    next: int
    behind: int = 0

    @property
    def offset(self) -> int:
        return self.next - self.behind


class _Watched(msgspec.Struct):
    """A group's reading of one topic, by queue."""

    positions: dict[int, _Position]
    active_at: int
    looked_at: int = 0
    peak: int = 0
    peak_at: int = 0
    written: tuple[int, ...] = ()
    written_at: int = 0
    skipped_at: int = 0


class Backlogs:
    """See the module's text.

    `end`: (topic, queue) to the offset behind the last message that can be read.
    """

    def __init__(
        self,
        broker: str,
        end: Callable[[str, int], int],
    ) -> None:
        self._broker = broker
        self._end = end
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._count = 0
        """Of queues."""

    @property
    def is_watching(self) -> bool:
        return bool(self._watched)

    def delivered(self, delivery: Delivered, asked: int, now: int) -> None:
        """A reader that asked for the messages from `asked` on got some."""
        watched = self._of(delivery.group, delivery.topic, delivery.queue, asked, now)
        if watched is None:
            return
        position = watched.positions[delivery.queue]
        if position.client != delivery.client:
            position.client, position.behind = delivery.client, 0
        position.next = asked
        if now - watched.looked_at >= LOOK_MS + len(watched.positions) // QUEUES_PER_MS:
            self._look(delivery.topic, watched, now)
        position.first, position.next = delivery.first, delivery.next

    def committed(self, group: str, topic: str, queue: int, offset: int, now: int) -> None:
        """The group committed an offset."""
        watched = self._of(group, topic, queue, offset, now)
        if watched is not None:
            position = watched.positions[queue]
            position.behind = max(0, position.first - offset)
            position.next = max(position.next, offset)  # past what a filter refused

    def _of(self, group: str, topic: str, queue: int, offset: int, now: int) -> _Watched | None:
        """What is watched of a group in a topic, with this queue; a new one is at `offset`. None where that is too much."""
        watched = self._watched.get((group, topic))
        if watched is None or queue not in watched.positions:
            if self._count >= WATCHED_MAX:
                return None
            if watched is None:
                watched = self._watched[group, topic] = _Watched({}, now)
            watched.positions[queue] = _Position("", offset, offset)
            self._count += 1
        watched.active_at = now
        return watched

    def _waiting(self, topic: str, watched: _Watched) -> tuple[int, ...]:
        count = max(watched.positions) + 1
        positions = watched.positions
        return tuple(
            max(0, self._end(topic, queue) - positions[queue].offset) if queue in positions else 0
            for queue in range(count)
        )

    def _look(self, topic: str, watched: _Watched, now: int) -> None:
        watched.looked_at = now
        total = sum(self._waiting(topic, watched))
        if total > watched.peak:
            watched.peak, watched.peak_at = total, now

    def take(self, now: int) -> Iterator[Backlog]:
        """A record for each group and topic, but not again and again while nothing moves.

        Where the last look said the same, that comes first: until then nothing had changed.
        """
        for (group, topic), watched in list(self._watched.items()):
            if now - watched.active_at >= FORGET_MS:
                del self._watched[group, topic]
                self._count -= len(watched.positions)
                continue
            waiting = self._waiting(topic, watched)
            total = sum(waiting)
            if waiting == watched.written and watched.peak <= total:
                watched.skipped_at = now
                watched.peak = 0
                continue
            if watched.skipped_at > watched.written_at:
                yield self._record(group, topic, watched.written, watched.skipped_at)
            peak, peak_at = max((total, now), (watched.peak, watched.peak_at))
            yield self._record(group, topic, waiting, now, peak, peak_at)
            watched.written, watched.written_at, watched.peak = waiting, now, 0

    def _record(
        self,
        group: str,
        topic: str,
        waiting: tuple[int, ...],
        at: int,
        peak: int = 0,
        peak_at: int = 0,
    ) -> Backlog:
        return Backlog(
            at=at,
            broker=self._broker,
            group=group,
            topic=topic,
            waiting=waiting,
            peak=peak or sum(waiting),
            peak_at=peak_at or at,
        )
