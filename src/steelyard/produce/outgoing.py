"""From what an application wants sent to what goes over the wire: bodies, properties, the request.

Source: client/impl/producer/DefaultMQProducerImpl.java `sendKernelImpl`, DefaultMQProducer.java `batch`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.config import ProducerConfig
from steelyard.errors import MessageError
from steelyard.produce import rules
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import SysFlag, compress
from steelyard.wire.remoting.ids import UniqueIds
from steelyard.wire.remoting.message import BatchEntry, encode_batch
from steelyard.wire.remoting.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    PROPERTIES_BYTES_MAX,
    TAGS,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)

_COMPRESSED = SysFlag.COMPRESSED | SysFlag.ZLIB


class Outgoing(msgspec.Struct, frozen=True):
    """A send, ready for any queue of `topic`. `message_id`: UNIQ_KEY, comma-joined for a batch."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    message_id: str
    batch: bool
    born_timestamp: int


def prepare(
    messages: Sequence[Message], ids: UniqueIds, config: ProducerConfig, now: int
) -> Outgoing:
    """One message as a single send, several as one batch. Raises MessageError where a rule is broken."""
    rules.check_batch(messages, config.message_bytes_max)
    if len(messages) == 1:
        return _single(messages[0], ids.next(now), config, now)
    unique = [ids.next(now) for _ in messages]
    body = encode_batch(
        [
            BatchEntry(message.flag, message.body, _properties(message, identity).encode())
            for message, identity in zip(messages, unique, strict=True)
        ]
    )
    if len(body) > config.message_bytes_max:
        raise MessageError(
            f"the batch has {len(body)} bytes; at most {config.message_bytes_max} are allowed"
        )
    wait = "true" if messages[0].wait_store_ok else "false"
    properties = encode_properties({WAIT: wait})
    return Outgoing(messages[0].topic, body, properties, 0, 0, ",".join(unique), True, now)


def _single(message: Message, identity: str, config: ProducerConfig, now: int) -> Outgoing:
    properties = _properties(message, identity)
    body, sys_flag = message.body, 0
    if 0 < config.compress_above_bytes < len(body):
        sys_flag = _COMPRESSED
        body = compress(body, sys_flag)
    return Outgoing(message.topic, body, properties, sys_flag, message.flag, identity, False, now)


def _properties(message: Message, identity: str) -> str:
    properties = dict(message.properties)
    if message.keys:
        keys = message.keys
        properties[KEYS] = keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys)
    if message.tags:
        properties[TAGS] = message.tags
    properties[UNIQ_KEY] = identity
    properties[WAIT] = "true" if message.wait_store_ok else "false"
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    text = encode_properties(properties)
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise MessageError(f"the properties are no text: {error}") from None
    if size > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"the properties have {size} bytes; at most {PROPERTIES_BYTES_MAX} are allowed"
        )
    return text


def request(outgoing: Outgoing, queue: MessageQueue, config: ProducerConfig) -> Command:
    """The SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE for one queue."""
    header = headers.SendMessageRequestHeaderV2(
        producer_group=config.group,
        topic=outgoing.topic,
        default_topic=config.default_topic,
        default_topic_queue_nums=config.default_topic_queues,
        queue_id=queue.queue_id,
        sys_flag=outgoing.sys_flag,
        born_timestamp=outgoing.born_timestamp,
        flag=outgoing.flag,
        properties=outgoing.properties,
        batch=outgoing.batch,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if outgoing.batch else RequestCode.SEND_MESSAGE_V2
    return Command(code=code, ext=headers.write(header), body=outgoing.body)
