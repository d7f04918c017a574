"""Records of a share partition: who gets which, for how long, and what becomes of them."""

from __future__ import annotations

import msgspec
import pytest
from tests.edges import assert_every_edge

from steelyard.nodes.broker.kafka.shares.in_flight import DELIVERY, InFlight, RecordState
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
    is_sound,
)
from steelyard.nodes.broker.kafka.shares.stored import (
    KeptSharePartition,
    SharePartitionRow,
    _restored,
    _row,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_data import AcknowledgementBatch, AcquiredRecords

NOW = 1_000_000
LIMITS = ShareLimits(records_max=1_000, deliveries_max=5, lock_ms=30_000)
TENS = [(first, first + 9) for first in range(0, 200, 10)]
"""Twenty batches of ten records."""

Got = list[tuple[int, int, int]]


class Rig:
    """A share partition of a log that has batches of ten records, and members `a` and `b`."""

    def __init__(self, start: int = 0, limits: ShareLimits = LIMITS) -> None:
        self.partition = SharePartition(start)
        self.limits = limits
        self.now = NOW
        self.batches = list(TENS)
        self.empty: list[tuple[int, int]] = []

    def get(
        self, count: int, member: str = "a", size: int = 500, *, record_limit: bool = False
    ) -> Got:
        """What a fetch acquires: (first, last, delivery)."""
        offset = self.partition.next_offset()
        seen = [batch for batch in self.batches if batch[1] >= offset]
        if not seen or not self.partition.can_acquire(self.limits):
            return []
        read = BatchesRead(offset, seen, self.empty)
        wanted = Wanted(member, count, size, record_limit)
        acquired = self.partition.acquire(wanted, read, self.limits, self.now)
        self.partition.check()
        return [(one.first_offset, one.last_offset, one.delivery_count) for one in acquired]

    def tell(self, first: int, last: int, *kinds: int, member: str = "a") -> None:
        batch = AcknowledgementBatch(first, last, kinds)
        self.partition.acknowledge(member, [batch], self.limits, self.now)
        self.partition.check()

    def refused(self, first: int, last: int, *kinds: int, member: str = "a") -> ErrorCode:
        before = self.partition.copy()
        with pytest.raises(AcknowledgementRefused) as caught:
            self.tell(first, last, *kinds, member=member)
        assert self.partition.copy() == before, "a refused acknowledgement has changed something"
        return caught.value.code

    def states(self) -> list[tuple[int, int, str, int]]:
        return [(run.first, run.last, run.state, run.count) for run in self.partition.runs]

    def restarted(self) -> None:
        """Read back what would be in the table."""
        kept = KeptSharePartition("t", self.partition)
        row = msgspec.json.decode(_row(kept), type=SharePartitionRow)
        self.partition = _restored(row).partition
        self.partition.check()


# -- acquiring -------------------------------------------------------------------------------------


def test_a_fetch_gets_whole_batches_unless_it_sets_a_limit() -> None:
    rig = Rig()
    assert rig.get(15) == [(0, 19, 1)]
    assert rig.get(15, "b", record_limit=True) == [(20, 34, 1)]
    assert rig.get(1, "b") == [(35, 39, 1)]


def test_acquired_records_come_in_batches_of_the_size_asked_for() -> None:
    rig = Rig()
    assert rig.get(50, size=20) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]
    assert [run.batch_size for run in rig.partition.runs] == [20, 20, 10]


def test_a_group_may_begin_in_the_middle_of_a_batch() -> None:
    assert Rig(start=13).get(20) == [(13, 39, 1)]


def test_nobody_gets_what_another_has() -> None:
    rig = Rig()
    rig.get(20)
    assert rig.get(10, "b") == [(20, 29, 1)]
    rig.tell(5, 9, RELEASE)
    assert rig.get(10, "b") == [(5, 9, 2), (30, 39, 1)]


def test_a_released_run_is_cut_at_a_batchs_end() -> None:
    rig = Rig()
    rig.get(100)
    rig.tell(0, 99, RELEASE)
    assert rig.get(15, "b") == [(0, 19, 2)]
    assert rig.get(5, "a", record_limit=True) == [(20, 24, 2)]


def test_only_so_many_records_are_in_flight() -> None:
    limits = ShareLimits(records_max=30, deliveries_max=5, lock_ms=1_000)
    rig = Rig(limits=limits)
    assert rig.get(20) == [(0, 19, 1)]
    assert rig.get(20, "b") == [(20, 29, 1)]
    assert rig.get(20) == []
    rig.tell(5, 9, RELEASE)  # those in between may be had, although nothing new may
    assert rig.get(20, "b") == [(5, 9, 2)]
    rig.tell(0, 4, ACCEPT)
    assert rig.get(20, "b") == [(30, 39, 1)]


