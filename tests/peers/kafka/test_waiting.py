"""Answers that wait make rebalances of unmodified clients cheaper, and cost them nothing: docs/REBALANCING.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.peers.kafka import servers
from tests.peers.kafka.gaps import PROTOCOLS, measure, options
from tests.peers.kafka.members import ALL, Client, Group
from tests.peers.kafka.servers import Running

pytestmark = pytest.mark.peer

ROUNDS = 2
"""Chance decides when a member's next heartbeat is due: with one round it may be at once."""


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_partitions_stand_still_for_less_than_half_as_long(assignor: str, tmp_path: Path) -> None:
    """1. Two members with librdkafka's defaults read. 2. A third joins, and leaves. 3. The same without the setting. 4. Nobody complained."""
    longest: dict[bool, float] = {}
    for delayed in (True, False):
        with servers.run_steelyard(tmp_path / str(delayed), *options(delayed=delayed)) as running:
            found = [measure(running, assignor, f"t{number}") for number in range(ROUNDS)]
        assert all(not one.errors for one in found), found
        longest[delayed] = sum(one.join_s + one.leave_s for one in found)
    assert longest[True] < longest[False] / 2, longest


@pytest.mark.parametrize("client", ALL, ids=str)
def test_no_client_complains_or_leaves(
    steelyard_kafka: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Two share four partitions through many waits. 2. One leaves, and the other gets all. 3. Nobody told an error, or lost anything before."""
    with Group(steelyard_kafka, name, tmp_path, topics=name) as group:
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
