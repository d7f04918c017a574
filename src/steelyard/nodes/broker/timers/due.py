"""When a message is to be delivered, by its properties.

TIMER_DELAY_SEC counts first, then TIMER_DELAY_MS, then TIMER_DELIVER_MS. A time that has passed
means: at once. A message that has TIMER_OUT_MS has waited before, and is not delayed again, whoever
sends it on. Source: broker/util/HookUtils.java `checkIfTimerMessage`, `transformTimerMessage`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from steelyard.errors import MessageError
from steelyard.wire.remoting.properties import (
    PROPERTIES_BYTES_MAX,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_OUT_MS,
    TIMER_PROPERTIES,
    encode_properties,
)

ROOM_BYTES = 512
"""What must be left of the space for properties: a broker adds its own while a message waits."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def due_of(properties: Mapping[str, str], now: int) -> int | None:
    """Return when the message is to be delivered, in ms; None: at once.

    That is also what becomes of a message that `admit` would refuse.
    """
    found = _found(properties)
    if found is None or _NUMBER.fullmatch(properties[found]) is None:
        return None
    due = int(properties[found])
    if found == TIMER_DELAY_SEC:
        due = now + due * 1000
    elif found == TIMER_DELAY_MS:
        due += now
    return due if due > now else None


def admit(properties: Mapping[str, str], now: int, delay_max_ms: int) -> None:
    """Raise MessageError if a message must not be delayed like this.

    The property is not a number, or too far ahead; the message recalls one that is due; or its
    properties leave no room for the broker's.
    """
    found = _found(properties)
    if found is None:
        return
    size = len(encode_properties(properties).encode())
    if size > PROPERTIES_BYTES_MAX - ROOM_BYTES:
        most = PROPERTIES_BYTES_MAX - ROOM_BYTES
        raise MessageError(f"the properties of a timer message have {size} bytes, more than {most}")
    if _NUMBER.fullmatch(properties[found]) is None:
        text = properties[found][:100]
        raise MessageError(f"timer message illegal, {found} must be a number, not {text!r}")
    due = due_of(properties, now)
    if due is None:
        if TIMER_DEL_UNIQKEY in properties:
            raise MessageError("timer message illegal, the message to recall was due before")
    elif due - now > delay_max_ms:
        raise MessageError(
            f"timer message illegal, it would wait {due - now} ms;"
            f" the delay time should not be bigger than the max delay {delay_max_ms}ms"
        )


def _found(properties: Mapping[str, str]) -> str | None:
    """Return the name of the property that counts; None if the message is not to be delayed."""
    if TIMER_OUT_MS in properties:
        return None
    return next((name for name in TIMER_PROPERTIES if name in properties), None)