def test_what_has_nothing_to_deliver_is_passed_over() -> None:
    rig = Rig()
    rig.empty = [(10, 19), (30, 39)]
    assert rig.get(40) == [(0, 9, 1), (20, 29, 1), (40, 59, 1)]
    rig.tell(0, 9, ACCEPT)
    assert rig.partition.start == 20
    rig.batches = [batch for batch in TENS if batch[0] >= 80]  # compaction removed the others
    assert rig.get(10) == [(80, 89, 1)]
    rig.tell(20, 29, ACCEPT)
    rig.tell(40, 59, ACCEPT)
    assert rig.partition.start == 80


def test_an_empty_log_end_moves_the_start() -> None:
    rig = Rig()
    rig.batches, rig.empty = TENS[:2], TENS[:2]
    assert rig.get(10) == []
    assert (rig.partition.start, rig.partition.end) == (20, 20)


# -- acknowledging ---------------------------------------------------------------------------------


def test_the_start_follows_what_is_finished() -> None:
    rig = Rig()
    rig.get(30)
    rig.tell(10, 19, ACCEPT)
    assert (rig.partition.start, rig.partition.finished) == (0, 10)
    rig.tell(0, 9, *[ACCEPT, REJECT] * 5)
    assert (rig.partition.start, rig.partition.finished) == (20, 0)
    rig.tell(20, 29, GAP)
    assert (rig.partition.start, rig.partition.end) == (30, 30)


