"""Which queues moved or stood still in which rebalance."""

from __future__ import annotations

from tests.ledger.records import BOTH, READ, ended, got, joined, left, requested, said, triggers

from steelyard.ledger import cost
from steelyard.ledger.cost import costs
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Committed, HandedOver, Record


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
        (20_000, "broker_died", "AB", "AB"),
        (90_000, "broker_started", "AB", "AB"),
    ]
    moves = [(h.from_client, h.to_client, h.pause_ms, h.rebalance) for h in cost.handoffs(records)]
    assert moves == [("B", "A", 3_500, "g/20000"), ("A", "B", 1_000, "g/90000")]


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


def pause(*records: Record) -> int:
    """The pause of the queue that A has until B is delivered 50 and what follows, at 20 000; B joins at 12 000."""
    new = got(20_000, "B", 50, 90, stored=3_000)
    (row,) = cost.handoffs([joined(0, "A", "A"), *records, joined(12_000, "B", "AB"), new])
    assert (row.kind, row.from_client, row.to_client) == ("moved", "A", "B")
    return row.pause_ms


READ_AHEAD: list[Record] = [
    got(4_000, "A", 0, 40),
    got(10_000, "A", 40, 60, until=11_000),
    got(11_500, "A", 60, 90),
]
"""A was delivered the message before 50 at about 10 500, and what B gets once more until 11 500."""


def test_what_the_old_owner_dropped_is_no_delivery_that_ends_a_pause() -> None:
    """It had committed just what was before it; if not, nobody knows what it did after its commit."""
    assert pause(*READ_AHEAD, said(11_600, "A", 50)) == 9_500
    assert pause(*READ_AHEAD, said(10_700, "A", 45), said(11_600, "A", 50)) == 9_300
    assert pause(*READ_AHEAD, said(11_600, "A", 45)) == 8_500
    assert pause(*READ_AHEAD, said(11_600, "B", 50)) == 8_500
    assert pause(*READ_AHEAD) == 8_500


def test_who_died_or_lost_its_broker_had_no_time_to_commit() -> None:
    commit = said(11_600, "A", 50)
    died = left(11_900, "A", "", cause="closed")
    assert pause(*READ_AHEAD, commit, died) == 8_500
    assert pause(*READ_AHEAD, commit, died, joined(11_950, "A", "A")) == 9_500
    assert pause(*READ_AHEAD, commit, left(11_900, "A", "")) == 9_500
    stopped, started = BrokerStopped(at=11_700, broker="a"), BrokerStarted(at=11_800, broker="a")
    assert pause(*READ_AHEAD, commit, stopped, died, started) == 8_500
    other = (BrokerStopped(at=11_700, broker="b"), left(11_750, "A", "", "b", cause="closed"))
    assert pause(*READ_AHEAD, commit, *other) == 9_500


def test_a_queue_that_was_set_back_paused_since_its_last_delivery() -> None:
    """B begins before everything that A was delivered since it has the queue."""
    assert pause(got(11_500, "A", 60, 90), said(11_600, "A", 50)) == 8_500


def test_a_queue_that_comes_back_after_its_broker_has_stood_still() -> None:
    """Its broker stops and returns; B is delivered it first, and A has it again after 300 ms."""
    records: list[Record] = [
        *BOTH,
        got(19_000, "A", 0, 5, broker="b", until=19_950),
        BrokerStopped(at=20_000, broker="b"),
        BrokerStarted(at=40_000, broker="b"),
        got(40_400, "B", 5, 6, broker="b", stored=19_960),
        got(40_700, "A", 6, 7, broker="b", stored=40_450),
    ]
    assert kinds(records) == [("stalled", 0, 20_440, "g/20000")]


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


def kinds(records: list[Record]) -> list[tuple[str, int, int, str]]:
    """Kind, queue, pause and rebalance of each row."""
    return [(row.kind, row.queue, row.pause_ms, row.rebalance) for row in cost.handoffs(records)]


def test_queues_of_a_broker_that_stops_stand_still_until_it_is_back() -> None:
    """It stops at 20 000 and returns at 40 000; the pause belongs to the stop, which caused it."""
    records: list[Record] = [
        *BOTH,
        got(19_000, "A", 0, 1, broker="b", until=19_950),
        got(19_000, "B", 0, 1, queue=1, broker="b", until=19_990),
        BrokerStopped(at=20_000, broker="b"),
        BrokerStarted(at=40_000, broker="b"),
        got(40_400, "A", 1, 2, broker="b", stored=19_960),
        got(40_500, "A", 1, 2, queue=1, broker="b", stored=40_100),
    ]
    assert kinds(records) == [("stalled", 0, 20_440, "g/20000"), ("moved", 1, 400, "g/40000")]
    stopped, started = cost.rebalances(records)[1:]
    assert (stopped.queues_moved, stopped.queues_stalled, stopped.pause_max_ms) == (0, 1, 20_440)
    assert (started.queues_moved, started.queues_stalled) == (1, 0)


