"""Costs of rebalances: worked examples done by hand, and laws."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.ledger import cost
from steelyard.ledger.cost import Handoff, OffsetRanges, Rebalance
from steelyard.ledger.events import (
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
)


def joined(
    at: int,
    client: str,
    members: str,
    broker: str = "a",
    cause: str = "heartbeat",
    group: str = "g",
) -> MemberJoined:
    return MemberJoined(
        at=at, broker=broker, group=group, client=client, cause=cause, members=tuple(members)
    )


def left(
    at: int, client: str, members: str, broker: str = "a", cause: str = "unregistered"
) -> MemberLeft:
    return MemberLeft(
        at=at, broker=broker, group="g", client=client, cause=cause, members=tuple(members)
    )


def got(
    at: int,
    client: str,
    first: int,
    following: int,
    *,
    until: int | None = None,
    stored: int | None = None,
    queue: int = 0,
    broker: str = "a",
    count: int | None = None,
    group: str = "g",
) -> Delivered:
    return Delivered(
        at=at,
        broker=broker,
        group=group,
        client=client,
        topic="T",
        queue=queue,
        until=at if until is None else until,
        first=first,
        next=following,
        count=following - first if count is None else count,
        stored=at if stored is None else stored,
    )


def said(
    at: int, client: str, offset: int, *, handed: int | None = None, broker: str = "a"
) -> Committed:
    return Committed(
        at=at,
        broker=broker,
        group="g",
        topic="T",
        queue=0,
        offset=offset,
        client=client,
        handed=handed,
    )


def waits(
    at: int, *waiting: int, peak: int = 0, peak_at: int | None = None, broker: str = "a"
) -> Backlog:
    return Backlog(
        at=at,
        broker=broker,
        group="g",
        topic="T",
        waiting=waiting,
        peak=max(peak, sum(waiting)),
        peak_at=at if peak_at is None else peak_at,
    )


def began(at: int, trigger: str, members: str, generation: int = 1) -> RebalanceBegan:
    return RebalanceBegan(
        at=at,
        broker="a",
        group="g",
        generation=generation,
        trigger=trigger,
        cause="",
        members=tuple(members),
    )


def ended(at: int, members: str, generation: int = 2) -> RebalanceEnded:
    return RebalanceEnded(
        at=at,
        broker="a",
        group="g",
        generation=generation,
        protocol="range",
        duration_ms=0,
        members=tuple(members),
    )


# -- the measures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_at_old", "stored", "first_at_new", "pause"),
    [
        (1000, 900, 1500, 500),  # a message waited all the time
        (1000, 1400, 1500, 100),  # nothing waited before 1400
        (1000, 1500, 1500, 0),  # delivered as it came
        (1600, 900, 1500, 0),  # both were delivered for a while
        (1000, 1700, 1500, 0),  # a clock that is off
    ],
)
def test_pause(last_at_old: int, stored: int, first_at_new: int, pause: int) -> None:
    assert cost.pause_ms(last_at_old, stored, first_at_new) == pause


@pytest.mark.parametrize(
    ("before", "after", "spike"),
    [
        ([10, 20, 30], [5, 60], 3.0),
        ([10, 20], [60], 4.0),  # the median is 15
        ([0, 0, 9], [7], 7.0),  # a median of 0 counts as 1
        ([10], [4], 0.4),
        ([], [4], None),
        ([10], [], None),
    ],
)
def test_spike(before: list[int], after: list[int], spike: float | None) -> None:
    assert cost.spike(before, after) == spike


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0), ([7], 0.5, 7), ([4, 1], 0.5, 1), ([1, 2, 3], 0.5, 2), ([1, 2, 3], 0.99, 3)],
)
def test_percentile_is_nearest_rank(values: list[int], share: float, expected: int) -> None:
    assert cost.percentile(values, share) == expected
    assert cost.percentile(list(range(1, 101)), 0.99) == 99


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


def test_a_backlog_is_on_straight_lines_between_its_points() -> None:
    """Broker a goes from 10 to 30 (its peak) to 0, broker b stays at 4; what is not known yet counts as nothing."""
    records = [
        waits(1_000, 7, 3),
        waits(3_000, 0, 0, peak=30, peak_at=2_000),
        waits(1_500, 4, broker="b"),
    ]
    backlog = cost.backlogs(records, "g")
    assert backlog == ([1_000, 1_500, 2_000, 3_000], [10, 24, 34, 4])
    assert [backlog.at(at) for at in (999, 1_250, 2_500, 9_000)] == [None, 17, 19, 4]
    assert backlog.over(1_250, 2_500) == ([1_250, 1_500, 2_000, 2_500], [17, 24, 34, 19])
    assert backlog.over(0, 500) == ([], [])
    assert cost.backlogs(records, "another") == ([], [])


# -- worked examples --------------------------------------------------------------------------------


def test_a_second_member_joins() -> None:
    """A owns queues 0 and 1; B joins at 10 000, at both brokers; queue 1 moves.

    1. A gets queue 1 up to offset 8 at 9 900, up to 10 at 10 300, and commits only 8.
    2. B starts at 8 at 11 000: 2 messages are redelivered; whether A worked on them nobody knows. The message at 8 was stored at
       9 890: pause 700.
    3. The backlog is 2, rises to 12 at 11 000 and falls to 0 at 11 400: spike 6; it is back at 2 at 11 333.
    """
    records: list[Record] = [
        joined(1_000, "A", "A"),
        joined(1_050, "A", "A", broker="b"),
        waits(9_000, 1, 1),
        got(9_500, "A", 0, 10, queue=0),
        got(9_900, "A", 0, 8, queue=1),
        waits(10_000, 1, 1),
        joined(10_000, "B", "AB"),
        joined(10_004, "B", "AB", broker="b"),
        got(10_300, "A", 8, 10, queue=1, stored=9_890),
        Committed(at=10_400, broker="a", group="g", topic="T", queue=1, offset=8, client="A"),
        got(11_000, "B", 8, 12, queue=1, until=11_400, stored=9_890),
        waits(11_400, 0, 0, peak=12, peak_at=11_000),
    ]
    assert cost.handoffs(records) == [
        Handoff(
            group="g",
            topic="T",
            broker="a",
            queue=1,
            from_client="A",
            to_client="B",
            last_delivery_ms=10_300,
            first_delivery_ms=11_000,
            pause_ms=700,
            redelivered=2,
            reprocessed_min=0,
            reprocessed_max=2,
            rebalance="g/10000",
        )
    ]
    first, second = cost.rebalances(records)
    assert (first.started_at, first.trigger, first.members_before) == (1_000, "joined", ())
    assert (first.queues_moved, first.redelivered, first.spike) == (0, 0, None)
    assert second == Rebalance(
        group="g",
        rebalance="g/10000",
        started_at=10_000,
        trigger="joined",
        members_before=("A",),
        members_after=("A", "B"),
        queues_moved=1,
        pause_p50_ms=700,
        pause_p99_ms=700,
        pause_max_ms=700,
        redelivered=2,
        reprocessed_min=0,
        reprocessed_max=2,
        spike=6.0,
        drain_ms=1_333,
    )


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


def test_commits_of_a_later_holding_say_nothing_of_an_earlier_one() -> None:
    """A is delivered up to 100, B goes on at 20 up to 120, and A has the queue once more from there on."""
    records: list[Record] = [
        got(1_000, "A", 0, 100),
        said(1_500, "A", 20),
        got(2_000, "B", 20, 120),
    ]
    later: list[Record] = [said(2_500, "B", 120), got(3_000, "A", 120, 150), said(3_500, "A", 150)]
    assert reprocessed(*records, *later) == (80, 0, 80)


def test_an_eager_rebalance_of_a_kafka_group() -> None:
    """B joins at 10 000; A hears of it with its heartbeat and stops at 12 500; both read again from 13 000 on.

    Partition 1 moves: its last messages went to A at 12 400, one that was stored at 12 600 goes to B at 13 100. Partition
    0 stands still as well, but stays with A: it is not a hand-off.
    """
    records: list[Record] = [
        joined(1_000, "A", "A", cause="joined"),
        began(1_000, "joined", "A"),
        ended(1_010, "A"),
        got(9_000, "A", 0, 10, queue=0, until=12_500),
        got(9_000, "A", 0, 10, queue=1, until=12_400),
        joined(10_000, "B", "AB", cause="joined"),
        began(10_000, "joined", "AB"),
        ended(13_000, "AB"),
        got(13_050, "A", 10, 12, queue=0),
        got(13_100, "B", 10, 12, queue=1, stored=12_600),
    ]
    (moved,) = cost.handoffs(records)
    assert (moved.queue, moved.from_client, moved.to_client) == (1, "A", "B")
    assert (moved.pause_ms, moved.redelivered, moved.rebalance) == (500, 0, "g/10000")
    assert [row.queues_moved for row in cost.rebalances(records)] == [0, 1]


def test_a_cooperative_rebalance_of_a_kafka_group_is_one() -> None:
    """B joins at 10 000. In the first round, until 13 000, A gives partition 1 up; in the second B gets it, at 16 000.

    Nothing else stands still. The second round begins because A holds less than before: it is not a rebalance of its own.
    """
    records: list[Record] = [
        joined(1_000, "A", "A", cause="joined"),
        began(1_000, "joined", "A"),
        got(9_000, "A", 0, 40, queue=0, until=16_100),
        got(9_000, "A", 0, 10, queue=1, until=12_900),
        joined(10_000, "B", "AB", cause="joined"),
        began(10_000, "joined", "AB"),
        ended(13_000, "AB"),
        began(13_010, "revoked", "AB", 2),
        ended(16_000, "AB", 3),
        got(16_050, "B", 10, 30, queue=1, stored=13_000),
    ]
    (moved,) = cost.handoffs(records)
    assert (moved.pause_ms, moved.rebalance) == (3_050, "g/10000")
    first, second = cost.rebalances(records)
    assert (second.started_at, second.trigger, second.queues_moved) == (10_000, "joined", 1)
    assert (first.queues_moved, second.pause_max_ms) == (0, 3_050)


def triggers(records: list[Record]) -> list[tuple[int, str, str, str]]:
    return [
        (row.started_at, row.trigger, "".join(row.members_before), "".join(row.members_after))
        for row in cost.rebalances(records)
    ]


BOTH: list[Record] = [joined(0, "A", "A"), joined(100, "B", "AB"), joined(50, "A", "A", "b")]
READ: list[Record] = [got(200, "A", 0, 1), got(200, "B", 0, 1, broker="b")]

EXAMPLES: dict[str, tuple[list[Record], list[tuple[int, str, str, str]]]] = {
    "the first members, within the window": ([*BOTH], [(0, "joined", "", "AB")]),
    "a clean stop, told by both brokers": (
        [*BOTH, left(9_000, "B", "A"), left(9_003, "B", "A", "b")],
        [(0, "joined", "", "AB"), (9_000, "left (unregistered)", "AB", "A")],
    ),
    "silence, which the second broker notices 10 s later": (
        [*BOTH, left(9_000, "B", "A", cause="expired"), left(19_000, "B", "A", "b", "expired")],
        [(0, "joined", "", "AB"), (9_000, "left (expired)", "AB", "A")],
    ),
    "a lost connection, and back within the window": (
        [*BOTH, left(9_000, "B", "A", cause="closed"), joined(9_500, "B", "AB")],
        [(0, "joined", "", "AB"), (9_000, "left (closed)", "AB", "AB")],
    ),
    "a new connection without a leave": (
        [*BOTH, joined(9_000, "B", "AB")],
        [(0, "joined", "", "AB")],
    ),
    "other topics": (
        [*BOTH, joined(9_000, "B", "AB", cause="subscription")],
        [(0, "joined", "", "AB"), (9_000, "subscription", "AB", "AB")],
    ),
    "two joins, further apart than the window": (
        [joined(0, "A", "A"), joined(1_001, "B", "AB")],
        [(0, "joined", "", "A"), (1_001, "joined", "A", "AB")],
    ),
    "a broker stops and starts, members come back to it one by one": (
        [
            *BOTH,
            *READ,
            BrokerStopped(at=20_000, broker="b"),
            left(20_001, "A", "", "b", "closed"),
            BrokerStarted(at=30_000, broker="b"),
            joined(30_900, "A", "A", "b"),
            joined(33_000, "B", "AB", "b"),
        ],
        [
            (0, "joined", "", "AB"),
            (20_000, "broker_stopped", "AB", "AB"),
            (30_000, "broker_started", "AB", "AB"),
        ],
    ),
    "a broker that the group does not read from": (
        [*BOTH, BrokerStopped(at=20_000, broker="c"), BrokerStarted(at=30_000, broker="c")],
        [(0, "joined", "", "AB")],
    ),
    "a broker starts before there are members": (
        [BrokerStarted(at=-5_000, broker="b"), *BOTH, *READ],
        [(0, "joined", "", "AB")],
    ),
    "a ledger that begins in the middle: a leave": (
        [left(9_000, "B", "A"), joined(20_000, "C", "AC")],
        [(9_000, "left (unregistered)", "AB", "A"), (20_000, "joined", "A", "AC")],
    ),
    "a ledger that begins in the middle: a join": (
        [joined(9_000, "C", "ABC")],
        [(9_000, "joined", "AB", "ABC")],
    ),
    "a group that nobody is ever a member of": ([got(5, "1.2.3.4:5", 0, 1)], []),
    "a Kafka group whose members come and go": (
        [
            joined(0, "A", "A", cause="joined"),
            began(0, "joined", "A"),
            ended(10, "A"),
            joined(5_000, "B", "AB", cause="joined"),
            began(5_000, "joined", "AB"),
            ended(8_000, "AB"),
            left(20_000, "B", "A", cause="expired"),
            began(20_000, "expired", "A"),
            ended(23_000, "A"),
        ],
        [
            (0, "joined", "", "A"),
            (5_000, "joined", "A", "AB"),
            (20_000, "left (expired)", "AB", "A"),
        ],
    ),
    "a Kafka group whose leader sees new partitions": (
        [*BOTH, began(9_000, "leader", "AB"), ended(12_000, "AB")],
        [(0, "joined", "", "AB"), (9_000, "leader", "AB", "AB")],
    ),
    "a static member of a Kafka group that comes back under a new id, without a rebalance": (
        [*BOTH, left(9_000, "B", "A", cause="replaced"), joined(9_000, "C", "AC", cause="static")],
        [(0, "joined", "", "AB"), (9_000, "joined", "AB", "AC")],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_counts_as_one_rebalance(name: str) -> None:
    records, expected = EXAMPLES[name]
    assert triggers(records) == expected


def test_a_broker_is_killed_and_comes_back() -> None:
    """Queue 0 of a moves when b vanishes (last heard of at 20 000), and back when b starts again."""
    records: list[Record] = [
        *BOTH,
        got(1_000, "B", 0, 1, queue=0),
        got(20_000, "A", 0, 1, broker="b"),
        got(21_000, "B", 1, 2, queue=0),
        got(25_000, "A", 2, 3, queue=0, stored=21_500),
        BrokerStarted(at=90_000, broker="b"),
        joined(95_000, "A", "A", "b"),
        got(99_000, "B", 3, 4, queue=0, stored=98_000),
    ]
    assert triggers(records)[1:] == [
        (20_000, "routes", "AB", "AB"),
        (90_000, "broker_started", "AB", "AB"),
    ]
    moves = [(h.from_client, h.to_client, h.pause_ms, h.rebalance) for h in cost.handoffs(records)]
    assert moves == [("B", "A", 3_500, "g/20000"), ("A", "B", 1_000, "g/90000")]


def test_commits_that_others_note_are_no_sign_of_life() -> None:
    """b was last heard of at 20 000, whatever the coordinator on a noted afterwards of b's queues."""

    def committed(at: int, writer: str) -> Committed:
        return Committed(
            at=at, broker="b", group="g", topic="T", queue=0, offset=1, client="A", writer=writer
        )

    records: list[Record] = [
        *BOTH,
        got(1_000, "B", 0, 1, queue=0),
        got(20_000, "A", 0, 1, broker="b"),
        got(24_000, "A", 2, 3, queue=0, stored=21_500),
        BrokerStarted(at=90_000, broker="b"),
    ]
    died = (20_000, "routes", "AB", "AB")
    assert died in triggers([*records, committed(22_000, "a")])
    assert died not in triggers([*records, committed(22_000, "")])


