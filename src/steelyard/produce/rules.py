"""The rules for messages. Violations raise MessageError before anything is sent.

Source: client/Validators.java, common/message/MessageBatch.java, common/message/Message.java
`putUserProperty`, common/topic/TopicValidator.java (4.9.8).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from steelyard.errors import MessageError
from steelyard.types import Message
from steelyard.wire.remoting.names import (
    DELAY_LEVEL_MAX,
    NAME,
    RETRY_PREFIX,
    SELF_TEST_TOPIC,
    TOPIC_CHARACTERS_MAX,
)
from steelyard.wire.remoting.properties import TIMER_PROPERTIES

_SEPARATORS = re.compile("[\x01\x02]")

FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
        SELF_TEST_TOPIC,
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics that only brokers write to."""

RESERVED_PROPERTIES = frozenset(
    {
        "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG",
        "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG",
        "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "UNIQ_KEY",
        "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "INSTANCE_ID", "CORRELATION_ID",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
    }
)  # fmt: skip
"""Property names that brokers and clients use themselves (MessageConst.STRING_HASH_SET)."""


def check_topic(topic: str) -> None:
    """Raise MessageError unless a client may send to a topic of this name."""
    if not topic:
        raise MessageError("the topic is empty")
    if len(topic) > TOPIC_CHARACTERS_MAX:
        raise MessageError(
            f"topic {topic[:20]!r}… is longer than {TOPIC_CHARACTERS_MAX} characters"
        )
    if not NAME.fullmatch(topic):
        raise MessageError(f"topic {topic!r} has characters other than letters, digits and %|_-")
    if topic in FORBIDDEN_TOPICS:
        raise MessageError(f"topic {topic} is written by brokers only")


def check_message(message: Message, body_bytes_max: int) -> None:
    """Raise MessageError if the message by itself violates a rule."""
    check_topic(message.topic)
    if not message.body:
        raise MessageError("the body is empty")
    if len(message.body) > body_bytes_max:
        raise MessageError(
            f"the body has {len(message.body)} bytes; at most {body_bytes_max} are allowed"
        )
    if not -(1 << 31) <= message.flag < 1 << 31:
        raise MessageError(f"flag {message.flag} does not fit into 32 bits")
    if not 0 <= message.delay_level <= DELAY_LEVEL_MAX:
        raise MessageError(
            f"delay level {message.delay_level} is not one of 0 to {DELAY_LEVEL_MAX}"
        )
    delays = (message.delay_level, message.delay_ms, message.deliver_at_ms)
    if min(delays) < 0:
        raise MessageError("delay_ms and deliver_at_ms must not be negative")
    if sum(map(bool, delays)) > 1:
        raise MessageError("give one of delay_level, delay_ms and deliver_at_ms")
    if _SEPARATORS.search(message.tags):
        raise MessageError("the tag contains a separator, U+0001 or U+0002")
    if message.sharding_key and _SEPARATORS.search(message.sharding_key):
        raise MessageError("the sharding key contains a separator, U+0001 or U+0002")
    for key in (message.keys,) if isinstance(message.keys, str) else message.keys:
        if _SEPARATORS.search(key):
            raise MessageError("a key contains a separator, U+0001 or U+0002")
    for name, value in message.properties.items():
        _check_property(name, value)


def is_delayed(message: Message) -> bool:
    """Return whether the broker is to delay the message; such ones are sent alone."""
    delays = (message.delay_level, message.delay_ms, message.deliver_at_ms)
    return any(delays) or not message.properties.keys().isdisjoint(TIMER_PROPERTIES)


def _check_property(name: str, value: str) -> None:
    if name in RESERVED_PROPERTIES:
        raise MessageError(f"property name {name} is taken by the system")
    if not name or not value:
        raise MessageError(
            f"property {name!r} is empty: the wire cannot carry empty names or values"
        )
    if _SEPARATORS.search(name) or _SEPARATORS.search(value):
        raise MessageError(f"property {name!r} contains a separator, U+0001 or U+0002")


def check_batch(messages: Sequence[Message], body_bytes_max: int) -> None:
    """Raise MessageError if the messages cannot form a batch, or one of them cannot be sent."""
    if not messages:
        raise MessageError("a batch without messages")
    first = messages[0]
    for message in messages:
        check_message(message, body_bytes_max)
        if len(messages) == 1:
            return
        if message.topic != first.topic:
            raise MessageError(f"a batch with the topics {first.topic} and {message.topic}")
        if is_delayed(message):
            raise MessageError("a delayed message cannot be in a batch")
        if message.topic.startswith(RETRY_PREFIX):
            raise MessageError("a message to a retry topic cannot be in a batch")
        if message.wait_store_ok != first.wait_store_ok:
            raise MessageError("messages of one batch must agree on wait_store_ok")
