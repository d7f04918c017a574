"""78 ShareFetch, versions 1-2: records that their member has for a time (KIP-932).

- A session names the partitions (`sessions`); acknowledgements that come along are applied first.
  With is_renew_ack nothing is fetched (KIP-1222); the epoch -1 ends the session, and releases what
  the member still has. If its connection closes, that is released as well.
- The client sets the limits on records and bytes; one fetch gets up to 8 MiB, but always a batch.
  It gets the batches from the first record acquired to the last one, and is told which records of
  them it has.
- With fewer bytes than min_bytes and no error, the fetch waits at its queues, for max_wait_ms at
  most. New records wake it, and those of its group that are released, or whose locks time out. Who
  has waited longest comes first; records are acquired only when the answer is made.
- Partitions are read in turn, from another one on with each epoch.
- WOKEN_MAX fetches are answered in one millisecond, and those with many RocketMQ messages to
  convert one after the other.
Source: core/kafka/server/KafkaApis.handleShareFetchRequest, core/kafka/server/share/
SharePartitionManager.java, DelayedShareFetch.java, ShareFetchUtils.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.fetch import WAIT_MS_MAX, WOKEN_MAX
from steelyard.nodes.broker.kafka.data.fetch_reads import LASTING
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.shares.acknowledging import Acknowledging
from steelyard.nodes.broker.kafka.shares.acquiring import Acquiring
from steelyard.nodes.broker.kafka.shares.answers import fetch_answer, members_fault
from steelyard.nodes.broker.kafka.shares.parked import ParkedShareFetches, ShareFetch
from steelyard.nodes.broker.kafka.shares.places import ShareFault, SharePlace, SharePlaces
from steelyard.nodes.broker.kafka.shares.sessions import Place, SessionKey, ShareSessions
from steelyard.nodes.broker.kafka.shares.share_partition import Wanted
from steelyard.nodes.broker.kafka.shares.stored import ShareKey, SharePartitions
from steelyard.nodes.broker.parked import Queue
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.turns import AT_ONCE, SLICE, Steps
from steelyard.nodes.seam import Effect, Hang, Link
from steelyard.types import Effort
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import FIRST_EPOCH, LAST_EPOCH
from steelyard.wire.kafka.messages.share_data import (
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)

FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes of records in an answer, which are read into memory."""
STEP_PLACES = 200
"""Partitions opened in one step of about 4 ms."""
PLACES_MAX = 500
"""Most partitions of a fetch that waits at their queues."""
TIMED_MS = 100
"""How long a fetch of more partitions waits at most."""
RECORD_LIMIT = 1
"""Source: ShareAcquireMode.java."""


