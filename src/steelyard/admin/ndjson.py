"""Messages as JSON lines: the output of `consume --json` and input of `produce --input json`.

Everything that a user can set is preserved: topic, body, tags, keys, properties, flag, sharding
key, delay level. The other fields describe where and when the message was stored; a message that is
sent gets its own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from steelyard.decoding import prepared
from steelyard.errors import MessageError
from steelyard.produce.rules import RESERVED_PROPERTIES
from steelyard.types import Message
from steelyard.wire.remoting import properties as props

if TYPE_CHECKING:
    from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
    from steelyard.wire.remoting.message import MessageView

BROKERS_OWN = RESERVED_PROPERTIES | {
    props.SHARDING_KEY,
    props.TRANSACTION_CHECK_TIMES,
    props.DLQ_ORIGIN_TOPIC,
    props.DLQ_ORIGIN_MESSAGE_ID,
}
"""Properties that are not a user's: they have their own fields, or describe the message's history.
"""

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class MessageLine(msgspec.Struct, forbid_unknown_fields=True):
    """A RocketMQ message. The body is text, or `body_base64` if it is not UTF-8."""

    topic: str = ""
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    tags: str = ""
    keys: str | tuple[str, ...] = ""
    """As text: separated by spaces."""
    properties: dict[str, str] = {}
    sharding_key: str = ""
    delay_level: int = 0
    """Also 0 if the broker hides it from consumers, as Steelyard's and those of 5.x do."""
    delay_ms: int = 0
    deliver_at_ms: int = 0
    """To send it later; 0 in what is printed."""
    flag: int = 0
    wait_store_ok: bool = True
    broker: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    message_id: str = ""
    born_timestamp: int = 0
    store_timestamp: int = 0
    reconsume_times: int = 0
    system_properties: dict[str, str] = {}
    """The other properties, of clients and brokers."""


class HeaderLine(msgspec.Struct):
    """A header of a Kafka record. `value` is null if there is none."""

    name: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class RecordLine(msgspec.Struct):
    """A Kafka record. Key and value are text or null, or base64 if they are not UTF-8."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: str | UnsetType | None
    key_base64: str | UnsetType
    value: str | UnsetType | None
    value_base64: str | UnsetType
    headers: list[HeaderLine]


def message_line(message: MessageView) -> bytes:
    """Format a message as JSON on one line."""
    body, body_base64 = _text(message.body)
    assert body is not None
    properties = message.properties
    user = {name: value for name, value in properties.items() if name not in BROKERS_OWN}
    line = MessageLine(
        topic=message.topic,
        body=body,
        body_base64=body_base64,
        tags=message.tags,
        keys=message.keys,
        properties=user,
        sharding_key=properties.get(props.SHARDING_KEY, ""),
        delay_level=_delay_level(properties),
        flag=message.flag,
        wait_store_ok=properties.get(props.WAIT, "true") == "true",
        broker=message.broker_name,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        born_timestamp=message.born_timestamp,
        store_timestamp=message.store_timestamp,
        reconsume_times=message.reconsume_times,
        system_properties={n: value for n, value in properties.items() if n not in user},
    )
    return msgspec.json.encode(line)


def record_line(record: ConsumerRecord) -> bytes:
    """Format a Kafka record as JSON on one line."""
    line = RecordLine(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        TIMESTAMP_TYPES[record.timestamp_type],
        *_text(record.key),
        *_text(record.value),
        [HeaderLine(name, *_text(value)) for name, value in record.headers],
    )
    return msgspec.json.encode(line)


def parse_message(line: bytes, topic: str | None) -> Message:
    """Parse the message in a line; `topic` overrides its own. Raises MessageError."""
    try:
        given = msgspec.json.decode(line, type=prepared(MessageLine))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MessageError(f"not a message in the format of `consume --json`: {error}") from None
    return Message(
        topic=topic or given.topic,
        body=_body(given),
        tags=given.tags,
        keys=given.keys,
        properties=given.properties,
        flag=given.flag,
        delay_level=given.delay_level,
        delay_ms=given.delay_ms,
        deliver_at_ms=given.deliver_at_ms,
        wait_store_ok=given.wait_store_ok,
        sharding_key=given.sharding_key,
    )


def _text(data: bytes | None) -> tuple[str | UnsetType | None, str | UnsetType]:
    """Return data as text, or as base64 if that is impossible; null for None."""
    if data is None:
        return None, UNSET
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, b64encode(data).decode()


def _body(line: MessageLine) -> bytes:
    if (line.body is UNSET) == (line.body_base64 is UNSET):
        raise MessageError("a message needs either body or body_base64")
    if isinstance(line.body, str):
        return line.body.encode()
    assert isinstance(line.body_base64, str)
    try:
        return b64decode(line.body_base64, validate=True)
    except ValueError as error:
        raise MessageError(f"body_base64 is not base64: {error}") from None


def _delay_level(properties: Mapping[str, str]) -> int:
    text = properties.get(props.DELAY, "")
    return int(text) if text.isascii() and text.isdigit() else 0
