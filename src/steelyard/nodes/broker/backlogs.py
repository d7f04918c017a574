"""What waits for each group on this broker: messages not delivered, or fetched but not finished.

A queue is watched from its first delivery or commit on for as long as the group is active, also
while nobody reads it. After a restart it is watched again from the committed offset on, as soon as
a member has joined that reads the topic. Between two deliveries a backlog only grows, so it peaks
just before a delivery: it is computed there, but not more often than every `LOOK_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from steelyard.ledger.events import Backlog, Delivered

LOOK_MS = 10
"""Shortest time between two computations of the backlog of a group in a topic."""
QUEUES_PER_MS = 20
"""A topic with many queues is looked at less often: a millisecond more for so many queues."""
FORGET_MS = 600_000
"""A group that was delivered nothing and committed nothing for so long is no longer watched."""
WATCHED_MAX = 10_000
"""Most queues watched, of all groups together; computing their backlogs takes some 10 ms a second.

A topic counts with all queues up to the highest that its group reads, as its records do.
"""


class _Position(msgspec.Struct):
    """Where a group is in a queue.

    `first` and `next` are those of the last delivery to `client`. `behind` counts the messages
    before that delivery that the client had not finished by its last commit; those of the delivery
    itself are not counted, since no commit can have covered them yet. `done` is the last commit,
    or where the reading began.
    """

    client: str
    first: int
    next: int
    done: int
    behind: int = 0

    @property
    def offset(self) -> int:
        return self.next - self.behind

    def give_up(self) -> None:
        """Go back to what is done: the client has the queue no longer."""
        self.client, self.next, self.behind = "", self.done, 0


class _Watched(msgspec.Struct):
    """A group's reading of one topic."""

    active_at: int
    positions: list[_Position | None] = msgspec.field(default_factory=list)
    """By queue; None for a queue that the group never had."""
    looked_at: int = 0
    peak: int = 0
    peak_at: int = 0
    written: tuple[int, ...] = ()
    written_at: int = 0
    skipped_at: int = 0


class Backlogs:
    """The backlogs of all groups that this broker watches.

    `end` maps (topic, queue) to the offset after the last message that can be read.
    """

    def __init__(self, broker: str, end: Callable[[str, int], int]) -> None:
        self._broker = broker
        self._end = end
        self._watched: dict[str, dict[str, _Watched]] = {}
        """By group and topic."""
        self._queues = 0

    @property
    def is_watching(self) -> bool:
        return bool(self._watched)

    def resumed(self, group: str, committed: Iterable[tuple[str, int, int]], now: int) -> None:
        """Watch these queues of a group: topic, queue and committed offset of each.

        What is known of queues that are watched already remains.
        """
        for topic, queue, offset in committed:
            self._find(group, topic, queue, offset, now)

    def delivered(self, delivery: Delivered, asked: int, now: int) -> None:
        """Note a delivery to a reader that asked for the messages from offset `asked` on."""
        found = self._find(delivery.group, delivery.topic, delivery.queue, asked, now)
        if found is None:
            return
        watched, position = found
        if position.client != delivery.client:
            position.client, position.behind, position.done = delivery.client, 0, asked
        position.next = asked
        if now - watched.looked_at >= LOOK_MS + len(watched.positions) // QUEUES_PER_MS:
            self._look(delivery.topic, watched, now)
        position.first, position.next = delivery.first, delivery.next

    def committed(
        self, group: str, topic: str, queue: int, offset: int, now: int, *, gives_up: bool = False
    ) -> None:
        """Note an offset that the group committed.

        `gives_up`: the member gives up the queue, so that what it has fetched ahead waits again.
        """
        found = self._find(group, topic, queue, offset, now)
        if found is not None:
            _, position = found
            position.done = offset
            if gives_up:
                position.give_up()
                return
            position.behind = max(0, position.first - offset)
            position.next = max(position.next, offset)  # past what a filter refused

    def left(self, group: str, client: str) -> None:
        """Note that a member left: what it had been delivered and not finished waits again."""
        for watched in self._watched.get(group, {}).values():
            for position in watched.positions:
                if position is not None and position.client == client:
                    position.give_up()

    def _find(
        self, group: str, topic: str, queue: int, offset: int, now: int
    ) -> tuple[_Watched, _Position] | None:
        """Return the group's position in a queue, at `offset` if new; None beyond `WATCHED_MAX`."""
        watched = self._watched.get(group, {}).get(topic)
        more = queue + 1 - (len(watched.positions) if watched else 0)
        if more > 0:
            if self._queues + more > WATCHED_MAX:
                return None
            self._queues += more
            if watched is None:
                watched = self._watched.setdefault(group, {})[topic] = _Watched(now)
            watched.positions += [None] * more
        assert watched is not None
        watched.active_at = now
        position = watched.positions[queue]
        if position is None:
            position = watched.positions[queue] = _Position("", offset, offset, offset)
        return watched, position

    def _waiting(self, topic: str, watched: _Watched) -> tuple[int, ...]:
        return tuple(
            0 if position is None else max(0, self._end(topic, queue) - position.offset)
            for queue, position in enumerate(watched.positions)
        )

    def _look(self, topic: str, watched: _Watched, now: int) -> None:
        watched.looked_at = now
        total = sum(self._waiting(topic, watched))
        if total > watched.peak:
            watched.peak, watched.peak_at = total, now

    def take(self, now: int) -> Iterator[Backlog]:
        """Yield a record for each group and topic whose backlog moved since the last one.

        Where calls in between found no change, a record of the last of them comes first: readers
        take a backlog to change evenly from one record to the next.
        """
        self._forget(now)
        for group, topic, watched in self._all():
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

    def _all(self) -> Iterator[tuple[str, str, _Watched]]:
        for group, topics in self._watched.items():
            for topic, watched in topics.items():
                yield group, topic, watched

    def _forget(self, now: int) -> None:
        """Forget the groups that have long been inactive."""
        for group, topic, watched in list(self._all()):
            if now - watched.active_at >= FORGET_MS:
                self._queues -= len(watched.positions)
                del self._watched[group][topic]
                if not self._watched[group]:
                    del self._watched[group]

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
