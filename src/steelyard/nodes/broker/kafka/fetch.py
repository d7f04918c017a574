"""1 Fetch, versions 4-18: record batches from an offset on, at once or as soon as there are some.

- The limits on bytes are the client's, 55 MB in all at most; but the first batch that is found is always given, and whole.
- Less than min_bytes, and no error: the fetch waits at its queues until there is enough, or max_wait_ms is over. So it
  does where the only error is damage on the disk, at the queues that are whole.
- Batches are given as they lie in the log; the first may begin before the offset, as in Kafka. What RocketMQ's producers
  wrote is turned into batches (`crossing`).
- An incremental fetch is answered with the partitions where something has changed: see `fetch_sessions`.
- isolation_level 1 ends at the last stable offset and names the aborted transactions that the client has to skip.
- High watermark: one past what readers may read, with flush=sync what the disk has.
- A fetch that has many messages of RocketMQ's to convert waits for its turn (`turns`), and gets what one turn converts.
- Leader epochs are 0. Followers, racks and preferred replicas are none of ours.
Source: core/kafka/server/KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch; server/FetchSession.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.holds import Queue
from steelyard.nodes.broker.kafka.door import Call
from steelyard.nodes.broker.kafka.fetch_holds import Fetch, Holds
from steelyard.nodes.broker.kafka.fetch_reads import IDS_SINCE, Answer, Reads
from steelyard.nodes.broker.kafka.fetch_sessions import (
    FIRST_EPOCH,
    LAST_EPOCH,
    NO_SESSION,
    Asked,
    Sessions,
    next_epoch,
)
from steelyard.nodes.broker.kafka.notes import Notes
from steelyard.nodes.broker.kafka.partitions import (
    Partitions,
)
from steelyard.nodes.broker.kafka.producers import Producers
from steelyard.nodes.broker.ledger import Delivery
from steelyard.nodes.broker.statistics import Statistics
from steelyard.nodes.broker.turns import AT_ONCE, SLICE, Effort, Turns
from steelyard.nodes.seam import Effect, Link
from steelyard.store.store import Store
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from steelyard.wire.kafka.schema import Message

FETCH_BYTES_MAX = 55 * 1024 * 1024
"""fetch.max.bytes of a broker."""
WAIT_MS_MAX = 600_000
_UNKNOWN = -1


class Fetches:
    """See the module's text."""

    def __init__(
        self,
        partitions: Partitions,
        producers: Producers,
        store: Store,
        durability: Durability,
        sessions: Sessions,
        holds: Holds,
        statistics: Statistics,
        faults: Faults,
        notes: Notes,
        turns: Turns,
    ) -> None:
        self._partitions = partitions
        self._producers = producers
        self._store = store
        self._durability = durability
        self._sessions = sessions
        self._holds = holds
        self._statistics = statistics
        self._reads = Reads(partitions, producers, durability, faults)
        self._notes = notes
        self._turns = turns

    # -- requests --------------------------------------------------------------------------------

    def fetch(self, call: Call, now: int, effects: list[Effect]) -> Message | None:
        request = call.message
        assert isinstance(request, FetchRequest)
        fetch = self._opened(call, request, now)
        if isinstance(fetch, ErrorCode):
            return FetchResponse(0, fetch)
        effort = Effort(AT_ONCE)
        answers, found, at_once = self._reads.attempt(fetch, fetch.parts, effort, now, effects)
        if effort.left <= 0 and self._waits_for_turn(fetch, fetch.parts, now, effects):
            return None
        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        if found < fetch.min_bytes and not at_once and fetch.parts and wait_ms > 0:
            fetch.found = found
            fetch.news = {answer.asked.key: answer.asked for answer in answers}
            refused = {answer.asked.key for answer in answers if answer.data.error_code}
            fetch.ends = self._ends(part for part in fetch.parts if part.key not in refused)
            if self._holds.add(fetch, fetch.ends, call.peer.link, now + wait_ms):
                return None
        return self._answer(fetch, answers, now)

    def _opened(self, call: Call, request: FetchRequest, now: int) -> Fetch | ErrorCode:
        """The fetch with all its partitions, also those that the session knows."""
        sessions = self._sessions
        epoch = request.session_epoch
        session = None
        changed = _asked(request)
        if epoch in (FIRST_EPOCH, LAST_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.remove(request.session_id)
            parts = list({asked.key: asked for asked in changed}.values())
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
            if not sessions.update(session, changed, forgotten, now):
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

    def _ends(self, parts: Iterable[Asked]) -> dict[Queue, tuple[Asked, int]]:
        """The queues to wait at, and where they end."""
        ends = {}
        for asked in parts:
            place = asked.place
            if place is not None and not place.read_fault:
                log = place.log
                end = _UNKNOWN if log is None else log.next_address
                ends[place.topic, place.queue_id] = (asked, end)
        return ends

    # -- waking ----------------------------------------------------------------------------------

    def wake(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """A queue has something new to read: answer the fetches that waited for it."""
        queue = (topic, queue_id)
        if self._holds.of_queue(queue) is None:
            return
        log = self._store.log(topic, queue_id)
        if log is None:
            return
        try:
            stable = self._producers.last_stable(log)
        except (
            StorageError
        ):  # the reader's bad luck, who will be told; not that of a producer who woke it
            stable = self._durability.readable_end(log)
        effort = Effort(SLICE)
        for fetch in self._holds.grown(queue, log, stable):
            self._late(fetch, effort, now, effects)

    @property
    def next_at(self) -> int | None:
        return self._holds.next_at

    def due(self, now: int, effects: list[Effect]) -> None:
        """Answer the fetches that waited long enough."""
        effort = Effort(SLICE)
        for fetch in self._holds.due(now):
            self._late(fetch, effort, now, effects)

    def _late(self, fetch: Fetch, effort: Effort, now: int, effects: list[Effect]) -> None:
        """Answer a fetch that has waited. An incremental one has nothing to say but of the queues that woke it."""
        parts = fetch.parts if fetch.session is None else list(fetch.news.values())
        answers, _, _ = self._reads.attempt(fetch, parts, effort, now, effects)
        if effort.left > 0 or not self._waits_for_turn(fetch, parts, now, effects):
            fetch.call.answer(self._answer(fetch, answers, now), effects)

    def _waits_for_turn(
        self, fetch: Fetch, parts: list[Asked], now: int, effects: list[Effect]
    ) -> bool:
        """The fetch takes long: answer it in its turn. False where too many wait for theirs."""
        return self._turns.add(
            fetch.call.peer.link, partial(self._turn, fetch, parts), now, effects
        )

    def _turn(self, fetch: Fetch, parts: list[Asked], now: int, effects: list[Effect]) -> bool:
        answers, _, _ = self._reads.attempt(fetch, parts, Effort(SLICE), now, effects)
        fetch.call.answer(self._answer(fetch, answers, now), effects)
        return True

    def closed(self, link: Link) -> None:
        """Nobody waits on this connection any more."""
        self._holds.closed(link)

    # -- answering -------------------------------------------------------------------------------

    def _answer(self, fetch: Fetch, answers: list[Answer], now: int) -> FetchResponse:
        session = fetch.session
        request = fetch.call.message
        assert isinstance(request, FetchRequest)
        if session is not None and session.epoch != next_epoch(request.session_epoch):
            return FetchResponse(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        leaders: list[int] = []
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for answer in answers:
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
                    # Those that were served come last the next time.
                    del session.parts[asked.key]
                    session.parts[asked.key] = asked
        session_id = NO_SESSION
        if session is not None:
            session_id = session.session_id
        elif fetch.makes_session:
            parts = {asked.key: asked for asked in fetch.parts}
            uses_ids = fetch.call.version >= IDS_SINCE
            made = self._sessions.create(parts, now, uses_ids=uses_ids)
            session_id = NO_SESSION if made is None else made.session_id
        responses = [
            FetchableTopicResponse(name, topic_id, parts)
            for (name, topic_id), parts in topics.items()
        ]
        endpoints = [NodeEndpoint(*each) for each in self._partitions.endpoints(leaders)]
        return FetchResponse(0, 0, session_id, responses, endpoints)

    def _given(self, fetch: Fetch, answer: Answer, now: int) -> None:
        """Count what goes out, and note it where a member of a group gets it."""
        self._statistics.found += 1
        self._statistics.got_messages += answer.next_offset - answer.asked.offset
        asked, place = answer.asked, answer.asked.place
        if place is None or place.log is None:
            return
        asker, partition = fetch.call.asker, TopicPartition(place.topic, place.index)
        if self._notes.reader(asker, partition, asked.offset) is None:
            return
        first, following, high = asked.offset, answer.next_offset, answer.data.high_watermark
        try:
            stored_at = place.log.stored_at(first)
        except StorageError:
            return  # it was readable just now; the ledger is not worth more
        given = Delivery(
            "",
            place.topic,
            place.queue_id,
            first,
            first,
            following,
            following - first,
            stored_at,
            high - first,
            high - following,
        )
        self._notes.delivered(asker, place.index, given, now)

    def check(self) -> None:
        self._holds.check()
        self._sessions.check()


def _asked(request: FetchRequest) -> list[Asked]:
    return [
        Asked(
            (topic.topic, topic.topic_id, part.partition),
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
        )
        for topic in request.topics
        for part in topic.partitions
    ]
