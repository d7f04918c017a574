"""Output formats of mqadmin: dates, versions, truncated names, fastjson's pretty form.

Source: UtilAll.java, MQVersion.java (4.9.8), fastjson's MapSerializer, ListSerializer,
JavaBeanSerializer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import TypeVar, cast

import msgspec

from steelyard.printable import printable

T = TypeVar("T")


def shown(value: T) -> T:
    """Escape every text in data from a peer, for printing only.

    Structs, dataclasses, tuples, lists and tables are traversed; everything else stays.
    """
    return cast("T", _shown(value))


def _shown(value: object) -> object:
    if type(value) is str:
        return printable(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if isinstance(value, tuple):
        items = tuple(_shown(item) for item in value)
        make = getattr(value, "_make", tuple)  # of a NamedTuple
        return make(items)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, msgspec.Struct):
        named = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return msgspec.structs.replace(value, **{name: _shown(item) for name, item in named})
    if is_dataclass(value) and not isinstance(value, type):
        given = (item.name for item in fields(value) if item.init)
        return replace(value, **{name: _shown(getattr(value, name)) for name in given})
    return value


def front(text: str, size: int) -> str:
    """UtilAll.frontStringAtLeast: the first characters of a long name."""
    return printable(text[:size])


def date_seconds(timestamp: int) -> str:
    """`2026-11-21 02:16:25` in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp // 1000))


def date_milliseconds(timestamp: int) -> str:
    """`2026-11-21 02:16:25,348` in local time."""
    return f"{date_seconds(timestamp)},{timestamp % 1000:03d}"


def in_seconds(milliseconds: int | None) -> float | None:
    """Return a duration in seconds, for documents; None if it is unknown."""
    return None if milliseconds is None else milliseconds / 1000


def date_digits(timestamp: int) -> str:
    """`20261121021625348` in local time: UtilAll.timeMillisToHumanString3."""
    seconds = time.strftime("%Y%m%d%H%M%S", time.localtime(timestamp // 1000))
    return f"{seconds}{timestamp % 1000:03d}"


def java_fields(values: Mapping[str, object]) -> str:
    """Format `name=value, name=value`, as toString methods do."""
    return ", ".join(f"{name}={java_text(value)}" for name, value in shown(dict(values)).items())


def java_text(value: object) -> str:
    """Format as String.valueOf, which writes null, true and false."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def fixed(value: float, digits: int) -> str:
    """Format as Java's %.{digits}f, which rounds the shortest decimal form half up."""
    return f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):f}"


def version_name(ordinal: int) -> str:
    """MQVersion.getVersionDesc of 4.9.8: versions it does not know are HIGHER_VERSION."""
    names = _version_names()
    return names[ordinal] if 0 <= ordinal < len(names) else names[-1]


@cache
def _version_names() -> tuple[str, ...]:
    """MQVersion.Version in order; a release follows its snapshot."""
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{n}" for n in range(1, 6))]
    for beta in range(6, 10):
        names += [f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}"]
    names.append("V3_0_0_FINAL")
    numbers = [(3, 0, patch) for patch in range(1, 16)]
    for minor in range(1, 10):
        # 3.1 and 3.2 begin with patch 0, the later ones of version 3 with patch 1.
        numbers += [(3, minor, patch) for patch in range(0 if minor < 3 else 1, 10)]
    for major in range(4, 6):
        numbers += [(major, minor, patch) for minor in range(10) for patch in range(10)]
    for major, minor, patch in numbers:
        names += [f"V{major}_{minor}_{patch}_SNAPSHOT", f"V{major}_{minor}_{patch}"]
    return (*names, "HIGHER_VERSION")


def permission(perm: int) -> str:
    """PermName.perm2String."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + ("X" if perm & 1 else "-")


def pretty(value: object, depth: int = 0) -> str:
    """Format as fastjson's PrettyFormat with tabs: number keys are on the brace's line."""
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict):
        if not value:
            return "{}"
        parts = [
            f"{inner if isinstance(key, str) else ''}"
            f"{json.dumps(key, ensure_ascii=False)}:{pretty(item, depth + 1)}"
            for key, item in value.items()
        ]
        return "{" + ",".join(parts) + outer + "}"
    if isinstance(value, (list, tuple)):
        if not value:
            return "[]"
        return "[" + ",".join(inner + pretty(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)
