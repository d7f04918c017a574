"""How far a batch reads: whatever queues, limits and crashes there are, every offset is read once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.spark.offsets import QueueName, backlogs
from steelyard.spark.reading.admission import Admission

QUEUES = st.tuples(st.just("T"), st.sampled_from(["a", "b"]), st.integers(0, 5))
GROWTH = st.dictionaries(QUEUES, st.integers(1, 50), max_size=6)
A, B = ("T", "a", 0), ("T", "a", 1)
NO_LIMIT = 1 << 63


@given(st.lists(st.tuples(GROWTH, st.sets(QUEUES)), max_size=12), st.integers(1, 60))
def test_every_offset_is_in_one_batch(
    steps: list[tuple[dict[QueueName, int], set[QueueName]]], most: int
) -> None:
    """Queues appear and grow, and brokers are away for a while: ranges follow each other without gap or overlap."""
    admission = Admission(None, 0)
    latest: dict[QueueName, int] = {}
    position: dict[QueueName, int] = {}
    read: dict[QueueName, list[tuple[int, int]]] = {}

    def step(seen: dict[QueueName, int]) -> bool:
        nonlocal position
        new = {queue: 0 for queue in seen if queue not in position}
        end = admission.end(position, seen, new, most=most, now=0)
        assert end.keys() == position.keys() | seen.keys()
        assert sum(backlogs(position, end).values()) <= most
        for queue in backlogs(position, end):
            read.setdefault(queue, []).append((position[queue], end[queue]))
        changed = end != position
        position = end
        return changed

    for grown, away in steps:
        for queue, count in grown.items():
            latest[queue] = latest.get(queue, 0) + count
        step({queue: at for queue, at in latest.items() if queue not in away})
    while step(latest):
        pass
    assert position == latest
    for queue, ranges in read.items():
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == latest[queue]


def test_a_new_queue_begins_before_it_is_read() -> None:
    admission = Admission(None, 0)
    first = admission.end({A: 5}, {A: 7, B: 9}, {B: 3}, most=NO_LIMIT, now=0)
    assert first == {A: 7, B: 3}
    assert admission.end(first, {A: 7, B: 9}, {}, most=NO_LIMIT, now=0) == {A: 7, B: 9}


def test_a_queue_cut_off_at_its_end_goes_back() -> None:
    assert Admission(None, 0).end({A: 9}, {A: 4}, {}, most=1, now=0) == {A: 4}


def test_too_little_waits_for_more_or_for_its_time() -> None:
    admission = Admission(10, 1_000)

    def end(start: int, latest: int, now: int, *, may_wait: bool = True) -> int:
        found = admission.end(
            {A: start}, {A: latest}, {}, most=NO_LIMIT, now=now, may_wait=may_wait
        )
        return found[A]

    assert end(0, 3, 0) == 3  # the first batch does not wait
    assert end(3, 9, 500) == 3
    assert end(3, 13, 600) == 13  # enough
    assert end(13, 14, 1_599) == 13
    assert end(13, 14, 1_600) == 14  # long enough
    assert end(14, 15, 1_700, may_wait=False) == 15
    assert end(15, 16, 1_800) == 15
