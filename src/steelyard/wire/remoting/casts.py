"""Conversion of a JSON tree to typed data, as fastjson 1.2 casts to the fields of Java's classes.

| field | what a peer may send for it |
|---|---|
| Int, Long | numbers, truncated; digits as text, signed, with `,`, Int also with `.0`; booleans |
| float | numbers; such texts; true and false |
| bool | true, false; a number, true if 1; texts `true`, `1`, `Y`, `T`, `false`, `0`, `F`, `N` |
| str | a text; numbers and booleans as Java prints them; lists and objects as JSON |
| an enumeration | the name in any case; the ordinal. Unknown names are absent, ordinals refused |
| a list | a list; a single object for a list of objects |
| an object | names as declared, or ignoring case, `_`, `-` and, for booleans, `is` before them |

Null counts as absent, as do `""` and `"null"` for numbers and booleans, and `""` for enumerations
and objects, also in lists: the field then has its default. If an object has two spellings of a
name, the first counts. Undeclared fields are ignored. Numbers out of range are refused, whereas
fastjson truncates the bits of some; dates as text do not count as numbers. Source:
com.alibaba.fastjson.util.TypeUtils (castToInt ...), parser.deserializer.EnumDeserializer,
JavaBeanDeserializer.smartMatch, serializer.CollectionCodec (1.2.83); each rule was tested with
Java, see tests/wire/test_casts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import inspect

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.dialect import loads
from steelyard.wire.remoting.values import (
    INT_BITS,
    SEPARATORS,
    boolean,
    by_name,
    integer,
    long,
    queue,
    real,
    shown,
    text,
)

S = TypeVar("S", bound=msgspec.Struct)

Cast = Callable[[object], object]
"""Casts a value of the tree to that of a field; None if it counts as absent. Raises ProtocolError.
"""


def cast(kind: type[S], value: object) -> S:
    """Cast a tree of `dialect.loads` to typed data. Raises ProtocolError naming the wrong field."""
    found = _struct_cast(kind)(value)
    if found is None:
        raise ProtocolError(f"{kind.__name__}: expected an object, not nothing")
    assert isinstance(found, kind)
    return found


def _enumeration(names: tuple[str, ...]) -> Cast:
    by_lower = {name.lower(): name for name in names}

    def enumeration(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, str):
            return by_lower.get(value.lower())
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
            return names[value]
        raise ProtocolError(
            f"expected one of {', '.join(names)} or its ordinal, not {shown(value)}"
        )

    return enumeration


# -- what holds values -----------------------------------------------------------------------------


def _list(item: Cast, single_allowed: bool) -> Cast:
    def items(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, dict) and single_allowed:
            value = [value]
        if not isinstance(value, list):
            raise ProtocolError(f"expected a list, not {shown(value)}")
        return tuple([made for one in value if (made := item(one)) is not None])

    return items


def _table(key: Cast, item: Cast) -> Cast:
    def table(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ProtocolError(f"expected an object, not {shown(value)}")
        return {
            made_key: made
            for name, one in value.items()
            if (made_key := key(name)) is not None and (made := item(one)) is not None
        }

    return table


def _queue_key(value: object) -> object:
    """Return a queue; keys that are texts hold the queue's JSON."""
    if isinstance(value, str):
        value = loads(value.encode())
    return queue(value)


@cache
def _struct_cast(kind: type[msgspec.Struct]) -> Cast:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    # By wire name: the field's name, and its cast.
    fields = {item.encode_name: (item.name, _cast_of(item.type)) for item in info.fields}
    required = {item.name: item.encode_name for item in info.fields if item.required}
    names = {name.translate(SEPARATORS): name for name in fields}
    booleans = frozenset(
        item.encode_name for item in info.fields if isinstance(_plain(item.type), inspect.BoolType)
    )
    exact = fields.keys()

    def struct(value: object) -> object:
        if value is None or value == "":
            return None
        if isinstance(value, MessageQueue):
            value = {
                "topic": value.topic,
                "brokerName": value.broker_name,
                "queueId": value.queue_id,
            }
        if not isinstance(value, dict):
            raise ProtocolError(f"expected an object, not {shown(value)}")
        if not value.keys() <= exact:
            value = by_name(value, names, booleans)
        given: dict[str, object] = {}
        for name, item in value.items():
            ours, cast_one = fields[name]
            try:
                made = cast_one(item)
            except ProtocolError as error:
                raise ProtocolError(f"{name}: {error}") from None
            if made is not None:
                given[ours] = made
        if not required.keys() <= given.keys():
            missing = sorted(required[name] for name in required.keys() - given.keys())
            raise ProtocolError(f"{', '.join(missing)} missing")
        return kind(**given)

    return struct


def _plain(info: inspect.Type) -> inspect.Type:
    """Return a type without `| None` and annotations."""
    if isinstance(info, inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, inspect.UnionType):
        (one,) = [item for item in info.types if not isinstance(item, inspect.NoneType)]
        return _plain(one)
    return info


def _cast_of(info: inspect.Type) -> Cast:
    """Return the cast to a field of this type."""
    names = _names_of(info)
    if names is not None:
        return _enumeration(names)
    match _plain(info):
        case inspect.IntType(le=le):
            return integer if le == (1 << INT_BITS) - 1 else long
        case inspect.BoolType():
            return boolean
        case inspect.FloatType():
            return real
        case inspect.StrType():
            return text
        case inspect.NamedTupleType():
            return queue
        case inspect.StructType(cls=cls):
            return _struct_cast(cls)
        case inspect.VarTupleType(item_type=item):
            objects = isinstance(_plain(item), inspect.StructType | inspect.NamedTupleType)
            return _list(_cast_of(item), objects)
        case inspect.DictType(key_type=key, value_type=item):
            queues = isinstance(_plain(key), inspect.NamedTupleType)
            return _table(_queue_key if queues else _cast_of(key), _cast_of(item))
    raise AssertionError(f"no field of a body is of type {info}")


def _names_of(info: inspect.Type) -> tuple[str, ...] | None:
    """Return the names of an enumeration (`bodies.enumeration`), None for other types."""
    if isinstance(info, inspect.UnionType):
        return next((found for item in info.types if (found := _names_of(item))), None)
    if isinstance(info, inspect.Metadata) and info.extra is not None:
        names: tuple[str, ...] = info.extra["names"]
        return names
    return None
