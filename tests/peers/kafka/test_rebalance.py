"""What makes a group rebalance, with every client: members come and go, more partitions, a new topic under a pattern."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peers.kafka.members import ALL, Client, Group
from tests.peers.kafka.servers import Running

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("client", ALL, ids=str)
def test_members_come_and_go(cluster: Running, client: Client, name: str, tmp_path: Path) -> None:
    """1. Two share four partitions. 2. Two more come. 3. One leaves in order, and no session must expire for it. 4. No record is lost."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        group.send(partitions)
        group.join(client, "m1")
        group.join(client, "m2")
        group.wait_shared(partitions)
        group.join(client, "m3")
        group.join(client, "m4")
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        group.leave("m2")
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()


@pytest.mark.parametrize("client", ALL, ids=str)
def test_more_partitions_and_topics(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two share two partitions. 2. The topic gets two more. 3. A topic comes that the pattern matches, with a pattern."""
    by = {"pattern": rf"^{name}(\.new)?$"} if client.knows_patterns else {"topics": name}
    with Group(cluster, name, tmp_path, **by) as group:
        partitions = group.create_topic(name, 2)
        group.send(partitions)
        group.join(client, "m1")
        group.join(client, "m2")
        group.wait_shared(partitions)
        partitions = group.more_partitions(name, 4)
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        if client.knows_patterns:
            partitions |= group.create_topic(f"{name}.new", 2)
            group.wait_shared(partitions)
            group.send(partitions)
            group.wait_read()
