"""The application's knowledge, and the rules that the system must obey.

Safety, at every moment:
- a position (queue, offset) always holds the same message, in acknowledgements and deliveries;
- every delivered message was sent, to that topic, with a subscribed tag;
- a transactional message is in no log and never delivered unless it was committed, and a half
  message is published once (except after a power cut: docs/LIMITS.md);
- a delayed message is not in its queue before its time, by the clock of its broker;
- a message whose entry was damaged on disk is delivered unchanged, if it was prefetched, or not at
  all (`damage`);
- a group's committed offset never passes the lowest offset that the application has not finished
  (watched where a member sends it, so that a commit which is lost later counts as well).

Liveness, after the faults heal (`sim.run` asks): everything in the logs was finished by the group,
every acknowledged message is in its log and was finished, every committed one was finished, and
every readable queue has one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from steelyard.sim.damage import Damage
from steelyard.sim.world import Violation
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.names import RETRY_PREFIX
from steelyard.wire.remoting.properties import TIMER_ENQUEUE_MS

Position = tuple[MessageQueue, int]


DIGITS = 8
"""Digits of the message number with which a body begins."""


def number_of(body: bytes) -> int:
    """Return the number with which a body begins."""
    return int(body[:DIGITS])


class Floor:
    """The lowest offset of a queue that a group has not finished."""

    __slots__ = ("_above", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self._above: set[int] = set()

    def finish(self, offset: int) -> None:
        if offset >= self.offset:
            self._above.add(offset)
            self.advance()

    def advance(self, skipped: Callable[[int], bool] = lambda offset: False) -> None:
        """Advance past finished offsets, and past those that the group never gets."""
        while self.offset in self._above or skipped(self.offset):
            self._above.discard(self.offset)
            self.offset += 1


class Witness:
    """Observes every send, acknowledgement, delivery and commit. Raises Violation."""

    def __init__(self, tags: Iterable[str]) -> None:
        self._tags = frozenset(tags)
        """The subscribed tags; empty means all."""
        self.messages: dict[int, Message] = {}
        """The message sent under each number."""
        self.acknowledged: dict[int, Position] = {}
        self.failed: dict[int, str] = {}
        self.finished: set[int] = set()
        self.withheld: set[int] = set()
        """Numbers whose transaction was not committed, which must not be delivered."""
        self.damage = Damage()
        self.promised: set[int] = set()
        """Numbers whose transaction was committed."""
        self.owed: set[int] = set()
        """Numbers whose delayed message was acknowledged, wherever it will be."""
        self.deliveries = 0
        self.duplicates = 0
        """Deliveries of a position after its first one."""
        self.first_duplicate: Position | None = None
        self.slowest_ms = 0
        """Longest time from an acknowledgement to the first delivery of its position."""
        self.commits = 0
        self.floors: dict[MessageQueue, Floor] = {}
        self.number_at: Callable[[MessageQueue, int], int | None] = lambda queue, offset: None
        """Reads a message's number in the log of a live broker, for filtered subscriptions."""
        self.can_read: Callable[[MessageQueue], bool] = lambda queue: True
        """Whether the queue's broker is alive, so that `number_at` works."""
        self._unproved: dict[MessageQueue, tuple[int, str]] = {}
        """The highest commit of each queue that could not be checked because its broker was down.
        """
        self._numbers: dict[Position, int] = {}
        self._delivered: set[Position] = set()
        self._suspended: set[Position] = set()
        """Positions delivered whose redelivery was requested."""
        self._published: dict[tuple[str, int], Position] = {}
        """By broker and address of a half message."""
        self._waits_since: dict[Position, int] = {}

    # -- what producers do -------------------------------------------------------------------------

    def sent(self, number: int, message: Message) -> None:
        self.messages[number] = message

    def acknowledge(self, number: int, queue: MessageQueue, offset: int, now: int) -> None:
        self._place(queue, offset, number)
        self.acknowledged[number] = (queue, offset)
        self._waits_since.setdefault((queue, offset), now)

    def fail(self, number: int, reason: str) -> None:
        self.failed[number] = reason

    def began(self, number: int) -> None:
        """Note that the number is sent as a transaction with an open outcome."""
        self.withheld.add(number)

    def promise(self, number: int) -> None:
        """Note that its transaction is committed, and its half message stored."""
        self.withheld.remove(number)
        self.promised.add(number)

    def owe(self, number: int) -> None:
        """Note that its delayed message was acknowledged: it is delivered some day."""
        self.owed.add(number)

    # -- what members do ---------------------------------------------------------------------------

    def delivered(self, queue: MessageQueue, messages: Sequence[MessageView], now: int) -> None:
        """Check messages of one queue delivered to the application."""
        previous = -1
        for message in messages:
            offset = message.queue_offset
            if offset <= previous:
                raise Violation(f"{queue}: offset {offset} handed after {previous} in one batch")
            previous = offset
            number = number_of(message.body)
            if number not in self.messages:
                raise Violation(f"{queue} offset {offset}: message {number} was never sent")
            self._compare(queue, message, self.messages[number])
            if not self.damage.is_as_it_was(queue, message):
                raise Violation(f"{queue} offset {offset} is damaged on the disk, and was served")
            self._place(queue, offset, number)
            self.deliveries += 1
            position = (queue, offset)
            if position in self._suspended:
                self._suspended.remove(position)
            elif position in self._delivered:
                self.duplicates += 1
                self.first_duplicate = self.first_duplicate or position
            else:
                self.slowest_ms = max(self.slowest_ms, now - self._waits_since.get(position, now))
            self._delivered.add(position)

    def _compare(self, queue: MessageQueue, message: MessageView, sent: Message) -> None:
        where = f"{queue} offset {message.queue_offset}"
        if sent.topic != queue.topic and not queue.topic.startswith(RETRY_PREFIX):
            raise Violation(f"{where}: was sent to {sent.topic}")
        if self._tags and sent.tags not in self._tags:
            raise Violation(f"{where}: tag {sent.tags} is not wanted")
        if sent.delay_ms:
            came = int(message.property_of(TIMER_ENQUEUE_MS) or 0)
            early_ms = came + sent.delay_ms - message.store_timestamp
            if not came or early_ms > 0:
                raise Violation(f"{where}: came {early_ms} ms before its time")
        got = (message.topic, message.body, message.tags, message.keys)
        if got != (sent.topic, sent.body, sent.tags, sent.keys):
            raise Violation(f"{where}: {got} is not what was sent: {sent}")

    def suspended(self, queue: MessageQueue, offset: int) -> None:
        """Note that an orderly consumer's application requests redelivery in its queue."""
        self._suspended.add((queue, offset))

    def done(self, queue: MessageQueue, offset: int, number: int, *, final: bool) -> None:
        """Note the application's result; `final` is CONSUME_SUCCESS."""
        self.floor(queue).finish(offset)
        if final:
            self.finished.add(number)

    def committed(self, queue: MessageQueue, offset: int, who: str) -> None:
        """Check a commit by `who` of everything below `offset`."""
        self.commits += 1
        floor = self.floor(queue)
        if offset <= floor.offset:
            return
        floor.advance(lambda at: self._skipped(queue, at))
        if offset <= floor.offset:
            return
        if self._tags and not self.can_read(queue):
            self._unproved[queue] = max((offset, who), self._unproved.get(queue, (0, "")))
            return
        raise Violation(f"{who} commits {offset} of {queue}, but {floor.offset} is not finished")

    # -- what the judge asks -----------------------------------------------------------------------

    def floor(self, queue: MessageQueue) -> Floor:
        floor = self.floors.get(queue)
        if floor is None:
            floor = self.floors[queue] = Floor()
        return floor

    def unfinished(self, queue: MessageQueue, end: int) -> int | None:
        """Return the lowest offset below `end` that the group must still finish, or None."""
        floor = self.floor(queue)
        if floor.offset < end:
            floor.advance(lambda at: at < end and self._skipped(queue, at))
        return floor.offset if floor.offset < end else None

    def wanted(self, number: int) -> bool:
        """Return whether the group subscribes to the message's tag."""
        return not self._tags or self.messages[number].tags in self._tags

    def missing(self) -> list[int]:
        """Return undamaged acknowledged and committed numbers that the group has not finished."""
        owed = [*self.acknowledged, *sorted(self.promised | self.owed)]
        had = self.finished | self.damage.lost | self.damage.retries_lost
        return [n for n in owed if n not in had and self.wanted(n)]

    def never_delivered(self) -> int:
        """Return how many of the damaged messages were never delivered."""
        return sum(not self.was_delivered(position) for position in self.damage.entries)

    def was_delivered(self, position: Position) -> bool:
        return position in self._delivered

    def queues_of(self, broker: str) -> list[MessageQueue]:
        """Return the broker's queues seen so far, sorted."""
        seen = {queue for queue, _ in self._numbers} | set(self.floors)
        return sorted(queue for queue in seen if queue.broker_name == broker)

    def log_ends(self, queue: MessageQueue, end: int, *, cut_allowed: bool) -> None:
        """Check the end of a recovered log.

        After a power loss (`cut_allowed`) it may lack messages that were neither acknowledged nor
        delivered.
        """
        for position in [p for p in self._numbers if p[0] == queue and p[1] >= end]:
            number = self._numbers.pop(position)
            if (
                not cut_allowed
                or position in self._delivered
                or self.acknowledged.get(number) == position
            ):
                raise Violation(f"message {number} at {position} is lost: its log ends at {end}")
        unproved = self._unproved.pop(queue, None)
        if unproved is not None:
            self.committed(queue, min(unproved[0], end), unproved[1])

    def read_in_log(self, queue: MessageQueue, offset: int, number: int) -> None:
        """Check that the log holds `number` at this position."""
        self._place(queue, offset, number)

    def published(self, queue: MessageQueue, offset: int, half_address: int) -> None:
        """Check that the message at this position comes from the half message at that address."""
        known = self._published.setdefault((queue.broker_name, half_address), (queue, offset))
        if known != (queue, offset):
            raise Violation(
                f"a half message of {queue.broker_name} is published at {known} and"
                f" {(queue, offset)}"
            )

    def _skipped(self, queue: MessageQueue, offset: int) -> bool:
        if (queue, offset) in self.damage.given_up:
            return True
        if not self._tags or queue.topic.startswith(RETRY_PREFIX):
            return False
        number = self._numbers.get((queue, offset))
        if number is None:
            number = self.number_at(queue, offset)
        return number is not None and not self.wanted(number)

    def _place(self, queue: MessageQueue, offset: int, number: int) -> None:
        if number in self.withheld:
            raise Violation(f"{queue} offset {offset}: message {number} was not committed")
        known = self._numbers.setdefault((queue, offset), number)
        if known != number:
            raise Violation(f"{queue} offset {offset} held message {known}, now {number}")


def uneven(topics: Collection[str], held: Mapping[str, Sequence[MessageQueue]]) -> str | None:
    """Return None if members hold equal numbers of queues, give or take one.

    Otherwise the counts.
    """
    counts = {
        member: sum(queue.topic in topics for queue in held[member]) for member in sorted(held)
    }
    spread = max(counts.values(), default=0) - min(counts.values(), default=0)
    return f"queues are held unevenly: {counts}" if spread > 1 else None


def one_owner_each(
    queues: Sequence[MessageQueue], held: Mapping[str, Sequence[MessageQueue]]
) -> str | None:
    """Return None if each queue of the topics has exactly one holder; otherwise what is wrong."""
    owners: dict[MessageQueue, list[str]] = {queue: [] for queue in queues}
    topics = {queue.topic for queue in queues}
    for member in sorted(held):
        for queue in held[member]:
            if queue in owners:
                owners[queue].append(member)
            elif queue.topic in topics:
                return f"{member} holds {queue}, which is not in the routes"
    for queue, members in owners.items():
        if len(members) != 1:
            return f"{queue} is held by {members or 'nobody'}"
    return None
