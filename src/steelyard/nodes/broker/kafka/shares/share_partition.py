"""A share partition: which records of a partition a share group has to read, and who has them.

All before `start` is finished. From there to `end` records are in flight (`in_flight`); what is
behind has not been fetched yet. Members acquire records for a time, and acknowledge them; if they
do not, others may have them. An acknowledgement is accepted as a whole, or changes nothing.

Records are acquired up to a number: with `record_limit` no more than that, otherwise (to send
batches as they are) the rest of the last batch as well. Records that were delivered half as often
as is allowed are delivered with ever fewer others, at last alone, so that one bad record does not
archive its neighbours.

Apache Kafka keeps the records in flight by batches as they were fetched, and a state for each
record where they differ; here they are runs of records with the same state. So a released run that
is longer than a fetch wants is cut at a batch's end, where Kafka gives all of it.
Source: core/kafka/server/share/SharePartition.java, KIP-932, KIP-1206 (record limit), KIP-1222
(renewals).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import msgspec

from steelyard.nodes.broker.kafka.shares.in_flight import (
    InFlight,
    RecordEvent,
    RecordState,
    fetched,
    skipped,
)
from steelyard.nodes.broker.kafka.shares.runs import InFlightRuns
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_data import AcknowledgementBatch, AcquiredRecords

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgement. Source: AcknowledgeType.java."""

_EVENTS = {
    GAP: RecordEvent.REJECTED,
    ACCEPT: RecordEvent.ACCEPTED,
    RELEASE: RecordEvent.RELEASED,
    REJECT: RecordEvent.REJECTED,
}

TRUSTED_DELIVERIES = 2
"""After so many deliveries, at least, records may be delivered in smaller numbers.

Source: SharePartition.MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT.
"""

OffsetRange = tuple[int, int]
"""The first and the last of some offsets."""

Concerns = Callable[[InFlight], bool]


