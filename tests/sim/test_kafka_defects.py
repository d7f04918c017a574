"""Known defects of Kafka groups, planted: the simulator must find each."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from tests.sim.planted import run

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.member.classic.heartbeats import Heartbeats
from steelyard.groups.kafka.offsets import Offsets
from steelyard.nodes.consumer.kafka.contract import OffsetAndMetadata
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.nodes.consumer.kafka.lookups import Lookups
from steelyard.nodes.consumer.kafka.membership import Membership
from steelyard.sim.scenario import Fault, Scenario
from steelyard.store.tables import Table
from steelyard.types import TopicPartition

CALM = Scenario(
    seed=1,
    members=1,
    kafka_members=2,
    messages=60,
    process_ms_max=100,
    settle_ms=60_000,
    duplicates_max=0,
    faults=(
        Fault(kind="join", target="kafka", at_ms=8_000),
        Fault(kind="leave", target="kafka-0", at_ms=11_000),
    ),
)


def failure(scenario: Scenario) -> str:
    """The rule that was broken."""
    found = run(scenario).failure
    assert found is not None, "the planted defect was not found"
    return found


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "sticky"])
@pytest.mark.parametrize("auto_commit", [True, False])
def test_sound_nodes_are_found_sound(assignor: str, *, auto_commit: bool) -> None:
    """Members that leave in order, and others that join, make nobody get a message twice."""
    outcome = run(replace(CALM, kafka_assignor=assignor, kafka_auto_commit=auto_commit))
    assert outcome.failure is None
    assert outcome.counts["kafka_deliveries"] == 60
    assert outcome.counts["kafka_commits"] > 0


def test_a_coordinator_that_gives_a_partition_to_two_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = ClassicGroup.assign

    def assign(self: ClassicGroup, assignments: dict[str, bytes]) -> None:
        sound(self, dict.fromkeys(assignments, max(assignments.values())))

    monkeypatch.setattr(ClassicGroup, "assign", assign)
    assert "is given to" in failure(CALM)


def test_a_consumer_that_commits_beyond_what_was_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = Holdings.returned

    def returned(self: Holdings, unread: dict[TopicPartition, int]) -> dict[TopicPartition, object]:
        return {
            partition: told._replace(offset=told.offset + 1)
            for partition, told in sound(self, unread).items()
        }

    monkeypatch.setattr(Holdings, "returned", returned)
    found = failure(CALM)
    assert "commits" in found
    assert "is not finished" in found


def test_a_consumer_that_begins_behind_what_was_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = Lookups._took

    def took(self, lookup, partition, code, found, now, out) -> None:  # type: ignore[no-untyped-def]
        if isinstance(found, OffsetAndMetadata):
            found = found._replace(offset=found.offset + 1)
        sound(self, lookup, partition, code, found, now, out)

    monkeypatch.setattr(Lookups, "_took", took)
    assert "begins at" in failure(CALM)


def test_a_consumer_that_goes_on_with_what_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(self: Holdings, partitions: Iterable[TopicPartition]) -> None:
        return None

    monkeypatch.setattr(Holdings, "drop", drop)
    monkeypatch.setattr(Membership, "check", lambda self: None)
    assert "which it does not have" in failure(replace(CALM, kafka_auto_commit=True))


def test_a_consumer_that_hands_over_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    automatic = replace(CALM, kafka_auto_commit=True)
    monkeypatch.setattr(Holdings, "consumed", lambda self, partitions: {})
    assert "Kafka duplicates" in failure(automatic)
    assert "the Kafka group left at" in failure(replace(automatic, faults=(), duplicates_max=-1))


def test_a_member_that_finds_its_coordinator_and_gives_it_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stalls = (Fault(kind="stall", target="kafka-0", at_ms=16_500, for_ms=12_000),)
    stalled = replace(CALM, faults=stalls, duplicates_max=-1)
    assert run(stalled).failure is None
    monkeypatch.setattr(Heartbeats, "coordinator_found", lambda self, now: None)
    assert "Kafka group" in failure(stalled)


RESTARTS = (
    Fault(kind="restart_cluster", at_ms=12_000, for_ms=6_000),
    Fault(kind="kill_member", target="kafka-0", at_ms=15_000, for_ms=1_000),
    Fault(kind="restart_cluster", at_ms=36_000, for_ms=6_000, count=1),
)
"""A member is killed while nobody is there: the group shares out anew, and asks for its offsets."""


def test_coordinators_that_forget_offsets_with_the_whole_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarted = replace(
        CALM,
        brokers=2,
        messages=200,
        faults=RESTARTS,
        duplicates_max=-1,
        kafka_session_timeout_ms=6_000,
    )
    assert run(restarted).failure is None

    def forgetful(self: Offsets, table: Table) -> None:
        table.put_many([(key, None) for key, _ in list(table.items())])
        sound(self, table)

    sound = Offsets.__init__
    monkeypatch.setattr(Offsets, "__init__", forgetful)
    found = (run(replace(restarted, seed=seed)).failure or "" for seed in range(8))
    assert any("is lost" in text for text in found)
