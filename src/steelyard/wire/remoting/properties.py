"""Properties of a message: `name U+0001 value U+0002`, repeated.

RocketMQ 4.x leaves the last U+0002 out, 5.x writes it; both are read. Segments without a name or a
value are ignored, and the last of two equal names wins. Source:
MessageDecoder.messageProperties2String, string2messageProperties; common/message/MessageConst.java.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.errors import MessageError

NAME_END = "\x01"
VALUE_END = "\x02"

PROPERTIES_BYTES_MAX = 32767
"""Java's Short.MAX_VALUE; a broker answers MESSAGE_ILLEGAL for more."""

KEYS = "KEYS"
KEY_SEPARATOR = " "
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
SHARDING_KEY = "__SHARDINGKEY"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
"""When to deliver a message, ms since the epoch, or after how many ms or s."""
TIMER_PROPERTIES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""In the order in which they count."""
TIMER_OUT_MS = "TIMER_OUT_MS"
"""The time for which a broker stored a message; one that has it was delayed already."""
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
"""When a delayed message came, and when it was delivered."""
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
"""`topic+UNIQ_KEY` of the delayed message that this one recalls."""


class Properties(msgspec.Struct, gc=False):
    """The properties of one message: their text, which is decoded at most once, on first access.

    `text` is as stored: each value ends with U+0002. Changed properties are a new object.
    """

    text: str
    _values: Mapping[str, str] | None = None

    @staticmethod
    def of(values: Mapping[str, str]) -> Properties:
        """Encode `values`, which must not change afterwards.

        Raises MessageError if a name or value contains a separator.
        """
        return Properties(encode_properties(values), values)

    @property
    def values(self) -> Mapping[str, str]:
        """Names and values, in the order of `text`."""
        if self._values is None:
            self._values = decode_properties(self.text)
        return self._values

    def without(self, name: str) -> Properties:
        if name not in self.values:
            return self
        return Properties.of({key: value for key, value in self.values.items() if key != name})


def closed(text: str) -> str:
    """Append the final U+0002, which clients before 5.x leave out, if it is missing."""
    return text if text[-1:] == VALUE_END or not text else text + VALUE_END


def encode_properties(properties: Mapping[str, str]) -> str:
    """Encode the text of a header's `properties`.

    Raises MessageError for texts with a separator.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(VALUE_END) != len(properties):
        raise MessageError("a property contains the separator U+0002")
    # A value may contain U+0001, because readers split at the first one only.
    if text.count(NAME_END) != len(properties) and any(NAME_END in name for name in properties):
        raise MessageError("the name of a property contains the separator U+0001")
    return text


def decode_properties(properties: bytes | str) -> dict[str, str]:
    """Decode names and values in wire order. Invalid UTF-8 becomes U+FFFD, as in Java."""
    text = properties if isinstance(properties, str) else str(properties, "utf-8", "replace")
    found: dict[str, str] = {}
    for segment in text.split(VALUE_END):
        name, _, value = segment.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def property_of(properties: bytes, name: str) -> str | None:
    """Return one value without decoding the others.

    The result is that of `decode_properties(properties).get(name)`.
    """
    prefix = name.encode() + b"\x01"
    position = properties.rfind(b"\x02" + prefix)
    if position >= 0:
        start = position + 1 + len(prefix)
    elif properties.startswith(prefix):
        start = len(prefix)
    else:
        return None
    end = properties.find(b"\x02", start)
    value = properties[start:] if end < 0 else properties[start:end]
    if value:
        return str(value, "utf-8", "replace")
    # The last part is empty and does not count; an earlier one might.
    return decode_properties(properties).get(name)
