"""A short kill storm; `python tests/crash/storms.py` runs long ones. And the first start of `up`, under a client."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.crash.storms import Storm, _client, _patiently
from tests.peers.apache import free_port
from tests.waiting import until

STEELYARD = str(Path(sys.executable).with_name("steelyard"))


def test_nothing_changes_when_all_is_killed_in_any_order(tmp_path: Path) -> None:
    lines: list[str] = []
    Storm(tmp_path, 848, lines.append).run(4)
    assert len(lines) == 4


def _free(*ports: int) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                server = stack.enter_context(socket.socket())
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def up(folder: Path, ports: tuple[int, int], *, kill: bool) -> Iterator[None]:
    """`steelyard up --brokers 2` at these ports (nameserver, Kafka); at the end it is stopped, or killed with its brokers."""
    command = [
        *(STEELYARD, "up", "--brokers", "2", "--data", str(folder), "--json"),
        *("--nameserver-port", str(ports[0]), "--broker-port", "0", "--kafka-port", str(ports[1])),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["kafka"]
        yield
    finally:
        (process.kill if kill else process.terminate)()
        process.wait(60)
        process.stdout.close()
        until(lambda: _free(ports[0], ports[1], ports[1] + 1), "the brokers have ended, too")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_offsets_committed_after_a_first_start_under_a_client_are_there_after_the_next(
    tmp_path: Path, kill: bool
) -> None:
    """1. A client asks for its coordinator while both brokers start for the first time. 2. Groups commit. 3. After the next
    start, with the client asking all the while, their offsets are what they were."""
    ports = free_port(), free_port(around=(1,))
    bootstrap = f"127.0.0.1:{ports[1]},127.0.0.1:{ports[1] + 1}"
    groups = {f"group-{number}": number + 1 for number in range(8)}
    keepers = {
        name: Consumer(_client(bootstrap) | {"group.id": name, "enable.auto.commit": False})
        for name in groups
    }
    ending = threading.Event()

    def poll() -> None:
        asking = Consumer(_client(bootstrap) | {"group.id": "early"})
        while not ending.is_set():
            try:
                asking.committed([TopicPartition("orders", 0)], timeout=0.2)
            except KafkaException:
                continue
        asking.close()

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        with up(tmp_path, ports, kill=kill):
            admin = AdminClient(_client(bootstrap))
            new = NewTopic("orders", 1, 1)
            _patiently(lambda: admin.create_topics([new])["orders"].result())
            for name, offset in groups.items():
                place = TopicPartition("orders", 0, offset)
                keeper = keepers[name]
                _patiently(lambda: keeper.commit(offsets=[place], asynchronous=False))  # noqa: B023
        with up(tmp_path, ports, kill=kill):
            found = {}
            for name, keeper in keepers.items():
                place = TopicPartition("orders", 0)
                (told,) = _patiently(lambda: keeper.committed([place], timeout=5))  # noqa: B023
                found[name] = told.offset
            assert found == groups
    finally:
        ending.set()
        polling.join()
        for keeper in keepers.values():
            keeper.close()