def test_a_broker_is_killed_and_nothing_moves() -> None:
    records = [
        *BOTH,
        *READ,
        got(20_000, "B", 1, 2, broker="b"),
        BrokerStarted(at=90_000, broker="b"),
    ]
    assert [row.trigger for row in cost.rebalances(records)] == ["joined", "broker_started"]


def test_hand_offs_that_no_event_explains() -> None:
    """Long after the last event two queues move: one rebalance, from the moment the first one stood still."""
    records: list[Record] = [
        *BOTH,
        got(100_000, "A", 0, 1, queue=0),
        got(100_000, "A", 0, 1, queue=1),
        got(103_000, "B", 1, 2, queue=0, stored=100_500),
        got(105_000, "B", 1, 2, queue=1, stored=101_000),
    ]
    assert triggers(records) == [(0, "joined", "", "AB"), (100_500, "routes", "AB", "AB")]
    moved = cost.rebalances(records)[1]
    assert (moved.queues_moved, moved.pause_p50_ms, moved.pause_max_ms) == (2, 2_500, 4_000)


def test_two_members_believe_that_they_own_a_queue() -> None:
    """A and B are both served for a while: one hand-off, without a pause, and every repeat a duplicate."""
    records: list[Record] = [
        joined(0, "A", "A"),
        got(1_000, "A", 0, 10),
        joined(5_000, "B", "AB"),
        got(5_100, "A", 10, 20, stored=5_100),
        got(5_200, "B", 10, 20, stored=5_100),
        got(5_300, "A", 20, 30, stored=5_300),
        got(5_400, "B", 20, 30, stored=5_300),
    ]
    (handoff,) = cost.handoffs(records)
    assert (handoff.from_client, handoff.to_client, handoff.redelivered) == ("A", "B", 20)
    assert (handoff.last_delivery_ms, handoff.first_delivery_ms) == (5_100, 5_200)


