"""The history that the ledger's rows make: open rows are replaced, final ones stay, and all of it is bounded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steelyard.groups.flapping import FLAPS_MIN
from steelyard.ledger.stream import OutputRow, Taken
from steelyard.ledger.tables import GroupEvent, Handoff, Rebalance, TableRow
from steelyard.web.console import history
from steelyard.web.console.history import LedgerHistory, kafka_key, remoting_key


def rebalance(at: int, moved: int = 1, group: str = "g") -> Rebalance:
    return Rebalance(
        group=group,
        rebalance=f"{group}/{at}",
        started_at=at,
        reason="b joined",
        trigger="joined",
        members_before=("a",),
        members_after=("a", "b"),
        detect_ms=1,
        rebalance_ms=20,
        first_fetch_ms=3,
        queues_moved=moved,
        queues_stalled=1,
        pause_p50_ms=7,
        pause_p99_ms=8,
        pause_max_ms=9,
        redelivered=12,
        reprocessed_min=10,
        reprocessed_max=11,
        spike=1.5,
        drain_ms=None,
    )


def handoff(at: int, queue: int, kind: str, pause_ms: int) -> Handoff:
    return Handoff(
        group="g",
        topic="t",
        broker="b",
        queue=queue,
        kind=kind,
        from_client="a",
        to_client="b" if kind == "moved" else "a",
        last_delivery_ms=at,
        first_delivery_ms=at + pause_ms,
        pause_ms=pause_ms,
        first_fetch_ms=None,
        listener_pause_ms=None,
        redelivered=0,
        reprocessed_min=5,
        reprocessed_max=6,
        rebalance=f"g/{at}",
    )


def taken(*rows: tuple[TableRow, bool], groups: set[str] | None = None) -> Taken:
    """What came of some messages; `groups`: all whose open rows are among these."""
    return Taken(groups or {"g"}, [OutputRow("g", *row) for row in rows], {}, 0, 0)


def test_open_rows_are_replaced_and_final_ones_stay() -> None:
    kept = LedgerHistory(0)
    assert kept.last_at("g") is None
    kept.take(taken((rebalance(1_000), False), (handoff(1_000, 0, "moved", 9), False)))
    kept.take(taken((rebalance(2_000, moved=2), True), (handoff(2_000, 1, "moved", 4), True)))
    assert [one.moved for one in kept.rebalances("g", 9, remoting_key)] == [2, 1]
    kept.take(
        taken((rebalance(2_100, moved=3), True))
    )  # an earlier event turned out to be its cause
    found = kept.rebalances("g", 9, remoting_key)
    assert [(one.id, one.moved, len(one.handoffs)) for one in found] == [
        ("g/2100", 3, 0),
        ("g/1000", 1, 1),
    ]
    assert kept.last_at("g") == 2_100
    assert [one.id for one in kept.rebalances("g", 1, remoting_key)] == ["g/2100"]
    assert kept.rebalances("other", 9, remoting_key) == []


def test_a_row_as_it_is_shown() -> None:
    kept = LedgerHistory(0)
    rows = [handoff(1_000, 3, "moved", 9), handoff(1_000, 1, "stalled", 5)]
    kept.take(taken((rebalance(1_000), False), *((row, False) for row in rows)))
    (found,) = kept.rebalances("g", 9, kafka_key({("t", "b", 3): 6}))
    assert (found.pause_ms, found.pause_p50_ms, found.stalled_ms, found.took_ms) == (9, 7, 5, 20)
    assert (found.reprocessed, found.reprocessed_upper, found.spike) == (10, 11, 1.5)
    assert (found.at, found.noticed_at, found.ended_at) == (1_000, 1_001, 1_021)
    assert {(one.reprocessed, one.reprocessed_upper) for one in found.handoffs} == {(5, 6)}
    assert [(one.queue, one.from_, one.to, one.pause_ms) for one in found.handoffs] == [
        ("t/6", "a", "b", 9),
        ("t/1", "a", "a", 5),
    ]


def test_when_a_rebalance_was_noticed_and_ended_is_not_always_known() -> None:
    kept = LedgerHistory(0)
    unseen, unended = replace(rebalance(1_000), detect_ms=None), rebalance(2_000)
    unended = replace(unended, rebalance_ms=None)
    kept.take(taken((unseen, False), (unended, False)))
    found = kept.rebalances("g", 9, remoting_key)
    assert [(one.noticed_at, one.ended_at) for one in found] == [(2_001, None), (None, 1_020)]


def test_what_was_read_again_replaces_what_was_read_before() -> None:
    """But for rows that began before what was read, which stay, and are final."""
    kept, fresh = LedgerHistory(0), LedgerHistory(0)
    kept.take(taken(*((rebalance(at, moved=at), True) for at in (1_000, 2_000, 3_000))))
    rows = [(rebalance(at, moved=9), True) for at in (1_500, 2_000, 4_000)]
    fresh.take(taken(*rows, (handoff(4_000, 0, "moved", 9), True)))
    kept.renew(fresh, 1_900)
    found = kept.rebalances("g", 9, remoting_key)
    assert [(one.at, one.moved) for one in found] == [(4_000, 9), (2_000, 9), (1_000, 1_000)]
    assert len(found[0].handoffs) == 1
    kept.take(taken((rebalance(5_000), True)))  # open rows are replaced
    assert [one.at for one in kept.rebalances("g", 9, remoting_key)] == [5_000, 1_000]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "REBALANCES_MAX", 2)
    monkeypatch.setattr(history, "GROUPS_MAX", 2)
    monkeypatch.setattr(history, "HANDOFFS_MAX", 1)
    kept = LedgerHistory(0)
    rows: list[tuple[TableRow, bool]] = [(rebalance(at), False) for at in (3_000, 1_000, 2_000)]
    kept.take(taken(*rows, (handoff(3_000, 0, "moved", 1), False)))
    kept.take(taken((handoff(3_000, 1, "moved", 1), False)))
    found = kept.rebalances("g", 9, remoting_key)
    assert [one.at for one in found] == [3_000, 2_000]
    assert len(found[0].handoffs) == 1
    for group in ("h", "i"):
        row = OutputRow(group, rebalance(1, group=group), False)
        kept.take(Taken({group}, [row], {}, 0, 0))
    assert kept.last_at("g") is None
    assert kept.last_at("i") == 1


def test_clients_that_come_and_go_flap() -> None:
    kept = LedgerHistory(0)

    def event(at: int, kind: str, process: int) -> tuple[TableRow, bool]:
        row = GroupEvent(
            group="g",
            at=at,
            broker="b",
            kind=kind,
            client=f"10.0.0.1@{process}",
            cause="",
            members=(),
        )
        return row, False

    for number in range(FLAPS_MIN):
        assert kept.flapping("g", 10_000) == []
        kept.take(
            taken(event(10 * number, "joined", number), event(10 * number + 5, "left", number))
        )
    (found,) = kept.flapping("g", 10_000)
    assert (found.member, found.joins) == ("10.0.0.1", FLAPS_MIN)
