"""Known defects of groups that migrate between Kafka's protocols, planted: the simulator must find each."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.sim.planted import run
from tests.sim.test_kafka_defects import failure

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.sim.scenario import Fault, load

PLANNED = load((Path(__file__).parents[2] / "scenarios" / "online_migration.toml").read_text())
"""It is downgraded 14.9 s after the beginning, and upgraded again by the next member."""

KILLED = replace(
    PLANNED,
    duplicates_max=-1,
    messages=200,
    faults=(
        *(fault for fault in PLANNED.faults if fault.at_ms < 15_000),
        Fault(kind="kill_broker", at_ms=15_000, for_ms=1_000, target="broker-a"),
    ),
)
"""The coordinator dies when the group has been downgraded, before it has rebalanced."""


def test_members_that_must_know_the_epoch_of_a_downgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: who was behind the group's epoch loses its partitions without a commit.

    Those whose heartbeats wait are never behind it for long.
    """
    monkeypatch.setattr(
        ClassicGroup, "is_in", lambda self, member_id, generation: generation == self.generation
    )
    assert "Kafka duplicates" in failure(replace(PLANNED, delayed_answers=False))


def test_a_downgrade_that_a_restart_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets the partitions of the member that left."""
    sound = run(KILLED)
    assert sound.failure is None
    assert sound.counts["kafka_deliveries"] >= 200
    monkeypatch.setattr(ClassicGroup, "is_downgraded", property(lambda self: False))
    assert "did not reach the Kafka group" in failure(replace(KILLED, settle_ms=20_000))