def test_a_queue_that_comes_straight_back_has_not_moved() -> None:
    records: list[Record] = [
        *BOTH,
        got(1_000, "A", 0, 10),
        got(1_500, "B", 5, 10),
        got(1_900, "A", 10, 12),
    ]
    assert cost.handoffs(records) == []
    assert [row.redelivered for row in cost.rebalances(records)] == [5]


def test_who_pulls_before_its_first_heartbeat_owns_nothing() -> None:
    records: list[Record] = [
        *BOTH,
        got(1_000, "A", 0, 10),
        got(1_500, "127.0.0.1:5000", 8, 12),
        got(1_900, "B", 12, 20),
    ]
    (handoff,) = cost.handoffs(records)
    assert (handoff.from_client, handoff.to_client) == ("A", "B")
    assert [row.redelivered for row in cost.rebalances(records)] == [2]


def test_backlog_that_does_not_drain() -> None:
    records: list[Record] = [
        waits(-9_000, 3),
        waits(1_000, 3),
        joined(1_000, "B", "AB"),
        waits(1_500, 9),
        joined(3_000, "C", "ABC"),
        waits(3_000, 12),
        waits(4_000, 0),
    ]
    first, second = cost.rebalances(records)
    assert (first.spike, first.drain_ms) == (4.0, None)
    # Once a second before the second one: 3 eight times, then 3 (at 1 000) and 10 (at 2 000).
    assert (second.spike, second.drain_ms) == (4.0, 750)


