"""Garbage against everything that reads what a peer sent: nothing but ProtocolError may come of it.

The long run against a live server is `fuzz_server`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from random import Random
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz import garbage

from steelyard.config import BrokerConfig, FlushMode, NameserverConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.seam import (
    Closed,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Hang,
    Node,
    Opened,
    Received,
    Send,
    SetTimer,
)
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.wire.remoting import bodies, fastjson, frame, headers
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, is_response
from steelyard.wire.remoting.dialect import loads
from steelyard.wire.remoting.message import batch_entries, decode_records, record_size
from steelyard.wire.remoting.properties import decode_properties

NOW = 1_700_000_000_000
BODY_KINDS = sorted(bodies.Body.__subclasses__(), key=lambda kind: kind.__name__)
HEADER_KINDS = sorted(headers.Header.__subclasses__(), key=lambda kind: kind.__name__)


# -- readers ---------------------------------------------------------------------------------------


class Reader(Protocol):
    def __call__(self, data: bytes, /) -> object: ...


READERS: list[Reader] = [
    lambda data: frame.Decoder(100_000).feed(data),
    lambda data: frame.decode_header(data, 0),
    lambda data: frame.decode_header(data, 1),
    loads,
    decode_records,
    lambda data: list(batch_entries(data)),
    record_size,
    decode_properties,
]


@given(st.binary(max_size=300), st.sampled_from(READERS))
@settings(max_examples=300)
def test_random_bytes(data: bytes, reader: Reader) -> None:
    with suppress(ProtocolError):
        reader(data)


@given(st.integers(0, 2**32), st.sampled_from(READERS))
@settings(max_examples=300)
def test_damaged_bytes(seed: int, reader: Reader) -> None:
    rng = Random(seed)
    good = rng.choice([*garbage.BODIES, garbage.whole_frame(rng), garbage.whole_frame(rng)[8:]])
    with suppress(ProtocolError):
        reader(garbage.mutated(rng, good))


@given(st.integers(0, 2**32), st.sampled_from(BODY_KINDS))
@settings(max_examples=300)
def test_damaged_bodies(seed: int, kind: type[bodies.Body]) -> None:
    rng = Random(seed)
    data = garbage.mutated(rng, rng.choice(garbage.BODIES))
    try:
        body = fastjson.read(kind, data)
    except ProtocolError:
        return
    assert fastjson.read(kind, fastjson.write(body)) == body


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_what_comes_out_of_the_decoder_goes_back_in(seed: int) -> None:
    rng = Random(seed)
    _, data = garbage.any_bytes(rng)
    try:
        commands = frame.Decoder().feed(data)
    except ProtocolError:
        return
    for command in commands:
        assert frame.Decoder().feed(frame.encode(command)) == [command]
        for kind in HEADER_KINDS:
            try:
                header = headers.read(kind, command.ext)
            except ProtocolError:
                continue
            assert headers.read(kind, headers.write(header)) == header


# -- servers ---------------------------------------------------------------------------------------


class Bench:
    """Drives one node with garbage, as a driver would: links, timers, flushes, and a clock."""

    def __init__(self, node: Node, rng: Random, late_codes: frozenset[int]) -> None:
        self.node = node
        self.rng = rng
        self.late_codes = late_codes
        self.now = NOW
        self.links: list[int] = []
        self.last_link = 0
        self.timers: dict[Hashable, int] = {}
        self.flushes: list[int] = []
        self.owed: Counter[tuple[int, int]] = Counter()
        self.replies: Counter[int] = Counter()
        self.take(node.start(self.now))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.rng.choice((0, 1, 10, 1000))
            self.step()
            self.node.check()

    def step(self) -> None:
        due = [key for key, at in self.timers.items() if at <= self.now]
        chance = self.rng.random()
        if due:
            del self.timers[due[0]]
            self.handle(Due(due[0]))
        elif self.flushes:
            self.handle(Flushed(self.flushes.pop(0)))
        elif not self.links or chance < 0.03:
            self.last_link += 1
            self.links.append(self.last_link)
            self.handle(Opened(self.last_link, f"192.0.2.1:{self.last_link}"))
        elif chance < 0.05:
            self.close(self.rng.choice(self.links))
        else:
            self.request(self.rng.choice(self.links), garbage.any_command(self.rng))

    def request(self, link: int, command: Command) -> None:
        # The driver makes a Command only of what the decoder lets through.
        [command] = frame.Decoder().feed(frame.encode(command))
        owed = not command.flag & (RESPONSE_FLAG | ONEWAY_FLAG)
        key = (link, command.opaque)
        self.owed[key] += owed
        self.handle(Received(link, command))
        if owed and command.code not in self.late_codes:
            assert not self.owed[key], f"no reply to {command}"

    def close(self, link: int) -> None:
        self.links.remove(link)
        for key in [key for key in self.owed if key[0] == link]:
            del self.owed[key]
        self.handle(Closed(link, "gone"))

    def handle(self, event: Event) -> None:
        self.take(self.node.handle(event, self.now))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, Command() as command):
                    frame.encode(command)
                    if is_response(command):
                        key = (link, command.opaque)
                        assert self.owed[key] > 0 or link not in self.links, f"unasked: {command}"
                        self.owed[key] -= 1
                        self.replies[command.code] += 1
                case SetTimer(key, at):
                    self.timers[key] = at
                case DropTimer(key):
                    self.timers.pop(key, None)
                case Flush(ticket):
                    self.flushes.append(ticket)
                case Hang(link, _) if link in self.links:
                    self.close(link)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_broker(seed: int, flush: FlushMode) -> None:
    store = Store(MemoryDisk(), BrokerConfig().store)
    store.open(NOW)
    node = BrokerNode(BrokerConfig(flush=flush), store, Random(seed))
    # Pulls may be held, running info is relayed, and with sync everything stored waits for the disk.
    late_codes = {11, 361, 12, 223, 307, 309, 324, 325}  # held, searched for, or asked of a client
    if flush == "sync":
        late_codes |= {10, 17, 18, 36, 37, 215, 310, 320}
    bench = Bench(node, Random(seed), frozenset(late_codes))
    bench.run(2000)
    assert len(bench.replies) > 5
    assert bench.replies[0] > 20


@pytest.mark.parametrize("seed", range(4))
def test_nameserver(seed: int) -> None:
    bench = Bench(NameserverNode(NameserverConfig()), Random(seed), frozenset())
    bench.run(2000)
    assert bench.replies[0] > 20
