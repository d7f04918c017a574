"""The demo's fourth act: what a rebalance of its Kafka group cost, from three sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from demo.kafka_group import (
    BENCH_CLIENT,
    BENCH_EVENT,
    GROUP,
    Benched,
    Joined,
    Notes,
    Pauses,
    Tally,
    benched,
    joined,
    ledger_pauses_ms,
)

from steelyard.ledger.cost import costs
from steelyard.ledger.events import Delivered, MemberJoined, Record
from steelyard.ledger.tables import Costs

MS = 1_000_000


def noted(folder: Path, **lines: str) -> Notes:
    """Notes with the times in ms; lines by member."""
    files = {}
    for member, text in lines.items():
        files[member] = folder / member
        rows = [line.split() for line in text.strip().splitlines()]
        files[member].write_text("".join(f"{' '.join(row)}000000\n" for row in rows))
    return Notes.of(files)


def story(folder: Path) -> Notes:
    """Partition 7 goes from a to c, with a message twice; partition 8 stays with b.

    A line: flight, partition, offset, when it was sent, when it came.
    """
    return noted(
        folder,
        a="100 7 0 10 12 \n 101 7 1 20 22",
        b="102 8 0 10 13 \n 103 8 1 50 90",
        c="101 7 1 20 85 \n 104 7 2 60 86",
    )


def test_what_members_noted_is_counted(tmp_path: Path) -> None:
    notes = story(tmp_path)
    assert (notes.flights, notes.messages, notes.repeated) == ({100, 101, 102, 103, 104}, 5, 1)


def test_flights_are_counted_as_they_are_noted(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    tally = Tally()
    one.write_text("100 7 0 1 2\n10")
    assert tally.look([one]) == 1
    with one.open("a") as notes:
        notes.write("1 7 1 3 4\n")
    two.write_text("100 7 0 1 2\n102 8 0 1 2\n")
    assert tally.look([one, two]) == tally.look([two]) == 3


def test_a_pause_is_from_the_last_message_at_the_old_owner_while_messages_waited(
    tmp_path: Path,
) -> None:
    assert story(tmp_path).pauses_ms(30 * MS, 99 * MS) == {7: 63}
    (tmp_path / "idle").mkdir()
    idle = noted(tmp_path / "idle", a="100 7 0 10 12", c="101 7 1 60 85")
    assert idle.pauses_ms(30 * MS, 99 * MS) == {7: 25}
    assert idle.pauses_ms(90 * MS, 99 * MS) == {}


def test_half_of_the_pauses_and_the_longest() -> None:
    assert Pauses.of([3.5, 1, 2]) == Pauses(3, 2, 3.5)
    assert Pauses.of([]) == Pauses(0, 0, 0)


def delivered(group: str, client: str, at: int, first: int, stored: int) -> Delivered:
    return Delivered(
        at=at, broker="broker-a", group=group, client=client, topic="flights", queue=3,
        until=at, first=first, next=first + 1, count=1, stored=stored,
    )  # fmt: skip


def told(group: str, first_ms: int) -> list[Record]:
    """Queue 3 of broker-a goes from a to c, because c joins at 10,000."""
    members = [MemberJoined(
        at=at, broker="broker-a", group=group, client=client, cause="joined", members=after
    ) for at, client, after in ((500, "a", ("a",)), (10_000, "c", ("a", "c")))]  # fmt: skip
    deliveries = (
        delivered(group, "a", 10_020, 0, 10_019),
        delivered(group, "c", first_ms, 1, 10_030),
    )
    return [*members, *deliveries]


def cost_of_joining() -> Costs:
    """The ledger of two groups; the pauses are 60 and 370 ms."""
    return costs([*told(GROUP, 10_090), *told("delay-board", 10_400)])


def test_the_ledgers_pauses_are_those_of_the_groups_rebalances_in_that_time() -> None:
    assert ledger_pauses_ms(cost_of_joining(), 9_900 * MS, 20_000 * MS) == {("broker-a", 3): 60}
    assert ledger_pauses_ms(cost_of_joining(), 10_100 * MS, 20_000 * MS) == {}


def test_members_and_ledger_are_compared_queue_by_queue(tmp_path: Path) -> None:
    notes = noted(tmp_path, a="99 7 0 90 95 \n 100 7 1 10019 10021", c="101 7 2 10030 10092")

    def of(queue: int) -> Joined:
        places = {7: ("broker-a", queue)}
        return joined(notes, places, cost_of_joining(), 9_900 * MS, 20_000 * MS)

    one = of(3)
    assert (one.noted, one.by_ledger, one.moved_alike) == (
        Pauses(1, 62, 62),
        Pauses(1, 60, 60),
        True,
    )
    assert not of(4).moved_alike


def run(brokers_ms: dict[str, list[float]], client: str = BENCH_CLIENT) -> str:
    rows = [
        {
            "client": client,
            "event": BENCH_EVENT,
            "brokers": brokers,
            "stages": [{"moves": [{"pause_ns": ms * MS} for ms in pauses], "moved_ns": []}],
        }
        for brokers, pauses in brokers_ms.items()
    ]
    return json.dumps({"apache": {"Kafka": "4.3.1"}, "rows": rows})


def test_the_bench_is_quoted_from_the_newest_run_that_played_this(tmp_path: Path) -> None:
    assert benched(tmp_path) == []
    for name, text in (
        ("2026-11-21", run({"apache": [9_000], "steelyard": [9_000]})),
        ("2026-11-24", run({"apache": [3_000, 2_000.5, 4_000], "steelyard": [50]})),
        ("2026-11-25", run({"apache": [1]}, "RocketMQ Go")),
    ):
        (tmp_path / f"rebalance-{name}.json").write_text(text)
    assert benched(tmp_path) == [
        Benched("Steelyard", "2026-11-24", Pauses(1, 50, 50)),
        Benched("Apache Kafka 4.3.1", "2026-11-24", Pauses(3, 3_000, 4_000)),
    ]


def test_the_bench_of_this_repository_has_what_the_demo_quotes() -> None:
    assert [one.brokers.partition(" ")[0] for one in benched()] == ["Steelyard", "Apache"]


@pytest.mark.parametrize(
    "quoted", [[], [Benched("Apache Kafka 4.3.1", "2026-11-24", Pauses(3, 3_000, 4_000))]]
)
def test_rows_and_chart_show_the_same(quoted: list[Benched]) -> None:
    one = Joined(Pauses(5, 40, 61.4), Pauses(5, 39, 58), True, quoted)
    longest = [61.4, 58, *(4_000 for _ in quoted)]
    told = ["61 ms", "58 ms", *("4,000 ms" for _ in quoted)]
    assert [shown for _, shown, _ in one.rows()] == told
    (bars,) = one.section().figure.data
    assert [*bars.x] == longest
    assert [*bars.text] == told
    assert "5 partitions moved" in one.section().note
    assert ("2026-11-24" in one.section().note) is bool(quoted)


def test_where_nothing_moved_while_messages_came_there_is_no_figure() -> None:
    none = Pauses.of([])
    (noted, *_), (by_ledger, *_) = (row[1:] for row in Joined(none, none, True, []).rows())
    assert (noted, by_ledger) == ("–", "–")
    assert Joined(none, none, True, []).rows()[0][2].startswith("no partition moved")
