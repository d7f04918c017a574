"""1 Fetch, versions 4-18: record batches from an offset on, at once or when there are some.

- The client sets the limits on bytes, up to 55 MiB in all; the first batch found is always
  returned, and whole.
- With fewer bytes than min_bytes and no error, the fetch waits at its queues until there are
  enough, or for max_wait_ms. If the only errors are damage on the disk, it waits at the other
  queues.
- Batches are returned as they are in the log; the first may begin before the offset, as in Kafka.
  Messages of RocketMQ's producers are converted to batches (`conversion`).
- An incremental fetch is answered with the partitions that have changed (`fetch_sessions`).
- isolation_level 1 ends at the last stable offset, and lists the aborted transactions for the
  client to skip.
- The high watermark is one past the last offset that may be read, which with flush=sync is on the
  disk.
- A fetch with many RocketMQ messages to convert waits for its turn (`turns`), and gets what one
  turn converts.
- An append may wake many fetches: WOKEN_MAX are answered in one millisecond, the others in the next
  ones.
- A fetch of very many partitions takes several turns, and does not wait if a queue has grown
  meanwhile. One of more than QUEUES_MAX waits for at most TIMED_MS, and appends do not wake it.
- Leader epochs are 0. Followers, racks and preferred replicas are not supported.
Source: core/kafka/server/KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch;
server/FetchSession.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from steelyard.errors import StorageError
from steelyard.ledger.events import Delivered
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.fetch_parked import Fetch, ParkedFetches, ReadableEnd
from steelyard.nodes.broker.kafka.data.fetch_reads import (
    IDS_SINCE,
    STEP_PARTITIONS,
    MayRead,
    PartitionAnswer,
    Reads,
)
from steelyard.nodes.broker.kafka.data.fetch_sessions import (
    NO_SESSION,
    CachedPartition,
    Key,
    Sessions,
    next_epoch,
)
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.groups.notes import Notes
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.parked import Queue
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.turns import AT_ONCE, SLICE, Steps, finish
from steelyard.nodes.seam import Effect, Hang, Link
from steelyard.types import Effort, TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FIRST_EPOCH,
    LAST_EPOCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

FETCH_BYTES_MAX = 55 * 1024 * 1024
"""Most bytes of records in an answer; the default of a broker's fetch.max.bytes."""
WAIT_MS_MAX = 600_000

WOKEN_MAX = 256
"""Most fetches that waited and are answered in one millisecond; they take about 5 ms."""
QUEUES_MAX = 4_000
"""Most partitions of a fetch that waits at their queues."""
TIMED_MS = 100
"""How long a fetch of more partitions waits at most."""

STEP_ASKED = 4_000
ANSWERS_PER_STEP = 4_000
"""Partitions of a request to read, and of an answer to build, in one step of about 4 ms."""

T = TypeVar("T")


class FetchResult(msgspec.Struct):
    """The findings of a fetch.

    `fetch`: the error if the request has one. `size`: bytes of records. `at_once`: an error must be
    reported without waiting. `spent`: there was more to convert than the effort allowed.
    """

    call: OpenRequest
    fetch: Fetch | ErrorCode
    parts: list[CachedPartition] = []
    answers: list[PartitionAnswer] = []
    size: int = 0
    at_once: bool = False
    spent: bool = False