class AcknowledgementRefused(Exception):  # noqa: N818  # an outcome of a request
    """Raised if an acknowledgement is not accepted; then nothing has changed."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ShareLimits(msgspec.Struct, frozen=True):
    """What applies to a group's records now.

    `records_max`: most in flight; `deliveries_max`: of one record; `lock_ms`: for which one is
    acquired. `renews`: members may renew that time.
    """

    records_max: int
    deliveries_max: int
    lock_ms: int
    renews: bool = True


class Wanted(msgspec.Struct, frozen=True):
    """What a fetch of a member wants: `count` records, in acquired batches of `batch_size`."""

    member: str
    count: int
    batch_size: int
    record_limit: bool = False


class BatchesRead(msgspec.Struct, frozen=True):
    """What a read from `offset` on found: the offsets of each batch, in order.

    `empty`: of those in which there is nothing to deliver.
    """

    offset: int
    batches: Sequence[OffsetRange]
    empty: Sequence[OffsetRange] = ()

    @property
    def last(self) -> int:
        return self.batches[-1][1]

    def batch_end(self, offset: int) -> int:
        """Return the last offset of the batch that holds an offset."""
        index = bisect_left(self.batches, offset, key=lambda batch: batch[1])
        if index < len(self.batches) and self.batches[index][0] <= offset:
            return self.batches[index][1]
        return offset


class SharePartition:
    """See the module docstring. `epoch`: how often its start was set by an operator."""

    def __init__(self, start: int, epoch: int = 0, runs: Iterable[InFlight] = ()) -> None:
        self.epoch = epoch
        self._runs = InFlightRuns(start, runs)
        self._runs.drop_final()

    @property
    def start(self) -> int:
        """Return the first offset that is not finished."""
        return self._runs.start

    @property
    def end(self) -> int:
        """Return the first offset that was never fetched."""
        return self._runs.end

    @property
    def runs(self) -> Iterable[InFlight]:
        return iter(self._runs)

    @property
    def finished(self) -> int:
        """Return how many records in flight are accepted or archived."""
        return sum(run.size for run in self._runs if run.is_final)

    def next_offset(self) -> int:
        """Return the first offset that can be acquired."""
        available = (run.first for run in self._runs if run.state is RecordState.AVAILABLE)
        return next(available, self.end)

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Return whether a record can be acquired, if there is one at `next_offset`."""
        return self.next_offset() < self.end or self.end - self.start < limits.records_max

    @property
    def next_at(self) -> int | None:
        """Return when the next lock times out."""
        return min(
            (run.locked_until for run in self._runs if run.state is RecordState.ACQUIRED),
            default=None,
        )

    # -- acquiring -------------------------------------------------------------------------------

    def acquire(
        self, wanted: Wanted, read: BatchesRead, limits: ShareLimits, now: int
    ) -> list[AcquiredRecords]:
        """Acquire records of what was read, from `next_offset` on."""
        last = read.last
        count = min(wanted.count, limits.records_max - (self.end - self.start))
        if count <= 0:
            count, last = min(wanted.count, self.end - read.offset), min(last, self.end - 1)
        if count <= 0 or last < self.start:
            return []
        self._skip(read, last)
        taking = _Taking(self._runs, wanted, read, limits, now, count)
        taking.take_again(last)
        if last >= self.end:
            taking.take_new(last)
        self._runs.drop_final()
        return taking.acquired

    def _skip(self, read: BatchesRead, last: int) -> None:
        """Archive the offsets at which there is nothing to deliver."""
        first = read.batches[0][0]
        if read.offset < first:
            self._archive(read.offset, min(first - 1, last))
        for begin, end in read.empty:
            if begin <= min(self.end - 1, last):
                self._archive(max(begin, self.start), min(end, self.end - 1, last))
        self._runs.drop_final()

    def _archive(self, first: int, last: int) -> None:
        """Archive what is available from `first` to `last`, and what was not fetched yet."""
        if first > last:
            return
        if first < self.end:
            self._runs.change(first, min(last, self.end - 1), _skip_available)
        if last >= self.end:
            self._runs.append(skipped(self.end, last))

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self,
        member: str,
        batches: Iterable[AcknowledgementBatch],
        limits: ShareLimits,
        now: int,
    ) -> None:
        """Apply a member's acknowledgements. Raises AcknowledgementRefused."""
        before = self._runs.copy()
        try:
            for batch in batches:
                for first, last, kind in _by_type(batch):
                    self._acknowledge(member, max(first, self.start), last, kind, limits, now)
        except AcknowledgementRefused:
            self._runs.restore(before)
            raise
        self._runs.drop_final()

    def _acknowledge(
        self, member: str, first: int, last: int, kind: int, limits: ShareLimits, now: int
    ) -> None:
        if last < first:
            return  # finished meanwhile, because the log begins later now
        if last >= self.end:
            raise AcknowledgementRefused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        if kind == RENEW and not limits.renews:
            text = "Renewing acquisition locks is not enabled for the group."
            raise AcknowledgementRefused(ErrorCode.INVALID_RECORD_STATE, text)
        for run in self._runs.between(first, last):
            if run.state is not RecordState.ACQUIRED:
                text = "The batch cannot be acknowledged. The batch is not in the acquired state."
                raise AcknowledgementRefused(ErrorCode.INVALID_RECORD_STATE, text)
            if run.member != member:
                text = "Member is not the owner of batch record"
                raise AcknowledgementRefused(ErrorCode.INVALID_RECORD_STATE, text)
        if kind == RENEW:
            until = now + limits.lock_ms
            self._runs.change(first, last, lambda run: run.renewed(until))
            return
        event = _EVENTS[kind]
        self._runs.change(first, last, lambda run: run.ended(event, limits.deliveries_max))

    # -- what ends acquisitions ------------------------------------------------------------------

    def release(self, member: str, limits: ShareLimits) -> bool:
        """Take from a member what it has acquired; return whether that was anything."""
        return self._take_back(lambda run: run.member == member, limits)

    def expire(self, limits: ShareLimits, now: int) -> bool:
        """Take back what was acquired for too long; return whether there was any."""
        return self._take_back(lambda run: run.locked_until <= now, limits)

    def _take_back(self, concerns: Concerns, limits: ShareLimits) -> bool:
        deliveries_max = limits.deliveries_max
        found = False

        def released(run: InFlight) -> InFlight:
            nonlocal found
            if run.state is not RecordState.ACQUIRED or not concerns(run):
                return run
            found = True
            return run.ended(RecordEvent.RELEASED, deliveries_max)

        self._runs.replace_all(released)
        self._runs.drop_final()
        return found

    def bound(self, log_start: int, log_end: int) -> bool:
        """Forget what the log does not have; return whether that was anything.

        It may begin later (retention, DeleteRecords), or end earlier (after a power failure).
        """
        before = self.start, self.end
        if log_end < self.end:
            self._runs.end_at(log_end)
        if self.start < log_start:
            self._runs.begin_at(log_start)
        self._runs.drop_final()
        return (self.start, self.end) != before

    # -- keeping ---------------------------------------------------------------------------------

    def copy(self) -> tuple[int, Sequence[InFlight]]:
        """Return what `restore` takes back, if the disk does not keep a change."""
        return self._runs.copy()

    def restore(self, copied: tuple[int, Sequence[InFlight]]) -> None:
        self._runs.restore(copied)

    def check(self) -> None:
        self._runs.check()
        for run in self._runs:
            is_acquired = run.state is RecordState.ACQUIRED
            assert is_acquired == bool(run.member) == bool(run.locked_until)


