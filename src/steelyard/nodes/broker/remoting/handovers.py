"""Queues that change hands: the first pull of the new owner waits for the old one's last commit.

RocketMQ's members give a queue up when they notice a change of the group, each in its own time. A
new owner that asks for the committed offset (14) before the old owner has given the queue up gets
an offset that lies behind, and reads again what the old owner is about to commit. The broker knows
who reads a queue, what it delivered to that client, and what was committed. So, if the old owner
has messages that it did not commit,

- the question (14) is answered at once, and the answer remembered: clients ask queue after queue,
  in the thread that also gives their own queues up, and begin to pull only 500 ms later (Java);
- the new owner's first pull waits, if it allows waiting, until the old owner has given the queue up
  or has left the group, or for BOUND_MS at most. While the old owner goes on asking for messages,
  as one does whose view of the brokers differs, the pull waits on, for BOUND_READ_MS at most;
- the first pull is then sent to the offset committed by the old owner in the meantime, by an answer
  with nothing but a next offset (20), as if a filter had rejected the messages before it. Clients
  correct their own offset as well;
- the new owner's commits of the offset that it was told move nothing until then: they would undo
  those of the old owner.

A client gives a queue up with a commit (15), and asks no more for its messages. A commit after
which it asks again is one of those that clients send every few seconds, so the pull waits SETTLE_MS
after each. Commits that come with pulls tell nothing. An unlocked queue (42) and the last commit of
a Steelyard member leave no doubt.

Nothing waits if the new owner is the one that reads, if the old one is no member any more, has
committed everything or does not commit what it gives up (Go), if either broadcasts or is no push
consumer, or if the pull does not begin at the offset that was told. A commit by a third party, that
is, an operator, ends the hand-over.

Source of the clients' behaviour: Java RebalanceImpl.updateProcessQueueTableInRebalance,
RebalancePushImpl.removeUnnecessaryMessageQueue, DefaultMQPushConsumerImpl.pullMessage
(correctTagsOffset); Go consumer.go, push_consumer.go; C++ Rebalance.cpp.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from steelyard.groups.remoting.registry import BROADCASTING, Registry
from steelyard.nodes.broker.remoting.checked_pull import CheckedPull, QueueKey
from steelyard.nodes.seam import Link

SETTLE_MS = 100
"""How long a member that gave a queue up must not have asked for its messages."""
BOUND_MS = 5_000
"""Longest wait since the old owner asked for messages, or since the new one was told an offset."""
BOUND_READ_MS = 35_000
"""Longest wait since the new owner was told an offset: clients look at routes every 30 s."""
READERS_MAX = 100_000
"""Queues, of all groups together, whose reader is known; beyond that all are forgotten."""


class _Reader(msgspec.Struct):
    """Who reads a queue. `next`: one past the last message delivered to it."""

    link: Link
    next: int
    asked_at: int
    gave_up_at: int | None = None


class _Handover(msgspec.Struct):
    """A queue's new owner that was told the offset `start` while another member read the queue.

    `waiting`: its pull; `look_at`: when to decide about that again.
    """

    old: Link
    new: Link
    start: int
    told_at: int
    waiting: CheckedPull | None = None
    look_at: int = 0


class Handovers:
    """The queues that change hands; see the module docstring."""

    def __init__(self, registry: Registry, *, enabled: bool) -> None:
        self._registry = registry
        self._enabled = enabled
        self._readers: dict[QueueKey, _Reader] = {}
        self._handovers: dict[QueueKey, _Handover] = {}
        self._waiting: dict[QueueKey, _Handover] = {}
        self._ended: list[CheckedPull] = []
        """Pulls that waited until their hand-over ended."""
        self.next_at: int | None = None
        """When to call `due` next; None if no pull waits."""

    def __len__(self) -> int:
        """Return how many pulls wait."""
        return len(self._waiting) + len(self._ended)

    # -- what happens to queues ------------------------------------------------------------------

    def delivered(self, key: QueueKey, link: Link, next_offset: int, now: int) -> None:
        """Note that messages up to `next_offset` - 1 were delivered on a link."""
        reader = self._readers.get(key)
        if reader is not None and reader.link == link:
            reader.next = next_offset
        elif self._enabled and self._is_owner(key, link):
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            self._readers[key] = _Reader(link, next_offset, now)

    def told(self, key: QueueKey, link: Link, offset: int, now: int) -> None:
        """Note that a client asked for the committed offset, and which it was told."""
        reader = self._readers.get(key)
        if reader is None or not self._is_owner(key, link):
            return
        if key in self._handovers:
            self._end(key)
        if reader.link == link or offset >= reader.next or not self._is_owner(key, reader.link):
            return
        if len(self._handovers) < READERS_MAX:
            self._handovers[key] = _Handover(reader.link, link, offset, now)

    def committed(self, key: QueueKey, link: Link, now: int) -> None:
        """Note a commit (15): its sender may have given the queue up."""
        reader = self._readers.get(key)
        if reader is not None and reader.link == link:
            reader.gave_up_at = now
        handover = self._handovers.get(key)
        if handover is None or link == handover.new:
            return
        if link == handover.old:
            self._look(handover, now + SETTLE_MS)
        else:
            self._end(key)

    def given_up(self, key: QueueKey, link: Link, now: int) -> None:
        """Note that a member has given a queue up, without doubt."""
        reader = self._readers.get(key)
        if reader is None or reader.link != link:
            return
        del self._readers[key]
        handover = self._handovers.get(key)
        if handover is not None:
            self._look(handover, now)

    def changed(self, group: str, now: int) -> None:
        """Note that the members of a group changed: those that left are not waited for."""
        for key, handover in self._handovers.items():
            if key[0] == group and not self._are_owners(key, handover):
                self._look(handover, now)

    def closed(self, link: Link) -> None:
        """Forget the pulls of a closed link."""
        for key in [key for key, each in self._handovers.items() if each.new == link]:
            del self._handovers[key]
            self._waiting.pop(key, None)
        self._ended = [pull for pull in self._ended if pull.link != link]
        self._schedule()

    # -- pulls -----------------------------------------------------------------------------------

    def is_echo(self, key: QueueKey, link: Link, offset: int) -> bool:
        """Return whether a commit only repeats what a new owner was told."""
        handover = self._handovers.get(key)
        return handover is not None and handover.new == link and handover.start == offset

    def asked(self, key: QueueKey, link: Link, now: int) -> None:
        """Note a pull: its sender has not given the queue up."""
        reader = self._readers.get(key)
        if reader is not None and reader.link == link:
            reader.asked_at = now
            reader.gave_up_at = None

    def concern(self, pull: CheckedPull) -> bool:
        """Return whether a pull is one of the new owner of a queue that changes hands."""
        handover = self._handovers.get(pull.key)
        return handover is not None and handover.new == pull.link

    def begin(
        self, pull: CheckedPull, committed: int | None, now: int, *, has_room: bool
    ) -> int | None:
        """Return the offset at which a pull that they `concern` begins, None if it is to wait.

        `committed`: what the group has committed by now; `has_room`: one more pull may wait. A
        hand-over ends with a pull that is not to wait.
        """
        key = pull.key
        handover = self._handovers[key]
        is_first = handover.start == pull.offset
        may_wait = has_room and pull.hold_ms > 0
        if is_first and may_wait and self._is_awaited(key, handover, committed, now):
            return None
        self._end(key)
        return max(pull.offset, committed or 0) if is_first else pull.offset

    def wait(self, pull: CheckedPull) -> CheckedPull | None:
        """Let a pull wait for which `begin` returned None.

        Returns another one of the new owner that waited until now.
        """
        handover = self._handovers[pull.key]
        before, handover.waiting = handover.waiting, pull
        self._waiting[pull.key] = handover
        handover.look_at = self._until(pull.key, handover)
        self._schedule()
        return before

    def due(self, now: int) -> list[CheckedPull]:
        """Remove and return the pulls to decide about again: to `begin`, answer, or `wait`."""
        found, self._ended = self._ended, []
        for key, handover in list(self._waiting.items()):
            pull = handover.waiting
            if pull is not None and min(handover.look_at, pull.answer_at) <= now:
                found.append(pull)
                handover.waiting = None
                del self._waiting[key]
        self._schedule()
        return found

    def taken_back(self, link: Link, group: str, topics: Collection[str]) -> list[CheckedPull]:
        """Remove and return the pulls of a member, of these topics, that wait."""
        found = []
        for key, handover in list(self._waiting.items()):
            if handover.new == link and key[0] == group and key[1] in topics:
                assert handover.waiting is not None
                found.append(handover.waiting)
                handover.waiting = None
                del self._waiting[key]
        self._schedule()
        return found

    # -- rules -----------------------------------------------------------------------------------

    def _is_owner(self, key: QueueKey, link: Link) -> bool:
        """Return whether a member may own queues: it is a push consumer that does not broadcast."""
        member = self._registry.member(key[0], link)
        return (
            member is not None
            and member.data.message_model != BROADCASTING
            and member.data.consume_type == "CONSUME_PASSIVELY"
        )

    def _are_owners(self, key: QueueKey, handover: _Handover) -> bool:
        return self._is_owner(key, handover.old) and self._is_owner(key, handover.new)

    def _is_awaited(
        self, key: QueueKey, handover: _Handover, committed: int | None, now: int
    ) -> bool:
        """Return whether the old owner is still to commit."""
        reader = self._readers.get(key)
        old = self._registry.member(key[0], handover.old)
        return (
            reader is not None
            and reader.link == handover.old
            and (committed or 0) < reader.next
            and self._are_owners(key, handover)
            and old is not None
            and old.client.commits_what_it_gives_up
            and now < self._until(key, handover)
        )

    def _until(self, key: QueueKey, handover: _Handover) -> int:
        """Return until when the old owner is awaited, as far as is known."""
        reader = self._readers[key]
        last_sign = max(reader.asked_at, handover.told_at)
        until = min(handover.told_at + BOUND_READ_MS, last_sign + BOUND_MS)
        return until if reader.gave_up_at is None else min(until, reader.gave_up_at + SETTLE_MS)

    # -- times -----------------------------------------------------------------------------------

    def _look(self, handover: _Handover, at: int) -> None:
        handover.look_at = at
        if handover.waiting is not None:
            self._schedule()

    def _end(self, key: QueueKey) -> None:
        """End a hand-over; a pull that waits is decided about at once."""
        pull = self._handovers.pop(key).waiting
        if pull is not None:
            del self._waiting[key]
            self._ended.append(pull)
            self._schedule()

    def _schedule(self) -> None:
        times = [
            min(handover.look_at, handover.waiting.answer_at)
            for handover in self._waiting.values()
            if handover.waiting is not None
        ]
        self.next_at = 0 if self._ended else min(times, default=None)

    def check(self) -> None:
        assert len(self._readers) <= READERS_MAX
        assert len(self._handovers) <= READERS_MAX
        assert self._enabled or not (self._readers or self._handovers)
        for key, handover in self._handovers.items():
            assert handover.old != handover.new
            assert (handover.waiting is not None) == (key in self._waiting)
            assert handover.waiting is None or handover.waiting.key == key
        assert self._waiting.keys() <= self._handovers.keys()
        assert (self.next_at is None) == (len(self) == 0)
