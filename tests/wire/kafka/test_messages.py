"""Every message in every version, against an independent reader and writer of Kafka's schemas (kio)."""

from __future__ import annotations

import collections.abc
import importlib
import io
import random
import re
import types
import typing
from typing import Any

import msgspec
import pytest
from kio.serial import entity_reader, entity_writer

from steelyard.errors import ProtocolError
from steelyard.types import joined
from steelyard.wire.kafka import schema
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.messages.data import FetchRequest
from steelyard.wire.kafka.schema import Api, ApiMessage, Fixed, Part, Sized

BOUNDS = {"b": 7, "h": 15, "H": 16, "i": 31, "I": 32, "q": 63}

UNKNOWN_TO_KIO = {
    ("FetchRequest", 18),
    ("FetchResponse", 18),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
}
"""Versions that kio 0.6 does not have."""

CASES = [
    pytest.param(api, kind, version, id=f"{kind.__name__}-{version}")
    for api in APIS.values()
    for kind in (api.request, api.response)
    for version in range(api.versions[0], api.versions[1] + 1)
]


def kio_entity(kind: type[ApiMessage], version: int) -> Any:
    name = kind.__name__
    direction = "request" if name.endswith("Request") else "response"
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[: -len(direction)]).lower()
    found = importlib.import_module(f"kio.schema.{module}.v{version}.{direction}")
    return getattr(found, name)


def made_up(hint: Any, rng: random.Random) -> Any:
    """A value that fits a field's annotation."""
    while typing.get_origin(hint) is typing.Annotated:
        primitive = next((m for m in hint.__metadata__ if isinstance(m, Fixed | Sized)), None)
        if primitive is not None:
            return _primitive(primitive, rng)
        hint = hint.__origin__
    if isinstance(hint, types.UnionType):
        (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    if typing.get_origin(hint) is collections.abc.Sequence:
        (element,) = typing.get_args(hint)
        return [made_up(element, rng) for _ in range(rng.randrange(4))]
    return struct_of(hint, rng)


def _primitive(primitive: Fixed | Sized, rng: random.Random) -> Any:
    if isinstance(primitive, Sized):
        text = "".join(rng.choice("aß語0.-_") for _ in range(rng.randrange(200)))
        return text if primitive.kind == "string" else text.encode()
    if primitive.code == "?":
        return rng.random() < 0.5
    if primitive.code == "16s":
        return rng.randbytes(16)
    if primitive.code == "d":
        return rng.random()
    return rng.randrange(1, 2 ** min(BOUNDS[primitive.code], 40 if primitive.code == "q" else 31))


def struct_of(kind: type[Part], rng: random.Random) -> Part:
    hints = typing.get_type_hints(kind, include_extras=True)
    values = {f.name: made_up(hints[f.name], rng) for f in msgspec.structs.fields(kind)}
    for name in values:
        if name.endswith("error_code"):
            values[name] = rng.choice((0, 3, 16, 27))  # kio reads those that exist
    return kind(**values)


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_kio_reads_and_writes_the_same_bytes(
    api: Api, kind: type[ApiMessage], version: int
) -> None:
    if (kind.__name__, version) in UNKNOWN_TO_KIO:
        pytest.skip("kio does not know this version")
    entity = kio_entity(kind, version)
    flexible = api.is_flexible(version)
    rng = random.Random(f"{kind.__name__} {version}")
    for _ in range(3):
        message = struct_of(kind, rng)
        ours = joined(schema.write(message, version, flexible=flexible))  # type: ignore[arg-type]
        theirs, size = entity_reader(entity)(ours, 0)
        assert size == len(ours)
        buffer = io.BytesIO()
        entity_writer(entity)(buffer, theirs)
        assert buffer.getvalue() == ours
        back = schema.read(kind, ours, version, flexible=flexible)
        assert joined(schema.write(back, version, flexible=flexible)) == ours


@pytest.mark.parametrize(("api", "kind", "version"), CASES)
def test_a_message_cut_anywhere_is_refused(api: Api, kind: type[ApiMessage], version: int) -> None:
    flexible = api.is_flexible(version)
    message = struct_of(kind, random.Random(f"{kind.__name__} {version}"))
    data = joined(schema.write(message, version, flexible=flexible))  # type: ignore[arg-type]
    for end in range(0, len(data), max(1, len(data) // 50)):
        with pytest.raises(ProtocolError):
            schema.read(kind, data[:end], version, flexible=flexible)
    with pytest.raises(ProtocolError, match="too many"):
        schema.read(kind, data + b"\0", version, flexible=flexible)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_garbage_is_refused_or_read(api: Api) -> None:
    rng = random.Random(api.name)
    for version in range(api.versions[0], api.versions[1] + 1):
        flexible = api.is_flexible(version)
        message = struct_of(api.request, rng)
        data = joined(schema.write(message, version, flexible=flexible))  # type: ignore[arg-type]
        for _ in range(20):
            broken = bytearray(data)
            for _ in range(3):
                if broken:
                    broken[rng.randrange(len(broken))] = rng.randrange(256)
            try:
                schema.read(api.request, bytes(broken), version, flexible=flexible)
            except ProtocolError:
                continue


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ProtocolError, match="FetchRequest version 4 cannot be written"):
        schema.write(FetchRequest(max_wait_ms=2**31), 4, flexible=False)
