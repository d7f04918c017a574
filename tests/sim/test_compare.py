"""What a setting changes in the cost of rebalances: the figures of runs, and the table."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace
from tests.sim.planted import run as quick_run

from steelyard.errors import ConfigError
from steelyard.ledger.tables import Costs, Handoff, Rebalance
from steelyard.sim import __main__ as command
from steelyard.sim.compare import Comparison, GroupCost, compare, summed, switches, table
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import Fault, Scenario

GROWING = Scenario(
    seed=5,
    brokers=2,
    members=2,
    clean_handover=False,
    kafka_members=2,
    kafka_assignor="cooperative-sticky",
    kafka_auto_commit=True,
    messages=350,
    first_message_ms=10_000,
    interval_ms=50,
    process_ms_max=10,
    faults=(
        Fault(kind="join", at_ms=15_000),
        Fault(kind="leave", target="kafka-0", at_ms=21_500),
    ),
)


def test_delayed_answers_make_rebalances_of_both_kinds_of_groups_cheaper() -> None:
    """1. A RocketMQ member joins: less is delivered again. 2. A Kafka member leaves: the others have its share at once."""
    found = compare(GROWING, "delayed_answers", 2, quick_run)
    assert not found.failures
    rocketmq_off, rocketmq_on, kafka_off, kafka_on = found.costs
    assert [each.group for each in found.costs] == ["group", "group", "kafka-group", "kafka-group"]
    assert rocketmq_off.moved == rocketmq_on.moved > 0
    assert rocketmq_on.redelivered < rocketmq_off.redelivered
    assert kafka_off.moved > 0
    assert kafka_on.shared_ms[-1] * 5 < kafka_off.shared_ms[-1]
    assert kafka_on.pauses_ms[-1] * 2 < kafka_off.pauses_ms[-1]


def rebalance(at: int, **fields: object) -> Rebalance:
    """One of a group of two that grows to three."""
    usual = Rebalance(
        group="g",
        rebalance=f"g/{at}",
        started_at=at,
        reason="",
        trigger="joined",
        members_before=("a", "b"),
        members_after=("a", "b", "c"),
        detect_ms=100,
        rebalance_ms=20,
        first_fetch_ms=None,
        queues_moved=1,
        queues_stalled=0,
        pause_p50_ms=0,
        pause_p99_ms=0,
        pause_max_ms=0,
        redelivered=3,
        reprocessed_min=1,
        reprocessed_max=2,
        spike=None,
        drain_ms=None,
    )
    return replace(usual, **fields)


def handoff(at: int, pause_ms: int) -> Handoff:
    """Of the rebalance that began at this time."""
    return Handoff(
        group="g",
        topic="t",
        broker="b",
        queue=0,
        kind="moved",
        from_client="a",
        to_client="c",
        last_delivery_ms=0,
        first_delivery_ms=0,
        pause_ms=pause_ms,
        first_fetch_ms=None,
        listener_pause_ms=None,
        redelivered=0,
        reprocessed_min=0,
        reprocessed_max=0,
        rebalance=f"g/{at}",
    )


def test_starts_and_ends_of_groups_do_not_count() -> None:
    first = Costs(
        [handoff(1, 9), handoff(2, 70), handoff(2, 30)],
        [rebalance(1, members_before=()), rebalance(2), rebalance(3, rebalance_ms=None)],
    )
    second = Costs([handoff(2, 50)], [rebalance(2, detect_ms=None), rebalance(4, members_after=())])
    assert summed([first, second], value=True) == [
        GroupCost(
            group="g",
            value=True,
            rebalances=3,
            moved=3,
            pauses_ms=(30, 50, 70),
            shared_ms=(20, 120),
            redelivered=9,
            reprocessed_max=6,
        )
    ]


def test_table() -> None:
    costs = (
        GroupCost(
            group="g",
            value=False,
            rebalances=3,
            moved=3,
            pauses_ms=(30, 50, 1_070),
            shared_ms=(),
            redelivered=9,
            reprocessed_max=6,
        ),
    )
    lines = table(Comparison(field="ordered", costs=costs)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["g", "off", "3", "3", "50", "ms", "1070", "ms", "-", "-", "9", "6"]
    ]
    assert lines[0].split()[:2] == ["group", "ordered"]


def test_settings_that_are_neither_on_nor_off_are_refused() -> None:
    assert "delayed_answers" in switches()
    assert "brokers" not in switches()
    with pytest.raises(ConfigError, match=f"expected one of {', '.join(switches())}"):
        compare(GROWING, "brokers", 1, quick_run)


def failing(scenario: Scenario, *, check_every: int, of: bool) -> RunOutcome:
    """A run of no time, which fails with one value of the setting."""
    failure = "it broke" if scenario.delayed_answers is of else None
    return RunOutcome(scenario=scenario, digest="", failure=failure, counts={})


@pytest.mark.parametrize("of", [False, True])
def test_runs_that_break_a_rule_fail_the_comparison(
    of: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run", partial(failing, of=of))
    assert command.main(["--seed", "7", "--compare", "delayed_answers", "--rounds", "2"]) == 1
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "it broke" in line] == [
        f"seed {seed}, delayed_answers {of}: it broke" for seed in (7, 8)
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seed", "7", "--compare", "brokers"], "expected one of"),
        (["--seed", "7", "--compare", "ordered", "--rounds", "0"], "--rounds 0"),
    ],
)
def test_arguments_that_are_wrong(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_several_seeds_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--seeds", "1..3", "--compare", "ordered"])
    assert "needs --scenario or --seed" in capsys.readouterr().err
