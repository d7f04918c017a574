"""JSON bodies as typed data, read leniently and written as Java's fastjson does.

Tables may have numbers or queues as keys; see `dialect`. Reading is as lenient as fastjson:
`dialect` defines what counts as JSON, `casts` what counts as a field's value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TypeVar

import msgspec
from msgspec import inspect

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting import casts
from steelyard.wire.remoting.bodies import Body
from steelyard.wire.remoting.dialect import loads

__all__ = ["loads", "read", "write"]

B = TypeVar("B", bound=Body)

_SHORT = 255


# -- reading ---------------------------------------------------------------------------------------


def read(kind: type[B], data: bytes) -> B:
    """Read the typed body in `data`, standard JSON or dialect.

    Raises ProtocolError with a text for the peer's remark.
    """
    if not _mentions_queue(kind) and b"$ref" not in data:
        try:
            return msgspec.json.decode(data, type=prepared(kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # not standard, or loosely typed: read it the slow way
    try:
        return casts.cast(kind, loads(data))
    except ProtocolError as error:
        raise ProtocolError(f"body {kind.__name__}: {error}") from None


# -- writing ---------------------------------------------------------------------------------------


def write(body: Body, *, int_keys_quoted: bool = True) -> bytes:
    """Write `body` as fastjson does: compact, keys in order, None omitted, queues as objects.

    `int_keys_quoted=False` writes `{0:...}`, as clients before 4.9.4 expect.
    """
    if _is_standard(type(body)) and int_keys_quoted:
        return msgspec.json.encode(body, order="sorted")
    parts: list[str] = []
    _write_value(parts, body, '"' if int_keys_quoted else "")
    return "".join(parts).encode()


def _write_value(parts: list[str], value: object, quote: str) -> None:
    if isinstance(value, MessageQueue):
        parts.append(
            f'{{"brokerName":{_text(value.broker_name)},"queueId":{value.queue_id},"topic":{_text(value.topic)}}}'
        )
    elif isinstance(value, msgspec.Struct):
        if _is_standard(type(value)):
            parts.append(msgspec.json.encode(value, order="sorted").decode())
            return
        fields = [
            (f'"{wire_name}":', item)
            for name, wire_name in _fields(type(value))
            if (item := getattr(value, name)) is not None
        ]
        _write_fields(parts, fields, quote)
    elif isinstance(value, Mapping):
        items = [(key, item) for key, item in value.items() if item is not None]
        items.sort()
        _write_fields(parts, [(_key_text(key, quote), item) for key, item in items], quote)
    elif isinstance(value, tuple | list):
        parts.append("[")
        for position, item in enumerate(value):
            if position:
                parts.append(",")
            _write_value(parts, item, quote)
        parts.append("]")
    else:
        parts.append(msgspec.json.encode(value).decode())


def _write_fields(parts: list[str], fields: list[tuple[str, object]], quote: str) -> None:
    parts.append("{")
    for position, (key, item) in enumerate(fields):
        parts.append("," + key if position else key)
        _write_value(parts, item, quote)
    parts.append("}")


def _key_text(key: object, quote: str) -> str:
    if isinstance(key, int):
        return f"{quote}{key}{quote}:"
    if isinstance(key, MessageQueue):
        parts: list[str] = []
        _write_value(parts, key, quote)
        return "".join(parts) + ":"
    assert isinstance(key, str)
    return _text(key) + ":"


def _text(text: str) -> str:
    return _short_text(text) if len(text) <= _SHORT else msgspec.json.encode(text).decode()


@lru_cache(maxsize=1024)
def _short_text(text: str) -> str:
    """Cached, because a table of a topic's queues repeats topic and broker in every key."""
    return msgspec.json.encode(text).decode()


# -- what a kind of body holds ---------------------------------------------------------------------


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return (our name, wire name) of each field, in the order of the wire names."""
    fields = msgspec.structs.fields(kind)
    return tuple(
        sorted(((item.name, item.encode_name) for item in fields), key=lambda pair: pair[1])
    )


@cache
def _mentions_queue(kind: type[msgspec.Struct]) -> bool:
    return inspect.NamedTupleType in _types_in(kind)


@cache
def _is_standard(kind: type[msgspec.Struct]) -> bool:
    """Return whether msgspec can write the bytes: no queues, number keys or optional values."""
    return _types_in(kind).isdisjoint((inspect.NamedTupleType, inspect.NoneType, _NumberKey))


class _NumberKey:
    """Stands in `_types_in` for a table whose keys are not texts."""


@cache
def _types_in(kind: type[msgspec.Struct]) -> frozenset[type]:
    """Return the msgspec.inspect classes of everything that a body of this kind may hold."""
    found: set[type] = set()
    _collect(inspect.type_info(kind), found)
    return frozenset(found)


def _collect(info: inspect.Type, found: set[type]) -> None:
    """Collect them recursively; bodies do not contain themselves, so this ends."""
    found.add(type(info))
    match info:
        case inspect.StructType(fields=fields):
            for item in fields:
                _collect(item.type, found)
        case inspect.UnionType(types=types):
            for item_type in types:
                _collect(item_type, found)
        case inspect.VarTupleType(item_type=item_type):
            _collect(item_type, found)
        case inspect.DictType(key_type=key, value_type=value):
            if not isinstance(key, inspect.StrType):
                found.add(_NumberKey)
            _collect(key, found)
            _collect(value, found)
