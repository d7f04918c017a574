"""From the tree of a JSON text to typed data, as fastjson 1.2 casts the fields of Java's classes.

| field | what a peer may send for it |
|---|---|
| Int, Long | numbers; decimals, whose fraction is cut off; texts of digits with a sign, with `,` between them, and for Int with `.0` behind; true and false as 1 and 0 |
| float | numbers; such texts; true and false |
| bool | true, false; a number, which is true where it is 1; `true`, `1`, `Y`, `T`, `false`, `0`, `F`, `N` as texts |
| str | a text; numbers and booleans as Java prints them; lists and objects as JSON |
| an enumeration | the name in any case; the ordinal as a number. An unknown name counts as absent, an unknown ordinal is refused |
| a list | a list; a single object where objects are listed |
| an object | names as declared, else without regard to case, `_` and `-`, booleans also with `is` before; of two spellings the first counts |

Null, `""` and `"null"` for numbers and booleans, `""` for enumerations and objects count as absent, also in lists: the field then has its
default. Fields that are not declared are ignored. Numbers out of range are refused, where fastjson makes some of them fit by cutting
off bits; texts that are dates pass for no number.
Source: com.alibaba.fastjson.util.TypeUtils (castToInt ...), parser.deserializer.EnumDeserializer,
JavaBeanDeserializer.smartMatch, serializer.CollectionCodec (1.2.83); each rule was tried with Java, see tests/wire/test_casts.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import inspect

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue

S = TypeVar("S", bound=msgspec.Struct)

Cast = Callable[[object], object]
"""A value of the tree -> the value of a field, None where it counts as absent. Raises ProtocolError."""

_INT_BITS, _LONG_BITS = 31, 63
_EXPONENT_MAX = 100
"""Decimals with larger exponents are refused: `1e999999999` has few bytes and a billion digits."""

_DIGITS = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_ZEROS = re.compile(r"\.0*$")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
_NOTHING = ("", "null", "NULL")
_TRUE, _FALSE = ("true", "1", "y"), ("false", "0")
_SEPARATORS = str.maketrans(
    {"_": None, "-": None} | {chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}
)
"""Java's fnv1a_64_extract lowers ASCII alone."""

_to_json = msgspec.json.Encoder(decimal_format="number").encode


def cast(kind: type[S], value: object) -> S:
    """The typed data in a tree of `dialect.loads`. Raises ProtocolError, which names the field that is wrong."""
    found = _struct_cast(kind)(value)
    if found is None:
        raise ProtocolError(f"{kind.__name__}: an object expected, not nothing")
    assert isinstance(found, kind)
    return found


def queue(value: object) -> MessageQueue | None:
    """The message queue in a tree; a MessageQueue stays what it is. Raises ProtocolError where it is none."""
    if isinstance(value, MessageQueue):
        return value
    if value is None or value == "":
        return None
    if not isinstance(value, dict):
        raise ProtocolError(f"a message queue expected, not {_shown(value)}")
    if value.keys() == _QUEUE_KEYS:  # as all clients spell it: there may be thousands
        topic, broker_name, queue_id = value["topic"], value["brokerName"], value["queueId"]
        if type(topic) is str and type(broker_name) is str and type(queue_id) is int:
            return MessageQueue(text(topic) or "", text(broker_name) or "", integer(queue_id) or 0)
    fields = _by_name(value, _QUEUE_NAMES, frozenset())
    topic, broker_name = text(fields.get("topic")), text(fields.get("brokerName"))
    if topic is None or broker_name is None:
        raise ProtocolError("a message queue without topic or broker name")
    return MessageQueue(topic, broker_name, integer(fields.get("queueId")) or 0)


# -- values ----------------------------------------------------------------------------------------


def integer(value: object, bits: int = _INT_BITS) -> int | None:
    """Integer with 31 bits, Long with 63."""
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        digits = value.replace(",", "")
        if bits == _INT_BITS:
            digits = _ZEROS.sub("", digits)
        if _DIGITS.fullmatch(digits) is None:
            raise ProtocolError(f"a number expected, not {_shown(value)}")
        number = int(digits)
    elif value is None:
        return None
    else:
        number = _whole(value)
    if not -(1 << bits) <= number < 1 << bits:
        raise ProtocolError(f"{_shown(value)} does not fit into {bits + 1} bits")
    return number


