"""Costs of rebalances: worked examples done by hand, and laws."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.ledger.records import began, clients, ended, got, joined, left, requested, said, waits

from steelyard.ledger import cost
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Committed, Delivered, Record
from steelyard.ledger.tables import Handoff, Rebalance


def test_a_second_member_joins() -> None:
    """A owns queues 0 and 1; B joins at 10 000, at both brokers; queue 1 moves.

    1. A gets queue 1 up to offset 8 at 9 900, up to 10 at 10 300, and commits only 8.
    2. B asks for it at 10 900 and starts at 8 at 11 000: 2 messages are redelivered; whether A worked on them nobody knows. A's last commit says
       that it did not, and the message at 8 was stored at 9 890, before A was delivered the one before it: pause 1 100.
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
        requested(10_900, "B", queue=1),
        got(11_000, "B", 8, 12, queue=1, until=11_400, stored=9_890),
        waits(11_400, 0, 0, peak=12, peak_at=11_000),
    ]
    assert cost.handoffs(records) == [
        Handoff(
            group="g",
            topic="T",
            broker="a",
            queue=1,
            kind="moved",
            from_client="A",
            to_client="B",
            last_delivery_ms=10_300,
            first_delivery_ms=11_000,
            pause_ms=1_100,
            first_fetch_ms=100,
            listener_pause_ms=None,
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
        reason="B joined",
        trigger="joined",
        members_before=("A",),
        members_after=("A", "B"),
        detect_ms=0,
        rebalance_ms=900,
        first_fetch_ms=100,
        queues_moved=1,
        queues_stalled=0,
        pause_p50_ms=1_100,
        pause_p99_ms=1_100,
        pause_max_ms=1_100,
        redelivered=2,
        reprocessed_min=0,
        reprocessed_max=2,
        spike=6.0,
        drain_ms=1_333,
    )


def test_an_eager_rebalance_of_a_kafka_group() -> None:
    """B joins at 10 000; A hears of it with its heartbeat and stops at 12 500; both read again from 13 000 on.

    Partition 1 moves: its last messages went to A at 12 400, one that was stored at 12 600 goes to B at 13 100. Partition
    0 stays with A and stands still from 12 500 to 13 050, with a message waiting since 12 700.
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
        got(13_050, "A", 10, 12, queue=0, stored=12_700),
        got(13_100, "B", 10, 12, queue=1, stored=12_600),
    ]
    stalled, moved = cost.handoffs(records)
    assert (moved.queue, moved.from_client, moved.to_client) == (1, "A", "B")
    assert (moved.pause_ms, moved.redelivered, moved.rebalance) == (500, 0, "g/10000")
    assert (stalled.queue, stalled.from_client, stalled.to_client) == (0, "A", "A")
    assert (stalled.kind, stalled.pause_ms, stalled.first_fetch_ms) == ("stalled", 350, 50)
    first, second = cost.rebalances(records)
    assert (first.queues_moved, first.queues_stalled, first.rebalance_ms) == (0, 0, 10)
    assert (second.queues_moved, second.queues_stalled, second.pause_max_ms) == (1, 1, 500)
    assert (second.detect_ms, second.rebalance_ms, second.first_fetch_ms) == (0, 3_000, 100)


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
    assert (second.rebalance_ms, second.first_fetch_ms) == (6_000, 50)


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


times = st.integers(0, 200_000)


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
    st.builds(left, times, clients, members, brokers, causes, st.none() | times),
    st.builds(requested, times, clients, st.integers(0, 1), brokers),
    st.builds(ended, times, members),
    st.builds(lambda at, broker: BrokerStarted(at=at, broker=broker), times, brokers),
    st.builds(lambda at, broker: BrokerStopped(at=at, broker=broker), times, brokers),
)


ledgers = st.lists(happenings, max_size=25)


@given(ledgers, st.integers())
@settings(max_examples=examples(150))
def test_order_of_the_records_is_irrelevant(records: list[Record], seed: int) -> None:
    shuffled = list(records)
    random.Random(seed).shuffle(shuffled)
    assert cost.costs(shuffled) == cost.costs(records)


@given(ledgers)
@settings(max_examples=examples(150))
def test_rows_agree_with_each_other(records: list[Record]) -> None:
    handoffs, rebalances = cost.costs(records)
    has_started = any(isinstance(one, BrokerStarted) for one in records)  # it may have died before
    by_id = {row.rebalance: row for row in rebalances}
    assert len(by_id) == len(rebalances)
    known = [row.started_at + (row.detect_ms or 0) for row in rebalances]
    assert known == sorted(set(known))
    moved = Counter((row.rebalance, row.kind) for row in handoffs)
    for row in handoffs:
        assert row.pause_ms >= 0
        assert (row.from_client != row.to_client) == (row.kind == "moved")
        assert row.first_fetch_ms is None or 0 <= row.first_fetch_ms <= row.pause_ms
        assert by_id[row.rebalance].started_at <= row.first_delivery_ms
        assert row.redelivered <= by_id[row.rebalance].redelivered
        assert 0 <= row.reprocessed_min <= row.reprocessed_max
        assert row.reprocessed_max <= row.redelivered or has_started
    for rebalance in rebalances:
        pauses = [row.pause_ms for row in handoffs if row.rebalance == rebalance.rebalance]
        assert rebalance.queues_moved == moved[rebalance.rebalance, "moved"]
        assert rebalance.queues_stalled == moved[rebalance.rebalance, "stalled"]
        assert rebalance.reason
        assert rebalance.pause_p50_ms <= rebalance.pause_p99_ms <= rebalance.pause_max_ms
        assert rebalance.pause_max_ms == max(pauses, default=0)
        assert rebalance.spike is None or rebalance.spike >= 0
        assert rebalance.drain_ms is None or rebalance.drain_ms >= 0
        assert rebalance.trigger not in ("routes", "broker_died") or pauses
        for part in (rebalance.detect_ms, rebalance.rebalance_ms, rebalance.first_fetch_ms):
            assert part is None or part >= 0


@given(st.lists(deliveries(), max_size=20))
@settings(max_examples=examples(150))
def test_redelivered_are_deliveries_less_distinct_offsets(records: list[Delivered]) -> None:
    every = [
        (one.broker, one.queue, offset) for one in records for offset in range(one.first, one.next)
    ]
    rebalances = cost.rebalances([joined(-1, "A", "A"), *records])
    assert sum(row.redelivered for row in rebalances) == len(every) - len(set(every))
