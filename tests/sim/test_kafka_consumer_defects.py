"""Known defects of KIP-848 groups, planted: the simulator must find each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.sim.planted import run
from tests.sim.test_kafka_defects import CALM as CLASSIC
from tests.sim.test_kafka_defects import failure

from steelyard.groups.kafka.consumer import groups, waiting
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember
from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.machine import ConsumerMember
from steelyard.groups.kafka.member.consumer.share import AssignedShare
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.sim.scenario import Fault
from steelyard.types import numbers_by_topic
from steelyard.wire.kafka.messages.consumer_groups import Assignment, TopicPartitions

CALM = replace(CLASSIC, kafka_protocol="consumer", kafka_assignor="uniform")
FREEZES = (
    *CALM.faults,
    Fault(kind="freeze", target="kafka-1", at_ms=7_500, for_ms=9_000),
)
"""The application does not poll while a member joins: it keeps its partitions, and reads on then."""


@pytest.mark.parametrize(
    ("assignor", "auto_commit", "delayed_answers"),
    [("uniform", True, True), ("uniform", False, False), ("range", False, True)],
)
def test_sound_nodes_are_found_sound(
    assignor: str, *, auto_commit: bool, delayed_answers: bool
) -> None:
    """Members that leave in order, and others that join, make nobody get a message twice, and nobody is expelled."""
    scenario = replace(
        CALM,
        kafka_assignor=assignor,
        kafka_auto_commit=auto_commit,
        delayed_answers=delayed_answers,
    )
    outcome = run(scenario)
    assert outcome.failure is None
    assert outcome.counts["kafka_deliveries"] == 60
    assert outcome.counts["kafka_commits"] > 0


def assigns_what_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that tells members their targets, whoever still has what is in them."""

    def assignment_of(group: ConsumerGroup, member: ConsumerGroupMember) -> Assignment:
        target = numbers_by_topic(sorted(group.target(member.member_id)))
        return Assignment([TopicPartitions(group.id_of(topic), n) for topic, n in target.items()])

    monkeypatch.setattr(groups, "assignment_of", assignment_of)


def test_a_coordinator_that_gives_a_partition_to_two_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = replace(CALM, faults=FREEZES)
    assert run(frozen).failure is None
    assigns_what_others_have(monkeypatch)
    assert "is given to" in failure(frozen)
    assert "is heard in epoch" in failure(replace(frozen, duplicates_max=-1))


def test_a_member_that_tells_before_its_application_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = ConsumerMember._go_on

    def go_on(self: ConsumerMember, now: int, orders: list[events.Effect]) -> None:
        sound(self, now, orders)
        if orders and isinstance(orders[-1], events.Adopt):
            self._share.end_adoption()
            self._said.forget()
            self._timer.hurry()

    monkeypatch.setattr(ConsumerMember, "_go_on", go_on)
    assert "is given to" in failure(replace(CALM, faults=FREEZES))


def test_a_member_that_does_not_join_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off for longer than its session, and goes on as if nothing had happened."""
    cut = replace(
        CALM,
        kafka_session_timeout_ms=6_000,
        duplicates_max=-1,
        faults=(Fault(kind="partition", target="kafka-0", at_ms=9_000, for_ms=12_000),),
    )
    assert run(cut).failure is None
    monkeypatch.setattr(ConsumerMember, "_lost", lambda self, name, orders: None)
    assert "the Kafka group is in generations" in failure(cut)


def test_a_wait_that_is_longer_than_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member is expelled, and what it has is given to another one: whichever is seen first."""
    waits = replace(CALM, delayed_answers=True)
    monkeypatch.setattr(waiting, "wait_ms", lambda most_ms, session_ms: session_ms + 5_000)
    monkeypatch.setattr(waiting.LateHeartbeats, "check", lambda self, groups, timers: None)
    found = failure(waits)
    assert "is expelled: nothing failed" in found or "is given to" in found


def test_a_member_that_hands_over_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    automatic = replace(CALM, kafka_auto_commit=True)
    monkeypatch.setattr(Holdings, "consumed", lambda self, partitions: {})
    assert "Kafka duplicates" in failure(automatic)


def test_a_member_that_never_takes_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AssignedShare, "is_outdated", lambda self, topics: False)
    assert "did not reach the Kafka group" in failure(replace(CALM, settle_ms=20_000))