def test_groups_are_told_apart() -> None:
    records: list[Record] = [
        joined(0, "A", "A", group="one"),
        got(500, "A", 0, 10, group="one"),
        joined(0, "B", "B", group="two"),
        got(600, "B", 0, 10, group="two"),
    ]
    assert [(row.group, row.redelivered) for row in cost.rebalances(records)] == [
        ("one", 0),
        ("two", 0),
    ]


# -- laws -------------------------------------------------------------------------------------------

times = st.integers(0, 200_000)
clients = st.sampled_from("ABC")
brokers = st.sampled_from("ab")
causes = st.sampled_from(["unregistered", "closed", "expired"])
members = st.sets(clients).map(lambda found: "".join(sorted(found)))


@st.composite
def deliveries(draw: st.DrawFn) -> Delivered:
    first, size = draw(st.integers(0, 30)), draw(st.integers(1, 10))
    at = draw(times)
    return got(
        at,
        draw(clients),
        first,
        first + size,
        until=at + draw(st.integers(0, 1_000)),
        stored=draw(times),
        queue=draw(st.integers(0, 1)),
        broker=draw(brokers),
    )


happenings = st.one_of(
    deliveries(),
    deliveries(),
    st.builds(said, times, clients, st.integers(0, 40), broker=brokers),
    st.builds(
        waits, times, st.integers(0, 50), peak=st.integers(0, 99), peak_at=times, broker=brokers
    ),
    st.builds(joined, times, clients, members, brokers),
    st.builds(left, times, clients, members, brokers, causes),
    st.builds(lambda at, broker: BrokerStarted(at=at, broker=broker), times, brokers),
    st.builds(lambda at, broker: BrokerStopped(at=at, broker=broker), times, brokers),
)
ledgers = st.lists(happenings, max_size=25)