class ShareFetches:
    """The handler of ShareFetch, and the fetches that wait; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        shares: SharePartitions,
        places: SharePlaces,
        sessions: ShareSessions,
        acknowledging: Acknowledging,
        acquiring: Acquiring,
        faults: Faults,
    ) -> None:
        self._shares = shares
        self._places = places
        self._sessions = sessions
        self._acknowledging = acknowledging
        self._acquiring = acquiring
        self._faults = faults
        self._durability: Durability = parts.durability
        self._turns = parts.turns
        self._parked = ParkedShareFetches(parts.config.hold_waiting_max)
        self._woken: deque[ShareFetch] = deque()
        """Fetches to be answered, or to wait again, after those before them."""
        self._answered_at = 0
        self._may_answer = WOKEN_MAX
        self._effort = Effort(SLICE)
        """How many more may be answered at that time, and with how much work."""

    # -- requests --------------------------------------------------------------------------------

    @serves(ShareFetchRequest)
    def fetch(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ShareFetchResponse | None:
        request = call.read(ShareFetchRequest)
        fault = members_fault(request.group_id, request.member_id) or _renewal_fault(request)
        if fault:
            return ShareFetchResponse(0, ErrorCode.INVALID_REQUEST, fault)
        session = (request.group_id or "", request.member_id or "")
        error = self._enter(call, request, session)
        if error is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return self._refuse_later(call, request, session, now)
        if error is not ErrorCode.NONE:
            return ShareFetchResponse(0, error)
        link, steps = call.peer.link, self._opened(call, request, session, now)
        if not self._turns.run(link, steps, self._begin, now, effects):
            effects.append(Hang(link, "too many fetches wait for their turn"))
        return None

    def _enter(
        self, call: OpenRequest, request: ShareFetchRequest, session: SessionKey
    ) -> ErrorCode:
        """Begin the member's session, or take the request into it; return why that cannot be."""
        epoch = request.share_session_epoch
        named = [
            (topic.topic_id, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        ]
        if epoch == FIRST_EPOCH:
            if any(p.acknowledgement_batches for topic in request.topics for p in topic.partitions):
                return ErrorCode.INVALID_REQUEST
            begun = self._sessions.begin(session, call.peer.link, named)
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED if begun is None else ErrorCode.NONE
        error = self._sessions.fault(session, epoch)
        found = self._sessions.get(session)
        if error is ErrorCode.NONE and epoch != LAST_EPOCH and found is not None:
            forgotten = [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            self._sessions.update(found, named, forgotten)
        return error

    def _refuse_later(
        self, call: OpenRequest, request: ShareFetchRequest, session: SessionKey, now: int
    ) -> ShareFetchResponse | None:
        """Have a member without a session wait, so that it does not ask again at once."""
        due_at, error = now + _wait_ms(request), ErrorCode.SHARE_SESSION_LIMIT_REACHED
        fetch = ShareFetch(call, session, Wanted(session[1], 0, 1), 0, 0, due_at, error=error)
        if due_at > now and self._parked.park(fetch, due_at):
            return None
        return ShareFetchResponse(0, error)

    def _opened(
        self, call: OpenRequest, request: ShareFetchRequest, session: SessionKey, now: int
    ) -> Steps[tuple[ShareFetch, list[SharePlace]]]:
        """Apply the acknowledgements, and find the partitions to read."""
        group, member = session
        renews = call.version >= 2 and request.is_renew_ack
        applied = yield from self._acknowledging.apply(
            call, session, request.topics, now, renews=renews
        )
        fetch = ShareFetch(
            call,
            session,
            Wanted(
                member,
                request.max_records,
                max(request.batch_size, 1),
                request.share_acquire_mode == RECORD_LIMIT,
            ),
            request.min_bytes,
            min(max(request.max_bytes, 0), FETCH_BYTES_MAX),
            now + _wait_ms(request),
            outcomes=applied.outcomes,
            committed=self._places.is_committed(group),
        )
        found = fetch.begun = self._sessions.get(session)
        if renews or request.share_session_epoch == LAST_EPOCH or found is None:
            return fetch, applied.changed
        parts = list(found.parts)
        first = request.share_session_epoch % max(len(parts), 1)
        for number, place in enumerate([*parts[first:], *parts[:first]], 1):
            opened = yield from self._places.open(call, group, place, now)
            if isinstance(opened, ShareFault):
                fetch.faults[place] = opened
            else:
                fetch.places.append(opened)
            if not number % STEP_PLACES:
                yield
        return fetch, applied.changed

    def _begin(
        self, opened: tuple[ShareFetch, list[SharePlace]], now: int, effects: list[Effect]
    ) -> None:
        """Answer a fetch with what there is, or let it wait."""
        fetch, changed = opened
        self.stir(changed, now, effects)
        request = fetch.call.read(ShareFetchRequest)
        if request.share_session_epoch == LAST_EPOCH:
            self.end_session(fetch.session, now, effects)
        if len(fetch.places) > PLACES_MAX:
            fetch.due_at = min(fetch.due_at, now + TIMED_MS)
        self._attempt(fetch, Effort(AT_ONCE), now, effects)

    def end_session(self, session: SessionKey, now: int, effects: list[Effect]) -> None:
        """End a member's session, and release what it has."""
        if self._sessions.end(session) is not None:
            self._release(session, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Forget what waits on a closed link, and release what its members have."""
        self._parked.closed(link)
        for session in self._sessions.closed(link):
            self._release(session.key, now, effects)

    def _release(self, session: SessionKey, now: int, effects: list[Effect]) -> None:
        group, member = session
        limits = self._shares.limits(group)
        released = []
        for key in self._shares.of_group(group):
            partition = self._shares.get(key)
            if partition is not None and partition.release(member, limits):
                released.append(key)
        self._taken_back(released, now, effects)

    # -- waking ----------------------------------------------------------------------------------

    def wait_at(self, topic: str, queue_id: int) -> bool:
        """Return whether fetches wait for a queue."""
        return self._parked.of_queue((topic, queue_id)) is not None

    def wake(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """Answer those that waited for a queue, because it has something new to read."""
        self._wake((topic, queue_id), None, now, effects)

    def stir(self, changed: Iterable[SharePlace], now: int, effects: list[Effect]) -> None:
        """Answer those of a group that waited, because it can acquire more now."""
        for place in changed:
            queue = (place.queue.topic, place.queue.queue_id)
            self._wake(queue, place.key.group, now, effects)

    def _wake(self, queue: Queue, group: str | None, now: int, effects: list[Effect]) -> None:
        for serial, fetch in self._parked.at(queue, group):
            if self._places.renew(fetch.by_queue[queue]) or self._has_some(fetch, queue):
                self._woken.append(self._parked.remove(serial))
                self._answer_woken(now, effects)

    def _has_some(self, fetch: ShareFetch, queue: Queue) -> bool:
        """Return whether a fetch that waits at a queue can have enough now."""
        if self._acquiring.size_at(fetch, fetch.by_queue[queue]) == 0:
            return False
        if fetch.min_bytes <= 1 or any(map(self._places.renew, fetch.places)):
            return True
        return self._acquiring.has_enough(fetch)

    def _taken_back(self, keys: list[ShareKey], now: int, effects: list[Effect]) -> None:
        """Store what was taken back from members, and offer it to others."""
        for key in keys:
            self._shares.locked(key)
        try:
            self._shares.store(keys)
        except StorageError as error:  # it holds nevertheless, and is stored with the next change
            self._faults.note(f"what members of share groups released is not stored: {error}")
        for key in keys:
            queue = self._places.queue_of((key.topic_id, key.partition))
            if not isinstance(queue, ShareFault):
                self._wake((queue.topic, queue.queue_id), key.group, now, effects)

    @property
    def next_at(self) -> int | None:
        woken_at = self._answered_at + 1 if self._woken else None
        times = (woken_at, self._parked.next_at, self._shares.next_at)
        return min((at for at in times if at is not None), default=None)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Take back what was locked for too long, and answer those that waited long enough."""
        expired = []
        for key in self._shares.due(now):
            partition = self._shares.get(key)
            limits = self._shares.limits(key.group)
            if partition is not None:
                partition.expire(limits, self._shares.time(now))
                expired.append(key)
        self._taken_back(expired, now, effects)
        self._woken.extend(self._parked.due(now))
        self._answer_woken(now, effects)

    def _answer_woken(self, now: int, effects: list[Effect]) -> None:
        """Answer as many as may be answered now."""
        if now != self._answered_at:
            self._answered_at, self._may_answer, self._effort = now, WOKEN_MAX, Effort(SLICE)
        for _ in range(len(self._woken)):
            if not self._may_answer or self._effort.left <= 0:
                return
            fetch = self._woken.popleft()
            if not fetch.call.is_gone:
                self._may_answer -= 1
                self._attempt(fetch, self._effort, now, effects)

    # -- answering -------------------------------------------------------------------------------

    def _attempt(self, fetch: ShareFetch, effort: Effort, now: int, effects: list[Effect]) -> None:
        """Answer a fetch if there is enough, or its time is over; otherwise it waits."""
        if fetch.error:
            fetch.call.answer(ShareFetchResponse(0, fetch.error), effects)
            return
        self._renew(fetch)
        if self._sessions.get(fetch.session) is not fetch.begun:
            fetch.places = []  # its member has ended the session, or begun another one
        wants = fetch.wanted.count > 0 and fetch.max_bytes > 0 and bool(fetch.places)
        is_over = now >= fetch.due_at or not wants or self._must_tell(fetch)
        if not is_over and not self._acquiring.has_enough(fetch):
            is_over = not self._parked.park(fetch, fetch.due_at)
            if not is_over:
                return
        found = self._acquiring.acquire(fetch, effort, now) if wants else {}
        if wants and not found and effort.left <= 0:
            self._woken.append(fetch)  # there is more to convert than may be now
            return
        if found or is_over or self._must_tell(fetch) or not self._parked.park(fetch, fetch.due_at):
            self._give(fetch, found, effects)

    def _renew(self, fetch: ShareFetch) -> None:
        """Look the partitions of a fetch up again."""
        kept = []
        for place in fetch.places:
            fault = self._places.renew(place)
            if fault is None:
                kept.append(place)
            else:
                fetch.faults[place.key.topic_id, place.key.partition] = fault
        fetch.places = kept

    def _must_tell(self, fetch: ShareFetch) -> bool:
        """Return whether a fetch has an error that does not last."""
        return any(fault.code not in LASTING for fault in fetch.faults.values())

    def _give(
        self, fetch: ShareFetch, found: dict[Place, SharePartitionData], effects: list[Effect]
    ) -> None:
        lock_ms = self._shares.limits(fetch.group).lock_ms
        answer = fetch_answer(fetch, found, lock_ms, self._places)
        if fetch.outcomes:
            self._durability.answer(fetch.call, answer, effects)
        else:
            fetch.call.answer(answer, effects)

    def check(self) -> None:
        self._parked.check()
        self._acquiring.check()
        self._sessions.check()
        self._shares.check()


def _wait_ms(request: ShareFetchRequest) -> int:
    return min(max(request.max_wait_ms, 0), WAIT_MS_MAX)


def _renewal_fault(request: ShareFetchRequest) -> str:
    """Return what a renewal may not ask for; empty if it does not."""
    if not request.is_renew_ack:
        return ""
    names = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    faults = [f"{name} must be set to 0, " for name, value in names.items() if value]
    return "".join([*faults, "if isRenewAck is true."]) if faults else ""
