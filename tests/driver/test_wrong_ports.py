"""Clients at a port of something else: the error says what is there, as far as it can be known, and what to check."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steelyard import KafkaConsumer, Producer, PullConsumer, RemotingError
from steelyard.driver.loops import background
from steelyard.errors import CallTimeoutError, SteelyardError
from steelyard.servers.server import serve_broker, serve_nameserver

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS = bytes.fromhex("15030300020246")
SETTINGS = bytes.fromhex("000012040000000000") + bytes(18)
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"

ANSWERS = [
    (HTTP, "an HTTP server answers at this address"),
    (TLS, "a TLS server"),
    (SETTINGS, "an HTTP/2 server"),
    (SSH, "says 'SSH-2.0-OpenSSH_9.2'"),
    (b"", "before it answered"),
]
IDS = ["http", "tls", "http2", "ssh", "nothing"]


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """A server that says this to whoever has sent something; one that says nothing hangs up instead."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
                peer.recv(65536)
                peer.sendall(answer)
            except OSError:
                return
            if answer:
                taken.append(peer)
            else:
                peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)
        for peer in taken:
            peer.close()


def asked_by_kafka(address: str) -> SteelyardError:
    with KafkaConsumer(
        bootstrap_servers=address, group_id="g", default_api_timeout_ms=500
    ) as consumer:
        while True:
            with pytest.raises(CallTimeoutError) as raised:
                consumer.partitions_for_topic("t")
            if address in str(raised.value):  # else there was no answer yet
                return raised.value


def asked_by_remoting(address: str) -> SteelyardError:
    with PullConsumer("g", address) as reader, pytest.raises(RemotingError) as raised:
        reader.queues("t")
    return raised.value


@pytest.mark.parametrize(("answer", "text"), ANSWERS, ids=IDS)
def test_a_kafka_consumer(answer: bytes, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "steelyard"), stranger(answer) as address:
        error = str(asked_by_kafka(address))
    for said in (error, caplog.text):
        assert text in said
        assert "not a Kafka broker" in said
        assert address in said
    assert caplog.text.count("cannot get the cluster's metadata") == 1


@pytest.mark.parametrize(("answer", "text"), ANSWERS, ids=IDS)
def test_a_pull_consumer(answer: bytes, text: str) -> None:
    with stranger(answer) as address:
        error = str(asked_by_remoting(address))
    assert text in error
    assert "not a RocketMQ nameserver or broker" in error
    assert address in error


def test_a_producer() -> None:
    with (
        stranger(HTTP) as address,
        Producer("p", address) as producer,
        pytest.raises(SteelyardError, match="an HTTP server answers at this address"),
    ):
        producer.send("t", b"x", timeout_ms=30_000)


def test_at_the_other_ports_of_steelyard(tmp_path: Path) -> None:
    loop = background()
    nameserver = loop.wait(serve_nameserver(port=0))
    broker = loop.wait(serve_broker(str(tmp_path), port=0, kafka_port=0))
    try:
        for address in (nameserver.address, broker.address):
            assert "not a Kafka broker" in str(asked_by_kafka(address))
        assert "not a RocketMQ" in str(asked_by_remoting(broker.kafka))
    finally:
        loop.wait(broker.stop())
        loop.wait(nameserver.stop())
