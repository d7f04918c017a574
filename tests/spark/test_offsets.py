"""The arithmetic of offsets: laws of limits and splits, for any queues."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from steelyard.errors import ConfigError
from steelyard.spark.offsets import (
    Behind,
    QueueName,
    Range,
    aligned,
    backlogs,
    behind,
    from_json,
    limited,
    split,
    to_json,
)

QUEUES = st.tuples(st.sampled_from("TU"), st.sampled_from(["a", "b"]), st.integers(0, 12))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 1 << 62), max_size=8)
SIZES = st.dictionaries(
    QUEUES, st.tuples(st.integers(0, 1_000), st.integers(-20, 5_000)), min_size=1, max_size=8
)
A, B, C = (("T", "a", n) for n in range(3))


@given(OFFSETS)
def test_json_and_back(offsets: dict[QueueName, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_equal_json(offsets: dict[QueueName, int], random: object) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(shuffled))) == json.dumps(to_json(offsets))


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ([], "where an object belongs"),
        ({"T": 1}, "has 1 where an object belongs"),
        ({"T": {"a": {"x": 1}}}, "has the queue 'x'"),
        ({"T": {"a": {"0": True}}}, "True is no offset"),
    ],
)
def test_other_json_is_refused(tree: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(tree)
    assert words in str(caught.value)


@given(SIZES, st.integers(1, 20_000))
def test_limits(sizes: dict[QueueName, tuple[int, int]], most: int) -> None:
    """Exactly the limit is given out, or all; everyone gets something if there is enough for all; nobody gets too much."""
    start = {queue: at for queue, (at, _) in sizes.items()}
    end = {queue: at + size for queue, (at, size) in sizes.items()}
    found = limited(start, end, most)
    given_out = backlogs(start, found)
    waiting = backlogs(start, end)
    assert found.keys() == end.keys()
    assert sum(given_out.values()) == min(most, sum(waiting.values()))
    assert all(found[queue] <= end[queue] for queue in waiting)
    assert all(
        found[queue] == end[queue] for queue in end if queue not in waiting
    )  # a queue cut off at its end
    if most >= len(waiting):
        assert given_out.keys() == waiting.keys()
        total = sum(waiting.values())
        for queue, share in given_out.items():
            fair = min(most, total) * waiting[queue] / total
            assert fair - len(waiting) - 1 <= share <= fair + len(waiting) + 1


def test_a_small_limit_goes_round() -> None:
    """With one offset a batch, three queues are read in turn, though one of them has nearly everything."""
    start, end = {A: 0, B: 0, C: 0}, {A: 1_000, B: 5, C: 5}
    for _ in range(9):
        start = limited(start, end, 1)
    assert start == {A: 3, B: 3, C: 3}


def test_shares_are_in_proportion() -> None:
    assert limited({A: 0, B: 100}, {A: 900, B: 200}, 100) == {A: 90, B: 110}


RANGES = st.lists(
    st.tuples(QUEUES, st.integers(0, 1_000), st.integers(1, 500)), max_size=6, unique_by=lambda one: one[0]
).map(lambda found: [Range(queue, start, start + size) for queue, start, size in found])  # fmt: skip


@given(RANGES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 200))
def test_splits(ranges: list[Range], least: int | None, most: int | None) -> None:
    """The pieces have every offset once and in order, none is too long, and there are enough."""
    pieces = split(ranges, partitions_min=least, records_max=most)
    assert [
        (piece.queue, offset) for piece in pieces for offset in range(piece.start, piece.end)
    ] == [(one.queue, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(piece.start < piece.end for piece in pieces)
    if most is not None:
        assert all(piece.end - piece.start <= most for piece in pieces)
    total = sum(one.end - one.start for one in ranges)
    assert len(pieces) >= min(least or 0, total)
    if most is None:
        assert len(pieces) <= max(least or 0, len(ranges))


def test_the_longest_is_split() -> None:
    ranges = [Range(A, 0, 10), Range(B, 5, 95)]
    assert split(ranges, partitions_min=4) == [
        Range(A, 0, 10),
        Range(B, 5, 35),
        Range(B, 35, 65),
        Range(B, 65, 95),
    ]


def test_lag() -> None:
    assert behind({A: 5, B: 10, C: 3}, {A: 15, B: 9}) == Behind(0, 5.0, 10, 10)
    assert behind({}, {A: 4}) == Behind(0, 0.0, 0, 0)


stored_at = st.lists(st.integers(1, 60), max_size=12).map(sorted)


@given(st.dictionaries(st.sampled_from("abc"), stored_at, min_size=1), st.data())
def test_batches_that_end_at_one_time(stored: dict[str, list[int]], data: st.DataObject) -> None:
    """What is in the batch was stored before a time, and nothing else was; it is as large as it may be."""
    queues = {("T", broker, 0): times for broker, times in stored.items()}
    start = {q: data.draw(st.integers(0, len(times))) for q, times in queues.items()}
    begun = max([0, *(times[start[q] - 1] for q, times in queues.items() if start[q])])
    start = {q: bisect_right(times, begun) for q, times in queues.items()}
    end = {q: len(times) for q, times in queues.items()}
    size = sum(end[q] - start[q] for q in queues)
    assume(size > 1)
    most = data.draw(st.integers(1, size - 1))
    found, at = aligned(
        start,
        end,
        most,
        lambda time: {q: bisect_left(times, time) for q, times in queues.items()},
        after=begun,
        before=100,
    )
    assert found == {q: max(start[q], bisect_left(times, at)) for q, times in queues.items()}
    taken = sum(found[q] - start[q] for q in queues)
    next_ones = sum(bisect_right(times, at) - found[q] for q, times in queues.items())
    assert taken > most or 0 < taken <= most < taken + next_ones


def test_a_time_with_more_messages_than_a_batch_is_a_batch() -> None:
    queue = ("T", "a", 0)
    times = [5, 7, 7, 7, 9]
    found, at = aligned(
        {queue: 1}, {queue: 5}, 2, lambda t: {queue: bisect_left(times, t)}, after=5, before=100
    )
    assert (found, at) == ({queue: 4}, 8)
