"""Requests of group members whose answers wait, because they are worth more later.

A member learns of a rebalance from the answer to its next heartbeat. So a coordinator keeps a
heartbeat that has nothing to tell, and answers it when there is something to tell, at the latest
when it is due. The rules, which are the same for all kinds of groups:

- A wait never costs a session. Sessions count from the arrival of requests, and a wait takes less
  than a third of one (`wait_ms`), so that the next heartbeat comes in good time.
- The answers of a link keep their order. So the next request of the link releases the one that
  waits: nothing else is ever delayed, above all not a commit or a LeaveGroup.
- Clients that do nothing else until a heartbeat is answered are answered at once (`may_wait`).
- Clients may have a shorter time-out than a wait, which no request tells. They close the connection
  when it is over. A member that closed one while it waited is kept waiting for at most half as long
  from then on (`WaitLimits`).

docs/REBALANCING.md describes the whole, with what each client does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka.effects import Effects, Handle, Replied
from steelyard.groups.kafka.groups import Asker
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from steelyard.wire.kafka.messages.groups import HeartbeatResponse, SyncGroupResponse
from steelyard.wire.kafka.messages.streams_groups import StreamsGroupHeartbeatResponse

LateMessage = (
    HeartbeatResponse
    | SyncGroupResponse
    | ConsumerGroupHeartbeatResponse
    | StreamsGroupHeartbeatResponse
)
"""The answers that may wait."""

SLOT_MS = 50
"""Ends of waits are rounded down to multiples of this, so that many share one timer."""

TIMEOUT_MS_MIN = 1_000
"""Shortest wait that may be why a client closed its connection (`WaitLimits`)."""

LIMITS_MAX = 10_000
"""Members of which it is known that they waited too long; the one known longest is forgotten."""

IMPATIENT = frozenset({"sarama"})
"""Clients, as they name themselves, that end a session only after an answer to their heartbeat.

Source: sarama's consumer_group.go, consumerGroupSession.release.
"""

JAVA = "apache-kafka-java"
"""Apache's Java clients, as they name themselves."""

FRANZ_GO = "kgo"
"""franz-go, as it names itself."""

COUNTING_FROM_ANSWERS = frozenset({JAVA, "steelyard"})
"""Clients, as they name themselves, that count a changed interval from the answer that tells it
(KIP-848), and whose time-outs have nothing to do with it.

Source: AbstractHeartbeatRequestManager.java; groups.kafka.member.consumer.heartbeats.
"""

NAMELESS_VERSION_MIN = 4
"""Version of Heartbeat from which clients may wait that have not named themselves on this link.

It is the first flexible one, which no client has that predates KIP-511. kafkajs, which fetches only
after an answer to its heartbeat, neither has it nor names itself; franz-go names itself on the
first of its links only.
"""


def may_wait(asker: Asker, version: int) -> bool:
    """Return whether answers to this client's heartbeats may wait. `version`: of the request."""
    if asker.software:
        return asker.software not in IMPATIENT
    return version >= NAMELESS_VERSION_MIN


def is_librdkafka(software: str) -> bool:
    """Return whether a client, as it names itself, is librdkafka or built upon it."""
    return "rdkafka" in software or software.startswith("confluent-kafka")


