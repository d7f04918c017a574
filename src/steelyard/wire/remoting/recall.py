"""The handle by which a producer recalls a delayed message: `RecallHandle`.

It is URL-safe base64 of `v1 TOPIC BROKER TIME ID`, separated by spaces: when the message is due, in
ms, and its UNIQ_KEY. Source: common/producer/RecallMessageHandle.java.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from steelyard.errors import MessageError

_VERSION = "v1"
_PARTS = 5
_DIGITS_MAX = 19


class RecallHandle(msgspec.Struct, frozen=True):
    """See the module docstring. `due`: -1 if it is not a number."""

    topic: str
    broker: str
    due: int
    unique_id: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker} {self.due} {self.unique_id}"
        return urlsafe_b64encode(text.encode()).decode()

    @staticmethod
    def decode(handle: str) -> RecallHandle:
        """Read a handle. Raises MessageError if it is not one."""
        try:
            parts = urlsafe_b64decode(handle.encode()).decode().split(" ")
        except ValueError:
            parts = []
        if len(parts) < _PARTS or parts[0] != _VERSION:
            raise MessageError("recall handle is invalid")
        _, topic, broker, due, unique_id, *_ = parts
        return RecallHandle(
            topic, broker, int(due) if due.isdecimal() and len(due) < _DIGITS_MAX else -1, unique_id
        )