def _whole(value: object) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= _EXPONENT_MAX:
        return int(value)
    raise ProtocolError(f"a number expected, not {_shown(value)}")


def long(value: object) -> int | None:
    return integer(value, _LONG_BITS)


def boolean(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal):
        return _whole(value) == 1
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        lower = value.lower()
        if lower in _TRUE or value == "T":
            return True
        if lower in _FALSE or lower == "f" or value == "N":
            return False
    raise ProtocolError(f"true or false expected, not {_shown(value)}")


def real(value: object) -> float | None:
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        digits = value.replace(",", "")
        if _FLOAT.fullmatch(digits) is not None:
            return float(digits)
    elif value is None:
        return None
    elif isinstance(value, int | Decimal):
        try:
            return float(value)
        except OverflowError:
            pass
    raise ProtocolError(f"a number expected, not {_shown(value)}")


def text(value: object) -> str | None:
    """As Java's `toString` gives it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    try:
        return _to_json(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise ProtocolError(f"a text expected, not {_shown(value)}") from None


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
            f"one of {', '.join(names)} or its ordinal expected, not {_shown(value)}"
        )

    return enumeration


# -- what holds values -------------------------------------------------------------------------------


def _list(item: Cast, single_allowed: bool) -> Cast:
    def items(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, dict) and single_allowed:
            value = [value]
        if not isinstance(value, list):
            raise ProtocolError(f"a list expected, not {_shown(value)}")
        return tuple([made for one in value if (made := item(one)) is not None])

    return items


def _table(key: Cast, item: Cast) -> Cast:
    def table(value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ProtocolError(f"an object expected, not {_shown(value)}")
        return {
            made_key: made
            for name, one in value.items()
            if (made_key := key(name)) is not None and (made := item(one)) is not None
        }

    return table


def _queue_key(value: object) -> object:
    """Keys that are texts hold the queue's JSON."""
    if isinstance(value, str):
        from steelyard.wire.remoting.dialect import loads

        value = loads(value.encode())
    return queue(value)


@cache
def _struct_cast(kind: type[msgspec.Struct]) -> Cast:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    # By the name on the wire: what we call it, how it is cast.
    fields = {item.encode_name: (item.name, _cast_of(item.type)) for item in info.fields}
    required = {item.name: item.encode_name for item in info.fields if item.required}
    names = {name.translate(_SEPARATORS): name for name in fields}
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
            raise ProtocolError(f"an object expected, not {_shown(value)}")
        if not value.keys() <= exact:
            value = _by_name(value, names, booleans)
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


def _by_name(
    value: dict[object, object], names: Mapping[str, str], booleans: frozenset[str]
) -> dict[str, object]:
    """The declared fields in `value`, by their declared names."""
    found: dict[str, object] = {}
    for spelt, item in value.items():
        if not isinstance(spelt, str):
            continue
        name = names.get(spelt.translate(_SEPARATORS))
        if name is None and spelt.startswith("is"):
            name = names.get(spelt[2:].translate(_SEPARATORS))
            if name not in booleans:
                name = None
        if name is not None:
            found.setdefault(name, item)
    return found


_QUEUE_KEYS = {"topic", "brokerName", "queueId"}
_QUEUE_NAMES = {name.translate(_SEPARATORS): name for name in ("topic", "brokerName", "queueId")}


def _plain(info: inspect.Type) -> inspect.Type:
    """A type without `| None` and annotations."""
    if isinstance(info, inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, inspect.UnionType):
        (one,) = [item for item in info.types if not isinstance(item, inspect.NoneType)]
        return _plain(one)
    return info


def _cast_of(info: inspect.Type) -> Cast:
    """How values become what a field of this type holds."""
    names = _names_of(info)
    if names is not None:
        return _enumeration(names)
    match _plain(info):
        case inspect.IntType(le=le):
            return integer if le == (1 << _INT_BITS) - 1 else long
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
    """The names of an enumeration (`bodies.enumeration`), None for other types."""
    if isinstance(info, inspect.UnionType):
        return next((found for item in info.types if (found := _names_of(item))), None)
    if isinstance(info, inspect.Metadata) and info.extra is not None:
        names: tuple[str, ...] = info.extra["names"]
        return names
    return None


def _shown(value: object) -> str:
    """The beginning of a value, for people."""
    shown = repr(str(value) if isinstance(value, Decimal) else value)
    return shown if len(shown) <= 100 else f"{shown[:100]}..."