def wait_ms(most_ms: int, session_timeout_ms: int) -> int:
    """Return how long a request may wait, in ms: less than a third of the session."""
    return max(min(most_ms, session_timeout_ms // 3 - SLOT_MS), 0)


class Waiter(msgspec.Struct, frozen=True):
    """A request that waits. `message`: its answer if nothing happens until `due_at`.

    `software`: its client, as that names itself.
    """

    group_id: str
    member_id: str
    handle: Handle
    link: int
    message: LateMessage
    since: int
    due_at: int
    software: str = ""


class WaitLimits:
    """The members that closed a connection while they waited, and how long each may still wait."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def closed(self, waiter: Waiter, now: int) -> None:
        """Note that the connection of a request that waits was closed, by whomever."""
        waited_ms = now - waiter.since
        if waited_ms < TIMEOUT_MS_MIN:
            return
        key = (waiter.group_id, waiter.member_id)
        limit_ms = min(waited_ms // 2, self._limits.pop(key, waited_ms))
        if len(self._limits) >= LIMITS_MAX:
            del self._limits[next(iter(self._limits))]
        self._limits[key] = limit_ms

    def limited(self, group_id: str, member_id: str, most_ms: int) -> int:
        """Return how long a member may wait that would otherwise wait for `most_ms` at most."""
        return min(most_ms, self._limits.get((group_id, member_id), most_ms))


class Waiters:
    """The requests that wait: one of a member, and one of a link."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, Waiter]] = {}
        self._by_link: dict[int, Waiter] = {}
        self._slots: dict[int, dict[int, Waiter]] = {}
        """By end of the wait, and by link."""
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._by_link)

    def add(self, waiter: Waiter) -> None:
        """Let a request wait. Those of its link and of its member must have been answered."""
        assert waiter.link not in self._by_link
        of_group = self._by_group.setdefault(waiter.group_id, {})
        assert waiter.member_id not in of_group
        of_group[waiter.member_id] = self._by_link[waiter.link] = waiter
        slot = _slot(waiter)
        if slot not in self._slots:
            self._slots[slot] = {}
            heapq.heappush(self._order, slot)
        self._slots[slot][waiter.link] = waiter

    def groups(self) -> list[str]:
        """Return the groups with requests that wait, sorted."""
        return sorted(self._by_group)

    def of_group(self, group_id: str) -> list[Waiter]:
        """Return a group's requests that wait, sorted by member."""
        of_group = self._by_group.get(group_id)
        return [] if of_group is None else [of_group[one] for one in sorted(of_group)]

    def of_member(self, group_id: str, member_id: str) -> Waiter | None:
        of_group = self._by_group.get(group_id)
        return None if of_group is None else of_group.get(member_id)

    def of_link(self, link: int) -> Waiter | None:
        return self._by_link.get(link)

    def remove(self, waiter: Waiter) -> None:
        """End the wait of a request, which the caller answers."""
        del self._by_link[waiter.link]
        of_group = self._by_group[waiter.group_id]
        del of_group[waiter.member_id]
        if not of_group:
            del self._by_group[waiter.group_id]
        del self._slots[_slot(waiter)][waiter.link]  # an empty slot is dropped when it is due

    def hasten(self, waiter: Waiter, due_at: int) -> None:
        """Let a request wait until this time at most."""
        if due_at < waiter.due_at:
            self.remove(waiter)
            self.add(msgspec.structs.replace(waiter, due_at=due_at))

    @property
    def next_at(self) -> int | None:
        """Return when to call `due`; nothing need be due by then."""
        return self._order[0] if self._order else None

    def due(self, now: int) -> list[Waiter]:
        """Remove and return the requests that have waited long enough."""
        found: list[Waiter] = []
        while self._order and self._order[0] <= now:
            slot = heapq.heappop(self._order)
            found.extend(self._slots[slot].values())
            for waiter in list(self._slots[slot].values()):
                self.remove(waiter)
            del self._slots[slot]
        return found

    def check(self) -> None:
        """Assert that all views have the same requests."""
        waiters = {id(one) for one in self._by_link.values()}
        by_group = [one for of_group in self._by_group.values() for one in of_group.values()]
        in_slots = [one for slot in self._slots.values() for one in slot.values()]
        assert len(by_group) == len(in_slots) == len(waiters)
        assert {id(one) for one in by_group} == {id(one) for one in in_slots} == waiters
        assert all(self._by_group.values())
        assert sorted(self._order) == sorted(self._slots)


class LateReplies:
    """The answers that wait in one kind of group, and what ends their waits.

    Subclasses say whose answers wait, and for how long.
    """

    def __init__(self) -> None:
        self._waiting = Waiters()
        self._limits = WaitLimits()

    def groups(self) -> list[str]:
        """Return the groups with answers that wait, sorted."""
        return self._waiting.groups()

    def of_group(self, group_id: str) -> list[Waiter]:
        """Return what waits in a group, sorted by member."""
        return self._waiting.of_group(group_id)

    def _await(
        self,
        group_id: str,
        member_id: str,
        link: int,
        handle: Handle,
        answer: LateMessage,
        most_ms: int,
        session_timeout_ms: int,
        now: int,
        software: str = "",
    ) -> bool:
        """Let a request wait, for `most_ms` at most; return whether it may.

        None of its member or of its link may still wait.
        """
        most_ms = self._limits.limited(group_id, member_id, most_ms)
        time_ms = wait_ms(most_ms, session_timeout_ms)
        if time_ms:
            due_at = now + time_ms
            self._waiting.add(
                Waiter(group_id, member_id, handle, link, answer, now, due_at, software)
            )
        return time_ms > 0

    # -- ends of waits ---------------------------------------------------------------------------

    def answer(self, waiter: Waiter, message: LateMessage, effects: Effects) -> None:
        self._waiting.remove(waiter)
        effects.append(Replied(waiter.handle, message))

    def answer_stored(
        self,
        group_id: str,
        answers: Sequence[tuple[Waiter, LateMessage]],
        store: Callable[[], None],
        effects: Effects,
    ) -> None:
        """Give answers once what they tell is stored; COORDINATOR_NOT_AVAILABLE if it cannot be."""
        try:
            store()
        except StorageError as error:
            effects.append(LogLine("WARNING", f"group {group_id}: not stored: {error}"))
            for waiter, _ in answers:
                self._refuse(waiter, ErrorCode.COORDINATOR_NOT_AVAILABLE, effects)
        else:
            for waiter, message in answers:
                self.answer(waiter, message, effects)

    def gone(self, group_id: str, member_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer a member that waits with this error."""
        waiter = self._waiting.of_member(group_id, member_id)
        if waiter is not None:
            self._refuse(waiter, error, effects)

    def refused(self, group_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer all members of a group with this error."""
        for waiter in self._waiting.of_group(group_id):
            self._refuse(waiter, error, effects)

    def released_group(self, group_id: str, now: int, effects: Effects) -> None:
        """Answer all members of a group without news, so that they come again."""
        for waiter in self._waiting.of_group(group_id):
            self._release(waiter, now, effects)

    def superseded(self, group_id: str, member_id: str, now: int, effects: Effects) -> None:
        """Answer a request whose member has sent another one."""
        self._release(self._waiting.of_member(group_id, member_id), now, effects)

    def released(self, link: int, now: int, effects: Effects) -> None:
        """Answer what waits on a link, on which something else came."""
        self._release(self._waiting.of_link(link), now, effects)

    def closed(self, link: int, now: int, effects: Effects) -> None:
        """End what waits on a link that is closed, perhaps because it waited too long."""
        waiter = self._waiting.of_link(link)
        if waiter is not None:
            self._limits.closed(waiter, now)
        self._release(waiter, now, effects)

    def _refuse(self, waiter: Waiter, error: ErrorCode, effects: Effects) -> None:
        self.answer(waiter, type(waiter.message)(error_code=error), effects)

    def _release(self, waiter: Waiter | None, now: int, effects: Effects) -> None:
        if waiter is not None:
            self.answer(waiter, self._early(waiter, now), effects)

    def _early(self, waiter: Waiter, now: int) -> LateMessage:
        """Return what to answer without news before the answer is due."""
        return waiter.message

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        """Return when to call `due`."""
        return self._waiting.next_at

    def due(self, now: int, effects: Effects) -> None:
        """Answer those that have waited long enough."""
        effects.extend(Replied(one.handle, one.message) for one in self._waiting.due(now))


def _slot(waiter: Waiter) -> int:
    return waiter.due_at // SLOT_MS * SLOT_MS
