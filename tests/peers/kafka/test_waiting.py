"""Answers that wait cost unmodified clients nothing: docs/REBALANCING.md. What they are worth, `gaps` measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers.kafka import servers
from tests.peers.kafka.gaps import options
from tests.peers.kafka.members import ALL, Client, Group
from tests.peers.kafka.servers import Running

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def waiting_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("waiting")
    with servers.run_steelyard(folder, *options(delayed=True)) as running:
        yield running


@pytest.mark.parametrize("client", ALL, ids=str)
def test_no_client_complains_or_leaves(
    waiting_kafka: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two share four partitions through many waits. 2. One leaves, and the other gets all. 3. Nobody told an error, or lost anything before."""
    with Group(waiting_kafka, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        group.send(partitions)
        group.join(client, "m1")
        group.join(client, "m2")
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        shared = {member: len(one.events) for member, one in group.members.items()}
        group.wait_heard(partitions)
        group.send(partitions)
        group.wait_read()
        for member, one in group.members.items():
            later = [event["event"] for event in one.events[shared[member] :]]
            assert set(later) <= {"committed"}, json.dumps(one.events)
        group.leave("m2")
        group.wait_shared(partitions)
