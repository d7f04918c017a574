"""Whatever a peer sends, nameserver and broker answer or close, and go on serving others."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.config import BrokerConfig
from steelyard.driver.loops import Background
from steelyard.servers.server import serve_broker, serve_nameserver
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import Decoder, encode

Address = tuple[str, int]

MEMORY_GROWTH_MAX = 200 * 1024 * 1024


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """Where a nameserver and a broker listen."""
    background = Background()
    folder = tmp_path_factory.mktemp("garbage")
    nameserver = background.wait(serve_nameserver(port=0))
    config = BrokerConfig(nameservers=(nameserver.address,))
    broker = background.wait(serve_broker(str(folder), port=0, config=config))
    background.wait(broker.registered(), 10)
    yield _address(nameserver.address), _address(broker.address)
    background.wait(broker.stop(), 10)
    background.wait(nameserver.stop(), 10)
    assert not broker.driver.failed.done()
    background.loop.call_soon_threadsafe(background.loop.stop)


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def ask(address: Address, code: int) -> Command:
    """A well-behaved peer's question and its answer."""
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(60)
        connection.sendall(encode(Command(code, opaque=5)))
        decoder = Decoder()
        while not (replies := decoder.feed(connection.recv(65536))):
            """Not whole yet."""
        return replies[0]


def throw(address: Address, data: bytes) -> None:
    """Send, read what comes for a moment, close."""
    with socket.create_connection(address, 10) as connection:
        connection.settimeout(0.02)
        try:
            connection.sendall(data)
            while connection.recv(65536):
                """Whatever it says."""
        except OSError:
            """A time-out, or the reset that garbage deserves."""


text = st.text(max_size=20)
wild_json = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Frames whose parts are plausible, wrong or cut."""
    names = st.sampled_from(
        [
            "topic",
            "queueId",
            "consumerGroup",
            "queueOffset",
            "a",
            "b",
            "e",
            "i",
            "bodyCrc32",
            "brokerId",
        ]
    )
    values = st.integers(-5, 2**40).map(str) | text | st.sampled_from(["T", "%RETRY%g", "true"])
    command = Command(
        code=draw(st.sampled_from(list(RequestCode)) | st.integers(0, 32767)),
        opaque=draw(st.integers(0, 2**31 - 1)),
        flag=draw(st.integers(0, 3)),
        ext=draw(st.dictionaries(names | text, values, max_size=14)),
        body=draw(st.binary(max_size=200) | wild_json.map(lambda value: repr(value).encode())),
    )
    data = encode(command)
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


lengths = st.sampled_from([0, 3, 4, 16_777_216, 16_777_217, 2**31 - 1, 2**31, 2**32 - 1])
headed = st.builds(
    lambda length, mark, rest: struct.pack(">II", length, mark) + rest,
    lengths | st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


@settings(max_examples=examples(150))
@given(data=st.binary(max_size=400) | headed | st.lists(frames(), max_size=4).map(b"".join))
def test_garbage_harms_nobody_else(servers: tuple[Address, Address], data: bytes) -> None:
    for address, code in zip(servers, (106, 28), strict=True):
        throw(address, data)
        assert ask(address, code).code == 0


def test_memory_stays_bounded(servers: tuple[Address, Address]) -> None:
    """200 peers announce 2 GB or 16 MB frames and send a part of them."""
    process = psutil.Process()
    before = process.memory_info().rss
    for address in servers:
        peers = [socket.create_connection(address, 10) for _ in range(100)]
        for number, peer in enumerate(peers):
            size = 2**31 - 1 if number % 2 else 16_000_000
            try:
                peer.sendall(struct.pack(">II", size, 100) + bytes(200_000))
            except OSError:
                """Closed already."""
        assert ask(address, 106 if address == servers[0] else 28).code == 0
        for peer in peers:
            peer.close()
    assert process.memory_info().rss - before < MEMORY_GROWTH_MAX
