"""RocketMQ's Java client at a broker that has as many connections as it may."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.crowd import BOUND, REMOTING, crowd, insist, wait_refused
from tests.peers.apache import NEW, OLD, Peer, free_port
from tests.peers.kafka import servers

from steelyard import Admin

pytestmark = pytest.mark.peer


def test_a_full_broker(peers: dict[str, Peer], tmp_path: Path, name: str) -> None:
    """1. A producer of 4.9 is connected. 2. The broker gets full. 3. It goes on; sends of a producer of 5.x fail. 4. They
    succeed when there is room."""
    port = str(free_port())
    options = ("--max-connections", str(BOUND), "--broker-port", port)
    with servers.run_steelyard(tmp_path, *options) as running:
        with Admin(running.nameserver) as admin:
            admin.create_topic(name, queues=1, cluster="DefaultCluster")
        for java in peers.values():
            java.ask("producer", f"{name}p", running.nameserver, f"{name}pg")
        connected, arriving = peers[OLD], peers[NEW]
        connected.ask("send", f"{name}p", name, "s", 0, 1, 60)
        with crowd(f"127.0.0.1:{port}", REMOTING):
            with pytest.raises(AssertionError, match=r"Remoting\w*Exception|MQClientException"):
                arriving.ask("send", f"{name}p", name, "s", 1, 1, 60)
            wait_refused(tmp_path / "up.log")
            connected.ask("send", f"{name}p", name, "s", 2, 1, 60)
        insist(lambda: arriving.ask("send", f"{name}p", name, "s", 3, 1, 60), AssertionError)
        for java in peers.values():
            java.ask("stop", f"{name}p")