class Fetches:
    """The handler of Fetch, and the fetches that wait; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        partitions: Partitions,
        producers: Producers,
        sessions: Sessions,
        faults: Faults,
        notes: Notes,
        may_read: MayRead | None = None,
    ) -> None:
        """`may_read`: whether the sender of a fetch may read a topic; None: everybody may."""
        self._partitions = partitions
        self._producers = producers
        self._store = parts.store
        self._durability = parts.durability
        self._sessions = sessions
        self._parked = ParkedFetches(parts.config.hold_waiting_max)
        self._statistics = parts.statistics
        self._reads = Reads(partitions, producers, parts.durability, faults, may_read)
        self._notes = notes
        self._broker = parts.config.name
        self._turns = parts.turns
        self._woken: deque[Fetch] = deque()
        """Fetches that waited, to be answered after those before them."""
        self._answered_at = 0
        self._may_answer = WOKEN_MAX
        """How many more may be answered at that time."""

    @property
    def parked_count(self) -> int:
        """Return how many fetches wait for records."""
        return len(self._parked)

    # -- requests --------------------------------------------------------------------------------

    @serves(FetchRequest)
    def fetch(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        self._run(call, self._found(call, now), self._end, now, effects)

    def _run(
        self,
        call: OpenRequest,
        steps: Steps[T],
        then: Callable[[T, int, list[Effect]], None],
        now: int,
        effects: list[Effect],
        *,
        at_once: bool = True,
    ) -> None:
        link = call.peer.link
        if not self._turns.run(link, steps, then, now, effects, at_once=at_once):
            effects.append(Hang(link, "too many fetches wait for their turn"))

    def _found(self, call: OpenRequest, now: int) -> Steps[FetchResult]:
        """Open a fetch with all its partitions, and read them."""
        request = call.read(FetchRequest)
        fetch = yield from self._opened(call, request, now)
        if isinstance(fetch, ErrorCode):
            return FetchResult(call, fetch)
        in_turns = len(fetch.parts) >= STEP_PARTITIONS
        return (yield from self._attempt(fetch, fetch.parts, SLICE if in_turns else AT_ONCE))

    def _attempt(
        self, fetch: Fetch, parts: list[CachedPartition], effort: int
    ) -> Steps[FetchResult]:
        left = Effort(effort)
        answers, size, at_once = yield from self._reads.attempt(fetch, parts, left)
        spent = left.left <= 0
        return FetchResult(fetch.call, fetch, parts, answers, size, at_once, spent)

    def _end(self, found: FetchResult, now: int, effects: list[Effect]) -> None:
        """Answer a fetch with what there is, or let it wait."""
        fetch = found.fetch
        if isinstance(fetch, ErrorCode):
            found.call.answer(FetchResponse(0, fetch), effects)
            return
        request = found.call.read(FetchRequest)
        is_wide = len(fetch.parts) >= STEP_PARTITIONS
        if found.spent and not is_wide and self._waits_for_turn(found, now, effects):
            return
        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        if found.size < fetch.min_bytes and not found.at_once and fetch.parts and wait_ms > 0:
            if len(fetch.parts) > QUEUES_MAX:
                fetch.is_timed = True
                wait_ms = min(wait_ms, TIMED_MS)
            elif is_wide and self._reads.has_grown(fetch):
                wait_ms = 0
            else:
                fetch.found = found.size
                fetch.news = {answer.asked.key: answer.asked for answer in found.answers}
                refused = {a.asked.key for a in found.answers if a.data.error_code}
                fetch.ends = self._ends(part for part in fetch.parts if part.key not in refused)
            if wait_ms and self._parked.add(fetch, fetch.ends, found.call.peer.link, now + wait_ms):
                return
        self._give(found, now, effects)

    def _opened(
        self, call: OpenRequest, request: FetchRequest, now: int
    ) -> Steps[Fetch | ErrorCode]:
        """Return the fetch with all its partitions, including those that the session knows."""
        sessions = self._sessions
        epoch = request.session_epoch
        session = None
        changed = yield from _asked(request)
        if epoch in (FIRST_EPOCH, LAST_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.remove(request.session_id)
            parts = list(changed.values())
        else:
            session = sessions.get(request.session_id)
            if session is None:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if session.epoch != epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH
            if session.uses_ids != (call.version >= IDS_SINCE):
                return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            forgotten = [
                (topic.topic, topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            if not sessions.update(session, changed.values(), forgotten, now):
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            parts = list(session.parts.values())
        max_bytes = min(max(request.max_bytes, 0), FETCH_BYTES_MAX)
        return Fetch(
            call,
            parts,
            session,
            epoch == FIRST_EPOCH,
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.isolation_level == 1,
        )

    def _ends(self, parts: Iterable[CachedPartition]) -> dict[Queue, tuple[CachedPartition, int]]:
        """Return the queues to wait at, each with the address up to which it was read."""
        ends = {}
        for asked in parts:
            place = asked.place
            if place is not None and not place.read_fault:
                ends[place.topic, place.queue_id] = (asked, asked.end)
        return ends

    # -- waking ----------------------------------------------------------------------------------

    def wait_at(self, topic: str, queue_id: int) -> bool:
        """Return whether fetches wait for a queue."""
        return self._parked.of_queue((topic, queue_id)) is not None

    def wake(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """Answer the fetches that waited for a queue, because it has something new to read."""
        queue = (topic, queue_id)
        log = self._store.log(topic, queue_id)
        if log is None:
            return
        try:
            high = ReadableEnd.of(log, self._durability.readable_end(log))
            stable = ReadableEnd.of(log, self._producers.last_stable(log))
        except StorageError:  # the reader will be told; it does not concern the producer
            high = stable = ReadableEnd.of(log, log.max_offset)
        self._answer_woken(self._parked.grown(queue, log, high, stable), now, effects)

    @property
    def next_at(self) -> int | None:
        return self._answered_at + 1 if self._woken else self._parked.next_at

    def due(self, now: int, effects: list[Effect]) -> None:
        """Answer the fetches that have waited long enough."""
        self._answer_woken(self._parked.due(now), now, effects)

    def _answer_woken(self, fetches: Iterable[Fetch], now: int, effects: list[Effect]) -> None:
        """Answer as many fetches as may be answered now: those woken before, then these."""
        self._woken += fetches
        if now != self._answered_at:
            self._answered_at, self._may_answer = now, WOKEN_MAX
        effort = Effort(SLICE)
        while self._woken and self._may_answer:
            fetch = self._woken.popleft()
            if not fetch.call.is_gone:
                self._may_answer -= 1
                self._late(fetch, effort, now, effects)

    def _late(self, fetch: Fetch, effort: Effort, now: int, effects: list[Effect]) -> None:
        """Answer a fetch that has waited: an incremental one only for the queues that woke it."""
        looks_at_all = fetch.session is None or fetch.is_timed
        parts = fetch.parts if looks_at_all else list(fetch.news.values())
        if len(parts) >= STEP_PARTITIONS:
            steps = self._attempt(fetch, parts, SLICE)
            self._run(fetch.call, steps, self._give, now, effects, at_once=False)
            return
        answers, _, _ = finish(self._reads.attempt(fetch, parts, effort))
        found = FetchResult(fetch.call, fetch, parts, answers)
        if effort.left > 0 or not self._waits_for_turn(found, now, effects):
            self._give(found, now, effects)

    def _waits_for_turn(self, found: FetchResult, now: int, effects: list[Effect]) -> bool:
        """Let a fetch that takes long be answered in its turn; return False if too many wait."""
        return self._turns.add(found.call.peer.link, partial(self._turn, found), now, effects)

    def _turn(self, found: FetchResult, now: int, effects: list[Effect]) -> bool:
        assert isinstance(found.fetch, Fetch)
        self._give(finish(self._attempt(found.fetch, found.parts, SLICE)), now, effects)
        return True

    def _give(self, found: FetchResult, now: int, effects: list[Effect]) -> None:
        """Answer a fetch with what was found."""
        call, fetch = found.call, found.fetch
        assert isinstance(fetch, Fetch)
        if len(found.answers) < STEP_PARTITIONS:
            call.answer(finish(self._answer(fetch, found.answers, now)), effects)
            return
        answered = self._answer(fetch, found.answers, now)
        self._run(call, answered, call.answer_in_turns, now, effects)

    def closed(self, link: Link) -> None:
        """Forget the fetches of a closed link."""
        self._parked.closed(link)

    # -- answering -------------------------------------------------------------------------------

    def _answer(
        self, fetch: Fetch, answers: list[PartitionAnswer], now: int
    ) -> Steps[FetchResponse]:
        session = fetch.session
        request = fetch.call.read(FetchRequest)
        if session is not None and session.epoch != next_epoch(request.session_epoch):
            return FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        leaders: list[int] = []
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for number, answer in enumerate(answers, 1):
            if not number % ANSWERS_PER_STEP:
                yield
            asked, data = answer.asked, answer.data
            asked.high = data.high_watermark
            asked.low = data.log_start_offset
            name, topic_id, _ = asked.key
            topics.setdefault((name, topic_id), []).append(data)
            if data.current_leader.leader_id >= 0:
                leaders.append(data.current_leader.leader_id)
            if answer.next_offset >= 0:
                self._given(fetch, answer, now)
                if session is not None and session.parts.get(asked.key) is asked:
                    # Partitions that returned records come last in the next fetch.
                    del session.parts[asked.key]
                    session.parts[asked.key] = asked
        session_id = NO_SESSION
        if session is not None and session.parts:
            session_id = session.session_id
        elif session is None and fetch.makes_session:
            parts = {}
            for number, asked in enumerate(fetch.parts, 1):
                if not number % ANSWERS_PER_STEP:
                    yield
                parts[asked.key] = asked
            uses_ids = fetch.call.version >= IDS_SINCE
            made = self._sessions.create(parts, now, uses_ids=uses_ids)
            session_id = NO_SESSION if made is None else made.session_id
        responses = [
            FetchableTopicResponse(name, topic_id, parts)
            for (name, topic_id), parts in topics.items()
        ]
        endpoints = [NodeEndpoint(*each) for each in self._partitions.endpoints(leaders)]
        return FetchResponse(0, 0, session_id, responses, endpoints)

    def _given(self, fetch: Fetch, answer: PartitionAnswer, now: int) -> None:
        """Count what is sent, and note a delivery if a member of a group gets it."""
        self._statistics.found += 1
        self._statistics.got_messages += answer.next_offset - answer.asked.offset
        asked, place = answer.asked, answer.asked.place
        if place is None or place.log is None:
            return
        partition = TopicPartition(place.topic, place.index)
        reader = self._notes.reader(fetch.call.asker, partition, asked.offset)
        if reader is None:
            return
        first, following = asked.offset, answer.next_offset
        try:
            stored_at = place.log.stored_at(first)
        except StorageError:
            return  # it was readable just now; only the ledger misses it
        group, member = reader
        delivery = Delivered(
            at=now,
            broker=self._broker,
            group=group,
            client=member,
            topic=place.topic,
            queue=place.queue_id,
            until=now,
            first=first,
            next=following,
            count=following - first,
            stored=stored_at,
        )
        self._notes.delivered(delivery, partition, now)

    def check(self) -> None:
        self._parked.check()
        self._reads.check()
        self._sessions.check()


def _asked(request: FetchRequest) -> Steps[dict[Key, CachedPartition]]:
    asked: dict[Key, CachedPartition] = {}
    count = 0
    for topic in request.topics:
        for part in topic.partitions:
            key = (topic.topic, topic.topic_id, part.partition)
            asked[key] = CachedPartition(
                key, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
            )
            count += 1
            if not count % STEP_ASKED:
                yield
    return asked