@given(ledgers, st.integers())
@settings(max_examples=150)
def test_order_of_the_records_is_irrelevant(records: list[Record], seed: int) -> None:
    shuffled = list(records)
    random.Random(seed).shuffle(shuffled)
    assert cost.costs(shuffled) == cost.costs(records)


@given(ledgers)
@settings(max_examples=150)
def test_rows_agree_with_each_other(records: list[Record]) -> None:
    handoffs, rebalances = cost.costs(records)
    by_id = {row.rebalance: row for row in rebalances}
    assert len(by_id) == len(rebalances)
    starts = [row.started_at for row in rebalances]
    assert starts == sorted(set(starts))
    moved = Counter(row.rebalance for row in handoffs)
    for row in handoffs:
        assert row.pause_ms >= 0
        assert row.from_client != row.to_client
        assert by_id[row.rebalance].started_at <= row.first_delivery_ms
        assert row.redelivered <= by_id[row.rebalance].redelivered
        assert 0 <= row.reprocessed_min <= row.reprocessed_max <= row.redelivered
    for rebalance in rebalances:
        pauses = [row.pause_ms for row in handoffs if row.rebalance == rebalance.rebalance]
        assert rebalance.queues_moved == moved[rebalance.rebalance]
        assert rebalance.pause_p50_ms <= rebalance.pause_p99_ms <= rebalance.pause_max_ms
        assert rebalance.pause_max_ms == max(pauses, default=0)
        assert rebalance.spike is None or rebalance.spike >= 0
        assert rebalance.drain_ms is None or rebalance.drain_ms >= 0
        assert rebalance.trigger != "routes" or moved[rebalance.rebalance]


@given(st.lists(deliveries(), max_size=20))
@settings(max_examples=150)
def test_redelivered_are_deliveries_less_distinct_offsets(records: list[Delivered]) -> None:
    every = [
        (one.broker, one.queue, offset) for one in records for offset in range(one.first, one.next)
    ]
    rebalances = cost.rebalances([joined(-1, "A", "A"), *records])
    assert sum(row.redelivered for row in rebalances) == len(every) - len(set(every))


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
@settings(max_examples=300)
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
