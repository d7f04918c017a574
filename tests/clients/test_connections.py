"""Unmodified clients at a broker that has as many connections as it may: they come in as soon as there is room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from tests.clients.aio import AioKafka
from tests.clients.confluent import Confluent
from tests.clients.crowd import BOUND, KAFKA, crowd, insist, wait_refused
from tests.clients.kafka_python import KafkaPython
from tests.clients.libraries import Library, Sent
from tests.peers.kafka import servers

LIBRARIES = (Confluent, KafkaPython, AioKafka)


def test_a_full_broker(tmp_path: Path, name: str) -> None:
    """1. A producer is connected. 2. The listener gets full. 3. The producer goes on; others want to come in. 4. They do when
    there is room."""
    with servers.run_steelyard(
        tmp_path, "--kafka-set", f"max.connections.per.ip={BOUND}"
    ) as running:
        connected = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        connected.produce(name, b"connected")
        assert connected.flush(30) == 0
        arriving = []
        with crowd(running.bootstrap, KAFKA):
            for library in LIBRARIES:
                thread = threading.Thread(
                    target=insist, args=(sending(library, running, name), Exception)
                )
                arriving.append(thread)
                thread.start()
            wait_refused(tmp_path / "up.log")
            connected.produce(name, b"still there")
            assert connected.flush(30) == 0
        for thread in arriving:
            thread.join()
        found = Confluent(running.bootstrap).read(name, {0: 0}, 2 + len(LIBRARIES))
        values = [record.value for record in found]
        assert values[:2] == [b"connected", b"still there"]
        assert set(values[2:]) == {library.name.encode() for library in LIBRARIES}


def sending(library: type[Library], running: servers.Running, topic: str) -> Callable[[], object]:
    """Connect, send the library's name, close."""

    def send() -> None:
        client = library(running.bootstrap)
        try:
            client.send(topic, [Sent(library.name.encode())])
        finally:
            client.close()

    return send
