"""The laws of share partitions, under any sequence of fetches, acknowledgements, time-outs and restarts.

1. A record that a member has acquired is given to nobody else before its lock ends.
2. A record that was accepted or rejected is never delivered again.
3. A record is delivered as often as is allowed, at most.
4. In the end every record that the log still has was delivered.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from steelyard.nodes.broker.kafka.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementRefused,
    BatchesRead,
    ShareLimits,
    SharePartition,
    Wanted,
)
from steelyard.nodes.broker.kafka.shares.stored import (
    KeptSharePartition,
    SharePartitionRow,
    _restored,
    _row,
)
from steelyard.wire.kafka.messages.share_data import AcknowledgementBatch

MEMBERS = ["a", "b", "c"]
members = st.sampled_from(MEMBERS)
LOCK_MS = 100


class Shared(RuleBasedStateMachine):
    """A log of batches, of which some are empty, and the records that members have."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = SharePartition(0)
        self.limits = ShareLimits(40, 3, LOCK_MS)
        self.batches: list[tuple[int, int]] = []
        self.empty: list[tuple[int, int]] = []
        self.log_start = 0
        self.now = 1_000
        self.held: dict[int, tuple[str, int]] = {}
        """By offset: who has it, and until when."""
        self.finished: set[int] = set()
        self.deliveries: dict[int, int] = {}
        self.stored = SharePartition(0)

    @property
    def log_end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    @initialize(deliveries=st.integers(2, 5), most=st.integers(5, 60))
    def begin(self, deliveries: int, most: int) -> None:
        self.limits = ShareLimits(most, deliveries, LOCK_MS)

    @rule(size=st.integers(1, 12), is_empty=st.integers(0, 5))
    def append(self, size: int, is_empty: int) -> None:
        batch = (self.log_end, self.log_end + size - 1)
        self.batches.append(batch)
        if not is_empty:
            self.empty.append(batch)

    @rule(member=members, count=st.integers(1, 30), size=st.integers(1, 20), limit=st.booleans())
    def fetch(self, member: str, count: int, size: int, limit: bool) -> None:
        self.partition.bound(self.log_start, self.log_end)
        offset = self.partition.next_offset()
        seen = [batch for batch in self.batches if batch[1] >= offset]
        if not seen or not self.partition.can_acquire(self.limits):
            return
        acquired = self.partition.acquire(
            Wanted(member, count, size, limit),
            BatchesRead(offset, seen, self.empty),
            self.limits,
            self.now,
        )
        got = 0
        for some in acquired:
            for record in range(some.first_offset, some.last_offset + 1):
                got += 1
                assert record >= self.log_start
                assert not any(first <= record <= last for first, last in self.empty)
                assert record not in self.held, "two members have a record"
                assert record not in self.finished, "a finished record is delivered"
                self.held[record] = (member, self.now + LOCK_MS)
                self.deliveries[record] = max(
                    self.deliveries.get(record, 0) + 1, some.delivery_count
                )
                assert some.delivery_count <= self.limits.deliveries_max
        assert not limit or got <= count

    @precondition(lambda self: self.held)
    @rule(data=st.data(), kind=st.sampled_from([GAP, ACCEPT, RELEASE, REJECT, RENEW]))
    def acknowledge(self, data: st.DataObject, kind: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.held)))
        member = self.held[first][0]
        last = first
        while self.held.get(last + 1, ("", 0))[0] == member and data.draw(st.booleans()):
            last += 1
        batch = AcknowledgementBatch(first, last, [kind])
        self.partition.acknowledge(member, [batch], self.limits, self.now)
        for record in range(first, last + 1):
            if kind == RENEW:
                self.held[record] = (member, self.now + LOCK_MS)
                continue
            del self.held[record]
            if kind != RELEASE:
                self.finished.add(record)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), member=members)
    def acknowledge_what_another_has(self, data: st.DataObject, member: str) -> None:
        record = data.draw(st.sampled_from(sorted(self.held)))
        if self.held[record][0] == member:
            return
        batch = AcknowledgementBatch(record, record, [ACCEPT])
        try:
            self.partition.acknowledge(member, [batch], self.limits, self.now)
        except AcknowledgementRefused:
            return
        raise AssertionError("it was accepted")

    @rule(member=members)
    def leave(self, member: str) -> None:
        self.partition.release(member, self.limits)
        self.held = {one: held for one, held in self.held.items() if held[0] != member}

    @rule(passed=st.integers(1, LOCK_MS))
    def wait(self, passed: int) -> None:
        self.now += passed
        if self.partition.next_at is not None and self.partition.next_at <= self.now:
            self.partition.expire(self.limits, self.now)
        self.held = {one: held for one, held in self.held.items() if held[1] > self.now}

    @rule(share=st.integers(0, 100))
    def begin_the_log_later(self, share: int) -> None:
        self.log_start += (self.log_end - self.log_start) * share // 100
        self.partition.bound(self.log_start, self.log_end)
        self.held = {one: held for one, held in self.held.items() if one >= self.log_start}

    @rule()
    def restart(self) -> None:
        row = _row(KeptSharePartition("t", self.partition))
        self.partition = _restored(msgspec.json.decode(row, type=SharePartitionRow)).partition
        self.held = {}

    @invariant()
    def consistent(self) -> None:
        self.partition.check()
        for record in self.held:
            assert self.partition.start <= record < self.partition.end

    def teardown(self) -> None:
        """All members leave, and one reads to the end."""
        for member in MEMBERS:
            self.leave(member)
        for _ in range(5 * len(self.batches) * self.limits.deliveries_max + 10):
            self.fetch("a", 30, 10, False)
            for record in sorted(self.held):
                batch = AcknowledgementBatch(record, record, [ACCEPT])
                self.partition.acknowledge("a", [batch], self.limits, self.now)
                self.finished.add(record)
            self.held = {}
        there = {
            record
            for first, last in self.batches
            if (first, last) not in self.empty
            for record in range(max(first, self.log_start), last + 1)
        }
        assert there <= self.deliveries.keys(), "a record was never delivered"
        assert self.partition.start == max(self.log_end, self.log_start)


Shared.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40)
TestShared = Shared.TestCase