@pytest.mark.parametrize(
    ("first", "last", "kinds", "member", "error"),
    [
        (0, 9, (ACCEPT,), "b", ErrorCode.INVALID_RECORD_STATE),
        (0, 40, (ACCEPT,), "a", ErrorCode.INVALID_REQUEST),
        (15, 25, (ACCEPT,), "a", ErrorCode.INVALID_RECORD_STATE),
        (8, 12, (ACCEPT, ACCEPT, RELEASE, ACCEPT, REJECT), "a", ErrorCode.INVALID_RECORD_STATE),
        (20, 29, (ACCEPT,), "a", ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_what_is_refused_changes_nothing(
    first: int, last: int, kinds: tuple[int, ...], member: str, error: ErrorCode
) -> None:
    """`a` has 0-9 and had 10-19, `b` has 20-29."""
    rig = Rig()
    rig.get(20)
    rig.tell(10, 19, ACCEPT)
    rig.get(10, "b")
    assert rig.refused(first, last, *kinds, member=member) is error


def test_what_lies_before_the_start_is_passed_over() -> None:
    """1. A lock times out. 2. Another member accepts the records, which moves the start on.

    Who comes too late is not told so then, as in Kafka (SharePartition.acknowledge of 4.3.1).
    """
    rig = Rig()
    rig.get(10)
    rig.now += 30_000
    rig.partition.expire(LIMITS, rig.now)
    rig.get(20, "b")
    rig.tell(0, 9, ACCEPT, member="b")
    assert rig.partition.start == 10
    rig.tell(0, 9, ACCEPT)
    rig.tell(3, 4, RENEW, ACCEPT)
    assert (rig.partition.start, rig.partition.finished) == (10, 0)
    assert rig.refused(5, 19, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    rig.tell(5, 19, ACCEPT, member="b")  # of which the rest was not finished yet
    assert rig.partition.start == 20


def test_acknowledgements_of_what_the_log_lost_are_accepted() -> None:
    rig = Rig()
    rig.get(30)
    assert rig.partition.bound(15, 200)
    rig.tell(0, 14, ACCEPT)
    rig.tell(0, 19, ACCEPT)
    assert rig.partition.start == 20
    assert not rig.partition.bound(15, 200)


@pytest.mark.parametrize(
    ("batches", "renews", "sound"),
    [
        ([(0, 9, [1])], False, True),
        ([(0, 1, [1, 3]), (5, 5, [0])], False, True),
        ([(0, 9, [])], False, False),
        ([(0, 9, [1, 1])], False, False),
        ([(9, 0, [1])], False, False),
        ([(5, 9, [1]), (0, 4, [1])], False, False),
        ([(0, 0, [1]), (0, 0, [1])], False, False),
        ([(0, 0, [5])], False, False),
        ([(0, 0, [-1])], False, False),
        ([(0, 0, [4])], False, False),
        ([(0, 0, [4])], True, True),
        ([(-1, 0, [1])], False, False),
    ],
)
def test_what_can_be_meant(
    batches: list[tuple[int, int, list[int]]], renews: bool, sound: bool
) -> None:
    made = [AcknowledgementBatch(*each) for each in batches]
    assert is_sound(made, renews=renews) is sound


# -- deliveries ------------------------------------------------------------------------------------


def test_a_record_is_archived_after_its_last_delivery() -> None:
    rig = Rig(limits=ShareLimits(records_max=100, deliveries_max=2, lock_ms=1_000))
    rig.batches = [(0, 0)]
    for delivery in (1, 2):
        assert rig.get(1) == [(0, 0, delivery)]
        rig.tell(0, 0, RELEASE)
    assert rig.get(1) == []
    assert rig.partition.start == 1


def test_suspicious_records_come_in_ever_smaller_numbers_at_last_alone() -> None:
    rig = Rig()
    rig.get(100, size=100)
    numbers = []
    for _ in range(4):
        rig.partition.release("a", rig.limits)
        got = rig.get(100, size=100)
        numbers.append(sum(last - first + 1 for first, last, _ in got))
    assert numbers == [100, 100, 50, 1]
    rig.partition.release("a", rig.limits)
    assert rig.states()[0] == (1, 49, "available", 4)


def test_a_lock_times_out_unless_it_is_renewed() -> None:
    rig = Rig()
    rig.get(10)
    rig.now += 20_000
    rig.tell(0, 4, RENEW)
    assert rig.partition.next_at == NOW + 30_000
    rig.now = NOW + 30_000
    assert rig.partition.expire(rig.limits, rig.now)
    assert rig.states() == [(0, 4, "acquired", 1), (5, 9, "available", 1)]
    assert rig.refused(5, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert rig.partition.next_at == NOW + 50_000
    assert not rig.partition.expire(rig.limits, rig.now)


def test_a_group_may_forbid_renewals() -> None:
    rig = Rig(limits=ShareLimits(100, 5, 1_000, renews=False))
    rig.get(10)
    assert rig.refused(0, 9, RENEW) is ErrorCode.INVALID_RECORD_STATE


# -- restarts and the log's ends -------------------------------------------------------------------


def test_after_a_restart_others_may_have_what_was_acquired() -> None:
    rig = Rig()
    rig.get(40)
    rig.tell(0, 9, RELEASE)
    rig.tell(20, 29, ACCEPT)
    assert rig.get(10, "b") == [(0, 9, 2)]
    rig.restarted()
    assert rig.states() == [
        (0, 9, "available", 1),
        (10, 19, "available", 0),
        (20, 29, "acknowledged", 1),
    ]
    assert rig.partition.end == 30, "what was never acknowledged is as if it was not fetched"
    assert rig.get(40) == [(0, 9, 2), (10, 19, 1), (30, 49, 1)]


def test_the_log_may_begin_later_and_end_earlier() -> None:
    rig = Rig()
    rig.get(60)
    assert rig.partition.bound(25, 45)
    assert (rig.partition.start, rig.partition.end) == (25, 45)
    assert rig.partition.bound(0, 10)
    assert (rig.partition.start, rig.partition.end) == (10, 10)
    assert rig.partition.bound(50, 90)
    assert (rig.partition.start, rig.partition.end) == (50, 50)


def test_every_edge_of_the_table() -> None:
    def scenario() -> None:
        rig = Rig(limits=ShareLimits(1_000, 2, 1_000))
        rig.empty = [(0, 9)]
        rig.get(30)
        rig.tell(10, 14, RENEW)
        rig.tell(10, 14, REJECT)
        rig.tell(15, 19, ACCEPT)
        rig.tell(20, 24, RELEASE)
        rig.get(5)
        rig.tell(20, 22, ACCEPT)
        rig.tell(24, 24, RELEASE)
        rig.tell(25, 25, RELEASE)
        rig.tell(26, 26, ACCEPT)
        rig.tell(29, 29, REJECT)
        rig.restarted()
        rig.batches = [(28, 200)]
        rig.get(1)

    assert_every_edge(DELIVERY, scenario)


def test_a_run_knows_its_size() -> None:
    assert InFlight(3, 7, RecordState.ARCHIVED).size == 5
    assert AcquiredRecords(1, 2, 3).delivery_count == 3