class _Taking:
    """One acquisition: `left` records may still be taken."""

    def __init__(
        self,
        runs: InFlightRuns,
        wanted: Wanted,
        read: BatchesRead,
        limits: ShareLimits,
        now: int,
        count: int,
    ) -> None:
        self.acquired: list[AcquiredRecords] = []
        self._runs = runs
        self._wanted = wanted
        self._read = read
        self._until = now + limits.lock_ms
        self._deliveries_max = limits.deliveries_max
        self._left = count

    def take_again(self, last: int) -> None:
        """Take available records that were in flight before, up to `last`."""
        first = max(self._read.offset, self._runs.start)
        for run in self._runs.between(first, min(last, self._runs.end - 1)):
            if self._left <= 0:
                return
            if run.state is not RecordState.AVAILABLE:
                continue
            most = self._deliverable(run)
            if most is not None and self.acquired:
                self._left = 0
                return
            until = min(run.last, self._cut(run.first))
            if most is not None:
                until = min(until, run.first + min(most, self._left) - 1)
            self._runs.change(
                run.first, until, lambda one: one.acquired(self._wanted.member, self._until)
            )
            self._note_again(run.first, until, run.count + 1)
            self._left = 0 if most is not None else self._left - (until - run.first + 1)

    def _deliverable(self, run: InFlight) -> int | None:
        """Return how many records of a run may be delivered together; None if all."""
        most = self._deliveries_max
        suspect_from = max(TRUSTED_DELIVERIES, -(-most // 2))
        if run.count < suspect_from:
            return None
        if most > TRUSTED_DELIVERIES and run.count >= most - 1:
            return 1
        return max(1, run.batch_size >> (run.count - suspect_from + 1))

    def take_new(self, last: int) -> None:
        """Take records that were not in flight, up to `last`, and pass over what is empty.

        Batches are acquired together until there are `batch_size` records.
        """
        empty = {begin for begin, _ in self._read.empty}
        begun = at = self._runs.end
        for base, end in self._read.batches:
            first, until = max(base, at), min(end, last)
            if until < first:
                continue
            if self._left <= 0:
                break
            if base in empty or first > at or first - begun >= self._wanted.batch_size:
                self._take(begun, at - 1)
                if first > at:
                    self._runs.append(skipped(at, first - 1))
                begun = first
            if base in empty:
                self._runs.append(skipped(first, until))
                begun = until + 1
            else:
                until = min(until, self._cut(first))
                self._left -= until - first + 1
            at = until + 1
        self._take(begun, at - 1)

    def _take(self, first: int, last: int) -> None:
        if last >= first:
            self._runs.append(fetched(first, last, self._wanted.member, self._until))
            self.acquired.append(AcquiredRecords(first, last, 1))

    def _cut(self, first: int) -> int:
        """Return the last offset that may be taken if the next taken is `first`."""
        last = first + self._left - 1
        return last if self._wanted.record_limit else self._read.batch_end(last)

    def _note_again(self, first: int, last: int, count: int) -> None:
        """Tell what was acquired again, joined with what is just before it."""
        if self.acquired:
            before = self.acquired[-1]
            if before.last_offset + 1 == first and before.delivery_count == count:
                first = before.first_offset
                self.acquired.pop()
        self.acquired.append(AcquiredRecords(first, last, count))


def _skip_available(run: InFlight) -> InFlight:
    if run.state is not RecordState.AVAILABLE:
        return run
    return run.ended(RecordEvent.SKIPPED, 0)


def _by_type(batch: AcknowledgementBatch) -> Iterable[tuple[int, int, int]]:
    """Yield (first, last, type) of an acknowledgement that passed `is_sound`."""
    types = batch.acknowledge_types
    if len(types) == 1:
        yield batch.first_offset, batch.last_offset, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield batch.first_offset + begin, batch.first_offset + at - 1, types[begin]
            begin = at


def is_sound(batches: Iterable[AcknowledgementBatch], *, renews: bool) -> bool:
    """Return whether acknowledgements can be meant: in order, with a known type for each offset.

    `renews`: the request says that there may be renewals.
    Source: KafkaApis.validateAcknowledgementBatches.
    """
    before = -1
    for batch in batches:
        types, span = batch.acknowledge_types, batch.last_offset - batch.first_offset
        if span < 0 or batch.first_offset <= before or len(types) not in (1, span + 1):
            return False
        if any(not GAP <= kind <= RENEW or (kind == RENEW and not renews) for kind in types):
            return False
        before = batch.last_offset
    return True