def test_a_queue_that_waits_as_usual_has_not_stalled() -> None:
    """Its messages wait for 300 ms again and again; after B has joined for 250 ms, and once for 700."""
    usual: list[Record] = [
        got(at, "A", n, n + 1, stored=at - 300)
        for n, at in enumerate(range(90_000, 100_000, 1_000))
    ]
    came = joined(100_000, "C", "ABC")
    quick = got(100_400, "A", 10, 11, stored=100_150)
    slow = got(101_500, "A", 11, 12, stored=100_800)
    assert kinds([*BOTH, *usual, came, quick]) == []
    assert kinds([*BOTH, *usual, came, quick, slow]) == [("stalled", 0, 700, "g/100000")]


def test_what_stands_still_long_after_a_rebalance_has_not_stalled_by_it() -> None:
    records: list[Record] = [
        *BOTH,
        got(100_000, "A", 0, 1),
        joined(101_000, "C", "ABC"),
        got(101_100, "A", 1, 2),
        got(109_000, "A", 2, 3, stored=104_000),
    ]
    assert kinds(records) == []


def test_who_has_its_share_when_in_a_rocketmq_group() -> None:
    """B asks for queue 0 at 10 300 and for queue 1 at 10 500; something is there at 10 600 and 12 000."""
    records: list[Record] = [
        joined(0, "A", "A"),
        requested(0, "A"),
        requested(0, "A", 1),
        got(9_000, "A", 0, 1, queue=0),
        got(9_000, "A", 0, 1, queue=1),
        joined(10_000, "B", "AB"),
        requested(10_300, "B"),
        requested(10_500, "B", 1),
        got(10_600, "B", 1, 2, stored=9_500),
        got(12_000, "B", 1, 2, queue=1, stored=12_000),
    ]
    first, second = cost.handoffs(records)
    assert (first.pause_ms, first.first_fetch_ms) == (1_100, 300)
    assert (second.pause_ms, second.first_fetch_ms) == (0, 0)
    row = cost.rebalances(records)[1]
    assert (row.detect_ms, row.rebalance_ms, row.first_fetch_ms) == (0, 500, 300)


def test_what_listeners_saw_of_a_pause() -> None:
    """A's listener gets its last message at 10 450, B's its first at 11 020; only reports tell."""
    records: list[Record] = [
        joined(0, "A", "A"),
        got(9_000, "A", 0, 10, until=10_000),
        joined(10_100, "B", "AB"),
        said(10_500, "A", 8, handed=8, handed_at=10_450),
        got(11_000, "B", 8, 10, stored=9_800),
        said(12_000, "A", 3, handed=3, handed_at=11_900),
    ]
    first = HandedOver(at=11_020, broker="a", group="g", client="B", topic="T", queue=0)
    (row,) = cost.handoffs([*records, first])
    assert (row.pause_ms, row.listener_pause_ms) == (1_200, 570)
    assert cost.handoffs(records)[0].listener_pause_ms is None
    silent = [one for one in records if not isinstance(one, Committed)]
    assert cost.handoffs([*silent, first])[0].listener_pause_ms is None


def test_the_first_fetch_after_an_outage_that_the_partitions_broker_did_not_record() -> None:
    """Both brokers were away; b learned too late that B reads its partition, whose coordinator, a, has the commits."""

    def committed(at: int, client: str, offset: int) -> Committed:
        return Committed(
            at=at,
            broker="b",
            group="g",
            topic="T",
            queue=0,
            offset=offset,
            client=client,
            writer="a",
        )

    records: list[Record] = [
        joined(0, "A", "A", cause="joined"),
        ended(10, "A"),
        got(1_000, "A", 0, 20, broker="b"),
        committed(1_500, "A", 20),
        got(2_000, "A", 20, 39, broker="b"),
        *(BrokerStopped(at=2_100, broker=each) for each in "ab"),
        *(BrokerStarted(at=60_000, broker=each) for each in "ab"),
        joined(61_000, "B", "AB", cause="joined"),
        left(90_000, "A", "B", cause="expired"),
        ended(90_020, "B", 3),
    ]
    assert costs(records).handoffs == []
    (row,) = costs([*records, committed(93_000, "B", 39)]).handoffs
    assert (row.broker, row.kind, row.from_client, row.to_client) == ("b", "moved", "A", "B")
    assert (row.pause_ms, row.redelivered) == (88_020, 19)
    assert (row.reprocessed_min, row.reprocessed_max) == (0, 19)
    # Nothing new was read: it may have been assigned and have waited.
    assert costs([*records, committed(93_000, "B", 20)]).handoffs == []
    # It was recorded, whoever was taken for its reader: nothing is added.
    recorded = got(90_050, "A", 20, 39, stored=1_900, broker="b")
    found = costs([*records, recorded, committed(93_000, "B", 39)])
    assert sum(one.redelivered for one in found.rebalances) == 19
    # What nobody had been delivered may have come just now.
    fresh = [*records[:4], *records[5:], committed(93_000, "B", 39)]
    assert [(one.pause_ms, one.redelivered) for one in costs(fresh).handoffs] == [(0, 0)]
