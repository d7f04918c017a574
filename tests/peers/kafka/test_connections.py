"""Java's producer at a broker that has as many connections as it may."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients.confluent import Confluent
from tests.clients.crowd import BOUND, KAFKA, crowd, wait_refused
from tests.peers.apache import java_environment
from tests.peers.kafka import builds, servers
from tests.peers.kafka.servers import QUICK_START, QUIET
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer


def test_a_full_broker(tmp_path: Path, name: str) -> None:
    """It tries again by itself until there is room; who is connected goes on meanwhile."""
    jars = f"{builds.jars('server', builds.SERVER)}/*"
    java = ["java", *QUICK_START, QUIET, "-cp", jars, "org.apache.kafka.tools.ConsoleProducer"]
    with servers.run_steelyard(tmp_path, "--kafka-set", f"max.connections={BOUND}") as running:
        connected = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        connected.produce(name, b"connected")
        assert connected.flush(30) == 0
        with crowd(running.bootstrap, KAFKA):
            arriving = subprocess.Popen(
                [*java, "--bootstrap-server", running.bootstrap, "--topic", name],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=java_environment(),
            )
            assert arriving.stdin is not None
            arriving.stdin.write(b"arrived\n")
            arriving.stdin.close()
            wait_refused(tmp_path / "up.log")
            connected.produce(name, b"still there")
            assert connected.flush(30) == 0
        assert arriving.wait(PATIENCE_S) == 0
        found = Confluent(running.bootstrap).read(name, {0: 0}, 3)
        assert [record.value for record in found] == [b"connected", b"still there", b"arrived"]
