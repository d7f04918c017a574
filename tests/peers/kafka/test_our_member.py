"""`steelyard.KafkaConsumer` beside Apache's clients, in the scenarios that all of them go through: it leads and follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.peers.kafka import (
    test_mixed_groups,
    test_rebalance,
    test_static_members,
    test_timeouts,
)
from tests.peers.kafka.members import CONSUMER as KIP_848
from tests.peers.kafka.members import JAVA, KAFKA_PYTHON, LIBRDKAFKA, LONG_MS, Client, Group, python
from tests.peers.kafka.servers import Running
from tests.waiting import until

pytestmark = pytest.mark.peer

Scenario = Callable[[Running, Client, str, Path], None]

FENCED = "FENCED_INSTANCE_ID"
OURS = Client("steelyard", python("ours"), "range")
EACH = [OURS.using(name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")]
BOTH = [OURS.using(name) for name in ("range", "cooperative-sticky")]
CONSUMER = OURS.using("uniform")
"""Of the consumer protocol (KIP-848)."""


@pytest.mark.parametrize("ours", EACH, ids=str)
@pytest.mark.parametrize("order", ["we lead", "we follow"])
def test_a_group_of_ours_and_theirs(
    cluster: Running, ours: Client, order: str, name: str, tmp_path: Path
) -> None:
    """1. One of each client shares a topic. 2. It gets more partitions. 3. They leave, the leader first; the last has all."""
    theirs = [JAVA, LIBRDKAFKA, KAFKA_PYTHON]
    if ours.assignor == "sticky":  # librdkafka has the cooperative one only
        theirs.remove(LIBRDKAFKA)
    clients = [ours, *(client.using(ours.assignor) for client in theirs)]
    if order == "we follow":
        clients.reverse()
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 8)
        group.send(partitions)
        for client in clients:
            group.join(client, client.name)
            group.wait_shared(partitions)
        test_mixed_groups.grow_and_leave(group, name, 12)


SCENARIOS = [
    test_rebalance.test_members_come_and_go,
    test_rebalance.test_more_partitions_and_topics,
    test_timeouts.test_silent_members_are_expelled,
]


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        *[(client, scenario) for client in (*BOTH, CONSUMER) for scenario in SCENARIOS],
        *[(client, test_static_members.test_a_static_member_comes_back) for client in BOTH],
    ],
    ids=lambda each: str(getattr(each, "__name__", each)).removeprefix("test_"),
)
def test_what_every_client_goes_through(
    cluster: Running, scenario: Scenario, client: Client, name: str, tmp_path: Path
) -> None:
    scenario(cluster, client, name, tmp_path)


@pytest.mark.parametrize("client", BOTH, ids=str)
def test_the_older_of_two_with_one_instance_id_is_fenced(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two processes come with one group.instance.id. 2. The later one has everything, the older one is told so."""
    with Group(cluster, name, tmp_path, topics=name, session_ms=LONG_MS, poll_ms=LONG_MS) as group:
        partitions = group.create_topic(name, 2)
        older = group.join(client, "older", instance="i")
        group.wait_shared(partitions)
        later = group.join(client, "later", instance="i")
        until(lambda: later.held == partitions, later)
        until(lambda: any(FENCED in str(event) for event in older.events), older)
        group.send(partitions)
        until(lambda: {one["value"] for one in later.records} >= group.sent, later)


# -- the consumer protocol -------------------------------------------------------------------------


def assert_consistent(group: Group) -> None:
    """No member was given what it had, lost what it lacked, or read what another member has read."""
    for member in (*group.members.values(), *group.gone):
        held: set[str] = set()
        for event in member.changes():
            partitions = set(event["partitions"])
            if event["event"] == "assigned":
                assert not held & partitions, member
                held |= partitions
            else:
                assert event["event"] == "revoked", member
                assert partitions <= held, member
                held -= partitions
    everyone = (*group.members.values(), *group.gone)
    read = [record["value"] for member in everyone for record in member.records]
    assert sorted(read) == sorted(group.sent)


@pytest.mark.parametrize("other", [CONSUMER, LIBRDKAFKA.using("uniform")], ids=str)
def test_a_kip_848_group_that_grows_and_shrinks(
    cluster: Running, other: Client, name: str, tmp_path: Path
) -> None:
    """1. One has six partitions. 2. Two more come. 3. Two leave in order. Every record is read once. 4. One of two is killed: the other
    gets all."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 6)
        for member, client in (("m1", CONSUMER), ("m2", other), ("m3", CONSUMER)):
            group.send(partitions)
            group.join(client, member)
            group.wait_shared(partitions)
            group.wait_read()
        for member in ("m1", "m2"):
            group.send(partitions)
            group.leave(member)
            group.wait_shared(partitions)
            group.wait_read()
        assert_consistent(group)
        group.join(other, "m4")
        group.wait_shared(partitions)
        group.kill("m4")
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()


def test_members_of_all_clients_share_a_topic(cluster: Running, name: str, tmp_path: Path) -> None:
    """1. One of each client that knows KIP-848 shares a topic with ours. 2. It gets more partitions. 3. They leave."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 8)
        group.send(partitions)
        for client in (CONSUMER, *KIP_848):
            group.join(client, client.name)
            group.wait_shared(partitions)
        test_mixed_groups.grow_and_leave(group, name, 12)


def test_a_static_member_of_a_kip_848_group_comes_back(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    """1. Two share four partitions. 2. One leaves, for now, and comes back within its session. 3. The other was told nothing.
    4. A third with the same instance id is refused, and told so."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        group.join(CONSUMER, "m1", instance="i1")
        stays = group.join(CONSUMER, "m2", instance="i2")
        group.wait_shared(partitions)
        held = set(group.members["m1"].held)
        told = len(stays.changes())
        group.leave("m1")
        until(group.gone[0].has_ended, group.gone[0])
        group.join(CONSUMER, "m1", instance="i1")
        group.wait_shared(partitions)
        assert group.members["m1"].held == held
        group.send(partitions)
        group.wait_read()
        assert len(stays.changes()) == told
        third = group.join(CONSUMER, "m3", instance="i1")
        until(lambda: any("UNRELEASED_INSTANCE_ID" in str(event) for event in third.events), third)
        assert group.members["m1"].held == held
