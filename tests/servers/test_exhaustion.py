"""A cluster whose processes may open 256 files each, more idle connections than that, and clients that go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from steelyard import KafkaConsumer, Message, Producer, PullConsumer, RemotingError

T = TypeVar("T")

LIMIT = 256
IDLE = 1_100
"""Connections to each listener that say nothing."""

ROUNDS = 30


@contextmanager
def cluster(data: Path, flush: str) -> Iterator[tuple[dict[str, Any], subprocess.Popen[bytes]]]:
    command = f"ulimit -n {LIMIT}; exec {sys.executable} -m steelyard up --json --data {data}"
    command += f" --nameserver-port 0 --broker-port 0 --kafka-port 0 --flush {flush}"
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL
        )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def idle(address: str, held: list[socket.socket]) -> None:
    """Connect, and connect again what was closed, until so many are tried."""
    host, _, port = address.rpartition(":")
    for _ in range(IDLE):
        each = socket.socket()
        each.settimeout(60)
        try:
            each.connect((host, int(port)))
        except OSError:
            each.close()
        else:
            held.append(each)


def patiently(ask: Callable[[], T]) -> T:
    """Who comes while a flood goes on, and is slow to speak, may be closed: an error that is worth another try."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except RemotingError:
            assert time.monotonic() < deadline


def read(reader: PullConsumer) -> list[bytes]:
    """The bodies of all messages."""
    found: list[bytes] = []
    for queue in patiently(partial(reader.queues, "Orders")):
        result = patiently(partial(reader.pull, queue, 0, max_messages=100))
        found += [view.body for view in result.messages]
    return found


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_idle_connections_stop_neither_the_servers_nor_their_clients(
    tmp_path: Path, flush: str
) -> None:
    """1. A producer sends. 2. 1,100 connections to each listener of nameserver and broker say nothing. 3. The producer
    goes on, and clients that come now find room and read everything, through both listeners."""
    held: list[socket.socket] = []
    with cluster(tmp_path, flush) as (ready, process):
        nameserver, kafka = ready["nameserver"], ready["kafka"]
        broker = ready["brokers"]["broker-a"]
        with Producer("good", nameserver) as producer:
            producer.send("Orders", b"first")
            floods = [
                threading.Thread(target=idle, args=(address, held))
                for address in (broker, kafka, nameserver)
            ]
            for flood in floods:
                flood.start()
            for number in range(ROUNDS):
                producer.send("Orders", b"%d" % number)
            for flood in floods:
                flood.join()
            for number in range(ROUNDS):
                # Logs that have no file yet: each needs a descriptor.
                producer.send(Message(f"Other{number}", b"x"))
            with PullConsumer("readers", nameserver) as reader:
                found = read(reader)
            assert sorted(found) == sorted([b"first", *(b"%d" % n for n in range(ROUNDS))])
            with KafkaConsumer(
                "Orders",
                bootstrap_servers=kafka,
                group_id="readers",
                auto_offset_reset="earliest",
            ) as consumer:
                count = 0
                while count < ROUNDS + 1:
                    count += len(consumer.poll(timeout_ms=1000))
            producer.send("Orders", b"last")
        assert process.poll() is None
    for each in held:
        each.close()
    log = (tmp_path / "log").read_text()
    assert "in all" in log, "an operator is not told of refused connections"
    assert "CRITICAL" not in log
    assert "ended" not in log, log[-2000:]
    assert len(log.splitlines()) < 30, log[:3000]
    assert os.path.getsize(tmp_path / "log") < 20_000
