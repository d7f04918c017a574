"""What was delivered again, and what was processed again: worked examples, and laws."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.ledger.records import clients, got, joined, said

from steelyard.ledger import cost
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Record
from steelyard.ledger.repeats import OffsetRanges


def test_offsets_known_before() -> None:
    offsets = OffsetRanges()
    assert [offsets.add(*r) for r in [(0, 10), (20, 30), (10, 12), (5, 25), (0, 40)]] == [
        0,
        0,
        0,
        12,  # 5..11 and 20..24
        30,
    ]


def test_of_a_filtered_range_at_most_its_messages_are_redelivered() -> None:
    records: list[Record] = [
        joined(0, "A", "A"),
        got(1, "A", 0, 100),
        got(2, "B", 50, 150, count=3),
    ]
    assert [row.redelivered for row in cost.rebalances(records)] == [3]


def reprocessed(*records: Record) -> tuple[int, int, int]:
    """Redelivered, and how many of these were reprocessed at least and at most."""
    (row,) = cost.rebalances([joined(0, "A", "AB"), *records])
    return row.redelivered, row.reprocessed_min, row.reprocessed_max


def test_what_the_old_owner_committed_late_was_surely_reprocessed() -> None:
    """B begins where A had committed, at 50; A's commit of 60 comes after that."""
    late = said(2_100, "A", 60)
    old, new = got(1_000, "A", 0, 100), got(2_000, "B", 50, 100)
    assert reprocessed(old, said(1_500, "A", 50), new, late, said(3_000, "B", 100)) == (50, 10, 50)


def test_what_members_say_they_handed_over_is_exact() -> None:
    """A was delivered up to 100, had handed over 70 and committed 50."""
    old, new = got(1_000, "A", 0, 100), got(2_000, "B", 50, 100)
    given_up = said(1_900, "A", 50, handed=70)
    assert reprocessed(old, given_up, new, said(3_000, "B", 90)) == (50, 20, 20)
    clean = said(1_900, "A", 50, handed=50)
    assert reprocessed(old, clean, new, said(3_000, "B", 90)) == (50, 0, 0)


def test_a_member_that_goes_back_commits_what_it_works_on_then() -> None:
    """After an eager rebalance A keeps the queue, drops what it fetched ahead, and fetches it again from 20 on."""
    records: list[Record] = [
        got(1_000, "A", 0, 100),
        said(1_500, "A", 20),
        got(2_000, "A", 20, 100),
    ]
    assert reprocessed(*records, said(3_000, "A", 100)) == (80, 0, 80)


def test_a_member_that_goes_back_within_a_millisecond_has_not_processed_twice() -> None:
    """A cooperative rebalance has it fetch the same messages again, of which it drops the first."""
    records: list[Record] = [
        got(2_000, "A", 0, 5),
        got(2_000, "A", 0, 10, until=2_100),
        said(3_000, "A", 10),
    ]
    assert reprocessed(*records) == (5, 0, 5)


def test_commits_of_a_later_holding_say_nothing_of_an_earlier_one() -> None:
    """A is delivered up to 100, B goes on at 20 up to 120, and A has the queue once more from there on."""
    records: list[Record] = [
        got(1_000, "A", 0, 100),
        said(1_500, "A", 20),
        got(2_000, "B", 20, 120),
    ]
    later: list[Record] = [said(2_500, "B", 120), got(3_000, "A", 120, 150), said(3_500, "A", 150)]
    assert reprocessed(*records, *later) == (80, 0, 80)


def test_what_a_killed_broker_did_not_write_may_have_been_processed() -> None:
    """It delivers 10 to 19 in its last second, and again when it is back; 20 to 29 are new then."""
    records: list[Record] = [
        joined(0, "A", "A"),
        BrokerStarted(at=0, broker="a"),
        got(1_000, "A", 0, 10),
        BrokerStarted(at=9_000, broker="a"),
        got(9_500, "A", 10, 20, stored=1_900),
        got(9_600, "A", 20, 30, stored=5_000),
    ]
    row = cost.rebalances(records)[-1]
    assert (row.trigger, row.redelivered) == ("broker_started", 0)
    assert (row.reprocessed_min, row.reprocessed_max) == (0, 10)
    stopped = [*records[:3], BrokerStopped(at=2_000, broker="a"), *records[3:]]
    assert cost.rebalances(stopped)[-1].reprocessed_max == 0


class Holding(NamedTuple):
    """A member has a queue, from where the group had committed: what it is delivered, hands over and commits, each on top of that."""

    client: str
    handed: int
    """Messages that its application gets."""
    ahead: int
    """And so many more that it has fetched."""
    unfinished: int
    """Of those handed over, so many it has not finished when it commits for the last time."""
    reports: bool
    late: bool
    """Its last commit arrives when the next member has begun."""


holdings = st.builds(
    Holding,
    clients,
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(holdings, min_size=1, max_size=8))
@settings(max_examples=examples(300))
def test_the_truth_is_between_the_bounds(story: list[Holding]) -> None:
    """One queue, and members that have it one after the other; exact where all of them report."""
    records: list[Record] = [joined(0, "A", "ABC")]
    committed, counts = 0, Counter[int]()
    waiting: list[Record] = []
    for number, one in enumerate(story):
        at, begin = 1_000 * (number + 1), committed
        counts.update(range(begin, begin + one.handed))
        records.append(got(at, one.client, begin, begin + one.handed + one.ahead + 1))
        records += waiting
        finished = begin + max(0, one.handed - one.unfinished)
        handed = begin + one.handed if one.reports else None
        last = said(at + (1_100 if one.late else 500), one.client, finished, handed=handed)
        same = number + 1 < len(story) and story[number + 1].client == one.client
        waiting = [last] if one.late and not same else []
        if not waiting:
            records.append(said(at + 500, one.client, finished, handed=handed))
            committed = finished
    records += waiting
    (row,) = cost.rebalances(records)
    truth = counts.total() - len(counts)
    assert row.reprocessed_min <= truth <= row.reprocessed_max
    if all(one.reports for one in story):
        assert row.reprocessed_min == row.reprocessed_max == truth


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=15))
def test_offsets_count_like_a_set(ranges: list[tuple[int, int]]) -> None:
    offsets, plain = OffsetRanges(), set[int]()
    for first, size in ranges:
        new = set(range(first, first + size))
        if new:
            assert offsets.add(first, first + size) == len(new & plain)
            plain |= new
