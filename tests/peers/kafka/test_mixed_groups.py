"""Members of all clients in one group: whichever leads, all take what it allocates."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peers.kafka.members import (
    CLASSIC,
    CONSUMER,
    FRANZ,
    JAVA,
    JAVA_OLD,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    Client,
    Group,
)
from tests.peers.kafka.servers import Running

pytestmark = pytest.mark.peer

GROUPS = {
    "range": tuple(client.using("range") for client in CLASSIC),
    "cooperative-sticky": tuple(
        client.using("cooperative-sticky")
        for client in (JAVA_OLD, JAVA, FRANZ, LIBRDKAFKA, KAFKA_PYTHON)
    ),
    "uniform": CONSUMER,
}


@pytest.mark.parametrize("clients", GROUPS.values(), ids=GROUPS)
def test_members_of_all_clients_share_a_topic(
    cluster: Running, clients: tuple[Client, ...], name: str, tmp_path: Path
) -> None:
    """1. A member of every client joins. 2. The topic gets more partitions. 3. They leave in turn, so that everyone leads once."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 12)
        group.send(partitions)
        for client in clients:
            group.join(client, client.name)
        group.wait_shared(partitions)
        grow_and_leave(group, name, 16)


def grow_and_leave(group: Group, topic: str, partitions_wanted: int) -> None:
    """The topic gets so many partitions; then the members leave in the order in which they came, but for the last."""
    partitions = group.more_partitions(topic, partitions_wanted)
    group.wait_shared(partitions)
    group.send(partitions)
    group.wait_read()
    for member in list(group.members)[:-1]:
        group.leave(member)
        group.wait_shared(partitions)
        group.send(partitions, 1)
    group.wait_read()
