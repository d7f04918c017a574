"""White lists: patterns of IP addresses, as RocketMQ's ACL has them.

| pattern | addresses |
|---|---|
| `*`, `*.*.*.*` | all |
| `10.1.2.3`, `fe80::1` | one |
| `10.1.2.{3,4}`, `10.1.2.3,10.1.2.4` | each of these |
| `10.1.*`, `10.1.2-9.*` | those with any number, or one of a range, at that place |
| `fe80::1:*`, `fe80::1:10-20:*` | the same of IPv6, with hexadecimal numbers |

What is left out at the end, after a `*` or a range, is any. An IPv4 address within an IPv6 one is
taken as itself.
Source: acl/plain/RemoteAddressStrategyFactory.java; unlike there, numbers after a range count.
"""

from __future__ import annotations

import ipaddress
import re

from steelyard.errors import ConfigError

Span = tuple[int, int]
"""The first and last number allowed at a place of an address."""

_ALL = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_CHOICE = re.compile(r"([^{}]*[.:])\{([^{}]*)\}")


class AddressPattern:
    """One pattern. Raises ConfigError if it is none."""

    def __init__(self, pattern: str) -> None:
        self._alternatives: list[tuple[Span, ...]] = []
        text = pattern.strip()
        self._is_all = text in _ALL
        if self._is_all:
            return
        choice = _CHOICE.fullmatch(text)
        if choice is not None:
            parts = [choice[1] + each.strip() for each in choice[2].split(",")]
        else:
            parts = [each.strip() for each in text.split(",")]
        try:
            self._alternatives = [_spans(part) for part in parts]
        except ValueError:
            raise ConfigError(
                f"{pattern[:100]!r} is no pattern of IP addresses; expected one such as 10.1.2.3,"
                " 10.1.2.{3,4}, 10.1.2-9.* or *"
            ) from None

    def matches(self, numbers: tuple[int, ...]) -> bool:
        """Return whether an address, as `numbers_of` returns it, is one of these."""
        return self._is_all or any(
            len(spans) == len(numbers)
            and all(low <= each <= high for (low, high), each in zip(spans, numbers, strict=True))
            for spans in self._alternatives
        )


def numbers_of(ip: str) -> tuple[int, ...]:
    """Return the numbers of an IP address: 4 bytes, or 8 groups of IPv6; none for a name."""
    try:
        address = ipaddress.ip_address(ip.strip("[]").partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(int.from_bytes(packed[at : at + 2]) for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def _spans(text: str) -> tuple[Span, ...]:
    """Return what is allowed at each place. Raises ValueError."""
    if ":" not in text:
        return _filled([_span(part, 10, 255) for part in text.split(".")], text, 4, 255)
    head, gap, tail = text.partition("::")
    first = [_span(part, 16, 0xFFFF) for part in head.split(":")] if head else []
    if not gap:
        return _filled(first, text, 8, 0xFFFF)
    last = [_span(part, 16, 0xFFFF) for part in tail.split(":")] if tail else []
    missing = 8 - len(first) - len(last)
    if missing < 1:
        raise ValueError
    return (*first, *[(0, 0)] * missing, *last)


def _span(part: str, base: int, highest: int) -> Span:
    if part == "*":
        return 0, highest
    low, dash, high = part.partition("-")
    if not (low.isalnum() and (high.isalnum() if dash else True) and part.isascii()):
        raise ValueError
    span = int(low, base), int(high if dash else low, base)
    if not 0 <= span[0] <= span[1] <= highest:
        raise ValueError
    return span


def _filled(spans: list[Span], text: str, places: int, highest: int) -> tuple[Span, ...]:
    """Add what is left out at the end, which must follow a `*` or a range."""
    missing = places - len(spans)
    last = re.split("[.:]", text)[-1]
    if missing < 0 or (missing and last != "*" and "-" not in last):
        raise ValueError
    return (*spans, *[(0, highest)] * missing)
