"""Scenarios as text, and the committed ones."""

from pathlib import Path

import pytest

from steelyard.errors import ConfigError
from steelyard.sim.drawing import draw
from steelyard.sim.run import run
from steelyard.sim.scenario import FAULT_KINDS, Fault, Scenario, dump, load

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_committed_scenario_keeps_the_rules(path: Path) -> None:
    scenario = load(path.read_text())
    assert scenario.name == path.stem
    outcome = run(scenario, check_every=4)
    assert outcome.failure is None, (
        f"python -m steelyard.sim --scenario scenarios/{path.name} --trace"
    )
    assert outcome.counts["faults"] >= len(scenario.faults) > 0
    kept = sum(outcome.counts[name] for name in ("acknowledged", "committed", "delayed"))
    assert kept > scenario.messages // 2
    assert outcome.counts["deliveries"] > 0


def test_every_kind_of_fault_has_a_committed_scenario() -> None:
    kinds = {fault.kind for path in FILES for fault in load(path.read_text()).faults}
    assert kinds == set(FAULT_KINDS)


@pytest.mark.parametrize("seed", range(30))
def test_a_drawn_scenario_survives_being_written_and_read(seed: int) -> None:
    assert load(dump(draw(seed))) == draw(seed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("brokers = 'two'", "brokers"),
        ("broker = 2", "broker"),
        ("[[faults]]\nkind = 'flood'\nat_ms = 1", "flood"),
        ("[[faults]]\nkind = 'join'", "at_ms"),
        ("[[faults]]\nkind = 'power_broker'\nat_ms = 1", "flush"),
        ("members = ", "not a scenario"),
    ],
)
def test_what_is_no_scenario_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load(text)


def test_the_ledger_of_a_run_tells_its_hand_overs() -> None:
    faults = (Fault(kind="join", at_ms=10_000), Fault(kind="kill_member", at_ms=20_000))
    outcome = run(Scenario(seed=3, members=1, faults=faults))
    assert outcome.failure is None
    assert {"broker_started", "joined", "left", "delivered", "committed"} <= {
        type(record).__struct_config__.tag for record in outcome.ledger
    }
    assert outcome.counts["rebalances"] >= 2
