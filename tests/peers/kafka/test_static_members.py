"""Static members (KIP-345) of every client that has them: back within the session, they get what they had, and nobody else moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peers.kafka.members import (
    AIOKAFKA,
    FRANZ,
    JAVA,
    JAVA_OLD,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    LONG_MS,
    SARAMA,
    Client,
    Group,
)
from tests.peers.kafka.servers import Running
from tests.waiting import until

pytestmark = pytest.mark.peer

FENCED = [JAVA_OLD, JAVA, FRANZ, SARAMA, LIBRDKAFKA]
CLIENTS = [*FENCED, KAFKA_PYTHON, AIOKAFKA]
"""The last two do not tell their application that they are fenced."""


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_static_member_comes_back(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two share four partitions. 2. One is killed and comes back, within its session. 3. The other was told nothing."""
    with Group(cluster, name, tmp_path, topics=name, session_ms=LONG_MS, poll_ms=LONG_MS) as group:
        partitions = group.create_topic(name, 4)
        group.join(client, "m1", instance="i1")
        stays = group.join(client, "m2", instance="i2")
        group.wait_shared(partitions)
        held = {member: set(group.members[member].held) for member in ("m1", "m2")}
        told = len(stays.changes())
        group.kill("m1")
        group.join(client, "m1", instance="i1")
        group.wait_shared(partitions)
        assert {member: group.members[member].held for member in held} == held
        group.send(partitions)
        group.wait_read()
        assert len(stays.changes()) == told


@pytest.mark.parametrize("client", FENCED, ids=str)
def test_the_older_of_two_with_one_instance_id_is_fenced(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two processes come with one group.instance.id. 2. The later one has everything, the older one fails."""
    with Group(cluster, name, tmp_path, topics=name, session_ms=LONG_MS, poll_ms=LONG_MS) as group:
        partitions = group.create_topic(name, 2)
        older = group.join(client, "m", instance="i")
        group.wait_shared(partitions)
        later = group.join(client, "m", instance="i")  # the coordinator keeps the client id, too
        group.wait_shared(partitions)
        group.members["older"] = older
        until(lambda: older.has_failed(), older)
        group.send(partitions)
        group.wait_read()
        assert {record["value"] for record in later.records} == group.sent
