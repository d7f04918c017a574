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
from tests.peers.kafka.members import JAVA, KAFKA_PYTHON, LIBRDKAFKA, LONG_MS, Client, Group, python
from tests.peers.kafka.servers import Running
from tests.waiting import until

pytestmark = pytest.mark.peer

Scenario = Callable[[Running, Client, str, Path], None]

FENCED = "FENCED_INSTANCE_ID"
OURS = Client("steelyard", python("ours"), "range")
EACH = [OURS.using(name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")]
BOTH = [OURS.using(name) for name in ("range", "cooperative-sticky")]


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


@pytest.mark.parametrize("client", BOTH, ids=str)
@pytest.mark.parametrize(
    "scenario",
    [
        test_rebalance.test_members_come_and_go,
        test_rebalance.test_more_partitions_and_topics,
        test_timeouts.test_silent_members_are_expelled,
        test_static_members.test_a_static_member_comes_back,
    ],
    ids=lambda scenario: scenario.__name__.removeprefix("test_"),
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
