"""Whatever a Kafka client asks, it has an answer or its link is closed, and the broker serves others as before.

Requests are whole and well-formed, or nearly; their fields are plausible, wrong or absurd. A seed tells the whole story.
"""

from __future__ import annotations

import collections.abc
import random
import types
import typing
from functools import cache
from typing import Any

import msgspec
import pytest
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_fetch import fetch, offsets, parts, request
from tests.nodes.broker.kafka.test_produce import send

from steelyard.config import BrokerConfig, FlushMode, KafkaConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.seam import Received
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import Request, RequestDecoder, encode
from steelyard.wire.kafka.messages.data import FetchPartition
from steelyard.wire.kafka.records import CONTROL, TRANSACTIONAL
from steelyard.wire.kafka.schema import Api, Fixed, Part, Sized

REQUESTS = 100

TEXTS = (
    TOPIC,
    TOPIC,
    "other",
    "new",
    "group",
    "",
    "../..",
    "x" * 300,
    "語",
    "a.b",
    "__consumer_offsets",
)
NUMBERS = (-2, -1, -1, 0, 0, 0, 1, 1, 2, 3, 5, 100, 10_000, 2**15 - 1, 2**31 - 1, 2**62, START)
BITS = {"b": 7, "h": 15, "H": 16, "i": 31, "I": 32, "q": 63}


@cache
def hints_of(kind: type[Part]) -> list[tuple[str, Any]]:
    """The fields of a message, and the types that they are declared with."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return [(field.name, hints[field.name]) for field in msgspec.structs.fields(kind)]


class Nonsense:
    """Requests from a seed. `ids`: of topics that are there."""

    def __init__(self, rng: random.Random, ids: list[bytes]) -> None:
        self.rng = rng
        self.ids = ids

    def part(self, kind: type[Part]) -> Part:
        return kind(**{name: self.value(hint, name) for name, hint in hints_of(kind)})

    def value(self, hint: Any, name: str) -> Any:
        while typing.get_origin(hint) is typing.Annotated:
            primitive = next((m for m in hint.__metadata__ if isinstance(m, Fixed | Sized)), None)
            if primitive is not None:
                return self.primitive(primitive, name)
            hint = hint.__origin__
        if isinstance(hint, types.UnionType):
            if self.rng.random() < 0.2:
                return None
            (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        if typing.get_origin(hint) is collections.abc.Sequence:
            (element,) = typing.get_args(hint)
            return [self.value(element, name) for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3)))]
        return self.part(hint)

    def primitive(self, primitive: Fixed | Sized, name: str) -> Any:
        rng = self.rng
        if isinstance(primitive, Sized):
            if primitive.nullable and rng.random() < 0.3:
                return None
            if primitive.kind == "string":
                return rng.choice(TEXTS)
            return self.records() if name == "records" else rng.randbytes(rng.randrange(40))
        if primitive.code == "?":
            return rng.random() < 0.5
        if primitive.code == "16s":
            return rng.choice([*self.ids, bytes(16), rng.randbytes(16)])
        if primitive.code == "d":
            return rng.random()
        number = rng.choice(NUMBERS)
        bits = BITS[primitive.code]
        low = 0 if primitive.code.isupper() else -(2**bits)
        return max(low, min(number, 2**bits - 1))

    def records(self) -> bytes:
        rng = self.rng
        data = batch(
            *[b"x"] * rng.randrange(1, 4),
            compression=rng.randrange(5),
            producer_id=rng.choice((-1, 5, 6)),
            epoch=rng.choice((0, 0, 1)),
            sequence=rng.randrange(-1, 4),
            attributes=rng.choice((0, 0, TRANSACTIONAL, CONTROL)),
        )
        return self.bent(data) if rng.random() < 0.3 else data

    def bent(self, data: bytes) -> bytes:
        """Cut, or with another byte somewhere."""
        at = self.rng.randrange(len(data))
        if self.rng.random() < 0.3:
            return data[:at]
        return data[:at] + self.rng.randbytes(1) + data[at + 1 :]


def served() -> list[Api]:
    rig = KafkaRig()
    assert rig.node._kafka is not None
    return [APIS[key] for key in sorted(rig.node._kafka.channel._handlers)]


@pytest.mark.parametrize("flush", ["async", pytest.param("sync", marks=pytest.mark.proof)])
@pytest.mark.parametrize("api", served(), ids=lambda api: api.name)
def test_nonsense_is_answered_or_hung_up_on(api: Api, flush: FlushMode) -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush=flush))
    ids = [rig.create_topic(partitions=2), rig.create_topic("other")]
    send(rig, batch(b"before"))
    nonsense = Nonsense(random.Random(api.key), ids)
    rng = nonsense.rng
    for _ in range(REQUESTS):
        version = rng.randint(*api.versions)
        message = nonsense.part(api.request)
        rig.correlation += 1
        try:
            frame = encode(Request(api, version, rig.correlation, "client", message))  # type: ignore[arg-type]
        except ProtocolError:
            continue  # a value without a place in this version
        if rng.random() < 0.3:
            body = nonsense.bent(frame[8:])
            frame = (len(body) + 4).to_bytes(4, "big") + frame[4:8] + body
        try:
            (received,) = RequestDecoder().feed(frame)
        except (ProtocolError, ValueError):
            continue  # the driver closes such a link
        link = rig.connect()
        rig.answers.clear()
        rig.event(Received(link, received))
        if rng.random() < 0.1:
            rig.advance(rng.choice((1, 600, 60_000)))
    rig.advance(600_000)
    serves_on(rig)
    rig.restart()
    serves_on(rig)


def serves_on(rig: KafkaRig) -> None:
    rig.link = rig.connect()
    rig.answers.clear()
    topic = f"after-{rig.links}"
    rig.create_topic(topic)
    assert send(rig, batch(b"after"), topic=topic).base_offset == 0
    (part,) = parts(fetch(rig, request(0, topic=topic)))
    assert offsets(part.records) == [0]


def test_the_maker_of_nonsense_reaches_the_records() -> None:
    """Else the test above would test little."""
    nonsense = Nonsense(random.Random(1), [])
    assert isinstance(nonsense.part(FetchPartition), FetchPartition)
    lengths = {len(nonsense.records()) for _ in range(50)}
    assert len(lengths) > 5
