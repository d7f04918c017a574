"""The properties of messages as clients send them, and as they are stored.

The broker adds the property CLUSTER, removes WAIT=true, which saves 9 bytes per message, as 4.9
does, and adds the final U+0002, which clients before 5.x leave out.
Source: broker/processor/SendMessageProcessor.java.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.properties import VALUE_END, Properties, closed

_WAIT = f"{props.WAIT}\x01true\x02"
_LATER_WAIT = f"\x02{_WAIT}"
_NO_WAIT = f"{props.WAIT}\x01false\x02"
_LATER_NO_WAIT = f"\x02{_NO_WAIT}"
_CLUSTER = f"{props.CLUSTER}\x01"

_LATER_WAIT_BYTES = _LATER_WAIT.encode()
_UNUSUAL = re.compile(rb"\x02(?:DELAY|TIMER_|TRAN_MSG|CLUSTER\x01|WAIT\x01false)")
"""Finds properties that `of_usual` leaves to `of` and its caller."""


class StoredProperties:
    """Turns the properties that clients send into those that a broker of a cluster stores."""

    def __init__(self, cluster: str) -> None:
        self._cluster = f"{_CLUSTER}{cluster}\x02"
        self._end_of_stored = f"\x02{self._cluster}\x00".encode()

    def of(self, sent: str) -> str:
        """Return the stored form of a message's properties."""
        text = closed(sent)
        if _CLUSTER in text:
            text = Properties(text).without(props.CLUSTER).text
        if text.startswith(_WAIT):
            text = text[len(_WAIT) :]
        return text.replace(_LATER_WAIT, VALUE_END) + self._cluster

    def of_usual(self, sent: Sequence[bytes]) -> list[bytes] | None:
        """Return `of` for the properties of many messages, in a fifth of the time.

        None if some may have to be decoded: those for which `may_be_special` is true or
        `waits_for_disk` is false, those with a CLUSTER already, and what is not ASCII.
        """
        text = b"\x02\x00\x02".join(sent).join((b"\x02", b"\x02\x00"))
        if not text.isascii() or text.count(b"\x00") != len(sent) or _UNUSUAL.search(text):
            return None
        # Those of each message now begin with U+0002 and end with U+0002 U+0000, so that every
        # property stands between two U+0002. Where the last was closed, there is one too many.
        text = text.replace(b"\x02\x02\x00", b"\x02\x00").replace(_LATER_WAIT_BYTES, b"\x02")
        text = text.replace(b"\x02\x00", self._end_of_stored)
        return text[1:-1].split(b"\x00\x02")


def waits_for_disk(properties: str) -> bool:
    """Return whether the answer waits for the disk, if any does: the message has no WAIT=false."""
    return not properties.startswith(_NO_WAIT) and _LATER_NO_WAIT not in properties


def may_be_special(properties: str) -> bool:
    """Return whether decoding is needed to see if the message is delayed or transactional."""
    return "DELAY" in properties or "TIMER_" in properties or "TRAN_MSG" in properties
