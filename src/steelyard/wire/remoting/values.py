"""Casts of JSON values to numbers, texts, booleans and message queues; see the table of `casts`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

import msgspec

from steelyard.errors import ProtocolError
from steelyard.types import MessageQueue

INT_BITS, LONG_BITS = 31, 63
_EXPONENT_MAX = 100
"""Decimals with larger exponents are refused: `1e999999999` has few bytes and a billion digits."""

_DIGITS = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_ZEROS = re.compile(r"\.0*$")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
_NOTHING = ("", "null", "NULL")
_TRUE, _FALSE = ("true", "1", "y"), ("false", "0")
SEPARATORS = str.maketrans(
    {"_": None, "-": None} | {chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}
)
"""Java's fnv1a_64_extract lowers ASCII only."""

_to_json = msgspec.json.Encoder(decimal_format="number").encode
_QUEUE_KEYS = {"topic", "brokerName", "queueId"}
_QUEUE_NAMES = {name.translate(SEPARATORS): name for name in ("topic", "brokerName", "queueId")}


def integer(value: object, bits: int = INT_BITS) -> int | None:
    """Cast to an Integer (31 bits) or a Long (63)."""
    if isinstance(value, str):
        if value in _NOTHING:
            return None
        digits = value.replace(",", "")
        if bits == INT_BITS:
            digits = _ZEROS.sub("", digits)
        if _DIGITS.fullmatch(digits) is None:
            raise ProtocolError(f"expected a number, not {shown(value)}")
        number = int(digits)
    elif value is None:
        return None
    else:
        number = _whole(value)
    if not -(1 << bits) <= number < 1 << bits:
        raise ProtocolError(f"{shown(value)} does not fit into {bits + 1} bits")
    return number


def _whole(value: object) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= _EXPONENT_MAX:
        return int(value)
    raise ProtocolError(f"expected a number, not {shown(value)}")


def long(value: object) -> int | None:
    return integer(value, LONG_BITS)


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
    raise ProtocolError(f"expected true or false, not {shown(value)}")


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
    raise ProtocolError(f"expected a number, not {shown(value)}")


def text(value: object) -> str | None:
    """Cast to a text as Java's `toString` does."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    try:
        return _to_json(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise ProtocolError(f"expected a text, not {shown(value)}") from None


def queue(value: object) -> MessageQueue | None:
    """Return the message queue in a tree. Raises ProtocolError for anything else."""
    if isinstance(value, MessageQueue):
        return value
    if value is None or value == "":
        return None
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a message queue, not {shown(value)}")
    if value.keys() == _QUEUE_KEYS:  # as all clients spell it: there may be thousands
        topic, broker_name, queue_id = value["topic"], value["brokerName"], value["queueId"]
        if type(topic) is str and type(broker_name) is str and type(queue_id) is int:
            return MessageQueue(text(topic) or "", text(broker_name) or "", integer(queue_id) or 0)
    fields = by_name(value, _QUEUE_NAMES, frozenset())
    topic, broker_name = text(fields.get("topic")), text(fields.get("brokerName"))
    if topic is None or broker_name is None:
        raise ProtocolError("a message queue without topic or broker name")
    return MessageQueue(topic, broker_name, integer(fields.get("queueId")) or 0)


def by_name(
    value: dict[object, object], names: Mapping[str, str], booleans: frozenset[str]
) -> dict[str, object]:
    """Return the declared fields in `value` by their declared names."""
    found: dict[str, object] = {}
    for spelt, item in value.items():
        if not isinstance(spelt, str):
            continue
        name = names.get(spelt.translate(SEPARATORS))
        if name is None and spelt.startswith("is"):
            name = names.get(spelt[2:].translate(SEPARATORS))
            if name not in booleans:
                name = None
        if name is not None:
            found.setdefault(name, item)
    return found


def shown(value: object) -> str:
    """Return the beginning of a value, for error texts."""
    words = repr(str(value) if isinstance(value, Decimal) else value)
    return words if len(words) <= 100 else f"{words[:100]}..."
