"""Members that fall silent, of every client, lose their partitions; those that wake up come back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.peers.kafka.members import ALL, Client, Group
from tests.peers.kafka.servers import HEARTBEAT_MS, SESSION_MS, Running

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("client", ALL, ids=str)
def test_silent_members_are_expelled(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Four share four partitions. 2. One is killed, one is frozen, the application of one stalls. 3. The fourth gets all, not before a
    session has passed. 4. Those that wake up join again. 5. No record is lost."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        group.send(partitions)
        for member in ("killed", "frozen", "stalled", "sound"):
            group.join(client, member)
        group.wait_shared(partitions)
        group.wait_read()
        began = time.monotonic()
        group.wait_heard(partitions)  # sessions begin again with what the coordinator hears
        group.members["frozen"].freeze()
        if client.leaves_when_stalled:
            group.members["stalled"].stall()
        else:
            group.leave("stalled")
        group.kill("killed")
        group.wait_shared(partitions, "sound")
        assert time.monotonic() - began >= (SESSION_MS - 2 * HEARTBEAT_MS) / 1000
        group.send(partitions)
        group.members["frozen"].thaw()
        if client.leaves_when_stalled:
            group.members["stalled"].go()
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
