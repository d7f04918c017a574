"""What counts as one rebalance, when it began and why."""

from __future__ import annotations

import pytest
from tests.ledger.records import BOTH, READ, began, ended, got, joined, left, said, triggers, waits

from steelyard.ledger.cost import rebalances
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Committed, Record
from steelyard.ledger.starts import QUERY_CLIENT

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
    died = (20_000, "broker_died", "AB", "AB")
    assert died in triggers([*records, committed(22_000, "a")])
    assert died not in triggers([*records, committed(22_000, "")])


def test_a_member_that_dies_silently_is_gone_with_its_last_sign_of_life() -> None:
    """B expires at 60 000. Its last heartbeat was at 15 000, a delivery at 18 000, a commit at 19 500."""
    silent = left(60_000, "B", "A", cause="expired", heard=15_000)
    late: list[Record] = [got(18_000, "B", 0, 1), said(19_500, "B", 1)]
    for signs, began_at in (([], 15_000), (late[:1], 18_000), (late, 19_500)):
        row = rebalances([*BOTH, *signs, silent])[-1]
        assert (row.started_at, row.detect_ms) == (began_at, 60_000 - began_at)
        silent_s = (60_000 - began_at) / 1_000
        assert row.reason == f"B died: no sign of life for {silent_s:.1f} s"
    unknown = left(60_000, "B", "A", cause="expired")
    row = rebalances([*BOTH, unknown])[-1]
    assert (row.started_at, row.detect_ms) == (60_000, 0)


def test_what_was_waiting_during_an_outage_is_not_before_it() -> None:
    """B dies at 20 000, which shows at 60 000; the backlog grows from 2 to 400, and is gone at 61 000."""
    records: list[Record] = [
        *BOTH,
        got(19_000, "B", 0, 1, until=20_000),
        waits(9_000, 2),
        waits(20_000, 2),
        waits(60_000, 400),
        left(60_000, "B", "A", cause="expired", heard=12_000),
        got(60_200, "A", 1, 401, stored=20_000),
        waits(61_000, 0),
    ]
    row = rebalances(records)[-1]
    assert (row.started_at, row.spike) == (20_000, 200)
    assert row.drain_ms is not None
    assert 40_900 < row.drain_ms < 41_000


def test_a_rebalance_that_began_within_another_gets_what_happens_after_it_is_known() -> None:
    """B dies at 20 000, C joins at 30 000, B's death shows at 60 000; queue 0 goes to C, queue 1 to A."""
    records: list[Record] = [
        *BOTH,
        got(19_000, "B", 0, 1, queue=1, until=20_000),
        got(29_000, "A", 0, 1),
        joined(30_000, "C", "ABC"),
        got(32_000, "C", 1, 2, stored=29_500),
        left(60_000, "B", "AC", cause="expired", heard=20_000),
        got(61_000, "A", 1, 2, queue=1, stored=20_500),
    ]
    _, came, died = rebalances(records)
    assert (came.trigger, came.started_at, came.queues_moved) == ("joined", 30_000, 1)
    assert (died.trigger, died.started_at, died.queues_moved) == ("left (expired)", 20_000, 1)
    assert (died.rebalance, died.detect_ms) == ("g/60000", 40_000)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (joined(9_000, "C", "ABC"), "C joined"),
        (joined(9_000, "B", "AB", cause="subscription"), "B changed its topics"),
        (joined(9_000, "C", "ABC", cause="static"), "C came back"),
        (left(9_000, "B", "A"), "B left"),
        (left(9_000, "B", "A", cause="closed"), "B died: its connection closed"),
        (left(9_000, "B", "A", cause="replaced"), "B was replaced by a client with the same"),
        (BrokerStopped(at=9_000, broker="b"), "b stopped"),
        (BrokerStarted(at=9_000, broker="b"), "b started"),
    ],
)
def test_reasons_are_in_words(record: Record, words: str) -> None:
    stopped = [BrokerStopped(at=8_000, broker="b")] if isinstance(record, BrokerStarted) else []
    assert words in rebalances([*BOTH, *READ, *stopped, record])[-1].reason


def test_a_broker_that_notes_who_leaves_while_it_stops_has_not_died() -> None:
    records = EXAMPLES["a broker stops and starts, members come back to it one by one"][0]
    assert [row.reason for row in rebalances(records)] == [
        "A joined; B joined",
        "b stopped",
        "b started",
    ]


def test_all_events_of_one_rebalance_are_its_reason() -> None:
    (row,) = rebalances(BOTH)
    assert row.reason == "A joined; B joined"


QUERY = f"{QUERY_CLIENT}4711"


def test_a_query_that_makes_its_group_known_is_no_rebalance() -> None:
    assert rebalances([joined(0, QUERY, [QUERY]), left(10, QUERY, [])]) == []


def test_a_query_in_a_group_with_members_is_an_event() -> None:
    """The members may have divided the queues anew."""
    events = [*BOTH, joined(9_000, QUERY, ["A", "B", QUERY])]
    assert [row.reason for row in rebalances(events)][1:] == ["spark@4711 joined"]
