"""Nouns that every room shares: queues, messages, and what a send or a consumption came to.

Times are milliseconds since the Unix epoch (`int`), unless a name says otherwise. Offsets count
messages of one queue; positions count bytes of one log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")

Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""Of a queue or a partition: 32 bits on both wires."""


class Random(Protocol):
    """The part of `random.Random` that pure rooms use; drivers pass a seeded one in."""

    def randrange(self, stop: int, /) -> int: ...
    def random(self) -> float: ...
    def choice(self, options: Sequence[T], /) -> T: ...


class LogLine(msgspec.Struct, frozen=True):
    """An effect: something a person should know. Drivers log it; nothing depends on it.

    `level` is a name of the logging module: DEBUG, INFO, WARNING, ERROR.
    """

    level: str
    text: str


class FileRange(Protocol):
    """Bytes of a file that nobody has read: `len` of them. A driver may send them without reading them.

    They stay what they are, also when the file is deleted, for as long as somebody has the range.
    """

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """All of them. Raises OSError."""


Sendable = bytes | FileRange
"""A piece of a frame, as drivers send it."""


def joined(pieces: Iterable[Sendable]) -> bytes:
    """The bytes of the pieces, one after the other; those of files are read. Raises OSError."""
    return b"".join([piece if isinstance(piece, bytes) else piece.read() for piece in pieces])


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Sorts as Java's `MessageQueue.compareTo` does."""

    topic: str
    broker_name: str
    queue_id: Number


class TopicPartition(NamedTuple):
    """One partition of a topic, as Kafka numbers them: over all brokers."""

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    partition: Number


class Message(msgspec.Struct, frozen=True):
    """A message to send: `body` to `topic`.

    `keys` and `tags` are the properties KEYS and TAGS of RocketMQ; `properties` holds the user's own
    ones, whose names and values must not contain the separators U+0001 and U+0002. `flag` is the application's own
    number. `delay_level`: 0 for at once, 1 to 18 for a level of RocketMQ's messageDelayLevel. `wait_store_ok`: a
    broker that flushes each message (`flush=sync`) answers when its disk has it; False: at once. Messages of one `sharding_key` go to one
    queue, in the order in which they are sent.
    Source: common/message/Message.java.
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ""
    properties: Mapping[str, str] = {}
    flag: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    delay_level: int = 0
    wait_store_ok: bool = True
    sharding_key: str = ""


class SendStatus(Enum):
    """What the broker said of a stored message. Source: client/producer/SendStatus.java.

    `SEND_OK`: all is well. The others: the broker has the message, but not yet its disk (`FLUSH_DISK_TIMEOUT`) or its
    replica (`FLUSH_SLAVE_TIMEOUT`), or there is no replica (`SLAVE_NOT_AVAILABLE`).
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True):
    """Where an accepted message (or the first one of a batch) went.

    `status` says how safe it is. `message_id` is the client's UNIQ_KEY, `offset_message_id` the broker's id by position
    (comma-joined for a batch), `queue_offset` the offset in `queue`.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int


class ConsumeStatus(Enum):
    """A concurrent listener's verdict. Source: listener/ConsumeConcurrentlyStatus.java.

    `CONSUME_SUCCESS`: done. `RECONSUME_LATER`: deliver the message again, after a delay that grows.
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """An orderly listener's verdict. Source: listener/ConsumeOrderlyStatus.java (without the deprecated two).

    `SUCCESS`: done. `SUSPEND_CURRENT_QUEUE_A_MOMENT`: deliver the message again, before the next one of its queue.
    """

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class TransactionState(Enum):
    """What became of a local transaction. Source: client/producer/LocalTransactionState.java.

    `COMMIT` publishes the message, `ROLLBACK` discards it; `UNKNOWN` leaves the half message as it is, and the broker
    asks again.
    """

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class TransactionResult(msgspec.Struct, frozen=True):
    """What became of a message sent in a transaction. Source: client/producer/TransactionSendResult.java.

    `send_result`: of the half message; its `message_id` is the transaction's id, its queue the one that will have
    the message, its offset that of the half message. `state`: what the broker was told.
    """

    send_result: SendResult
    state: TransactionState


class MessageModel(Enum):
    """Who of a group gets a message. Source: heartbeat/MessageModel.java."""

    CLUSTERING = "CLUSTERING"
    """One member."""
    BROADCASTING = "BROADCASTING"
    """Every member; each keeps its own offsets."""


class ExpressionType(Enum):
    """The language of a subscription's expression. Source: common/filter/ExpressionType.java."""

    TAG = "TAG"
    SQL92 = "SQL92"


class Subscription(NamedTuple):
    """What a consumer wants of a topic: all (`*`), tags joined by `||`, or what an SQL92 condition holds for."""

    topic: str
    expression: str = "*"
    expression_type: ExpressionType = ExpressionType.TAG


class ConsumeFrom(Enum):
    """Where a group without a committed offset starts. Source: common/consumer/ConsumeFromWhere.java.

    `LAST_OFFSET`: at the end of the queue. `FIRST_OFFSET`: at its beginning. `TIMESTAMP`: at the first message stored at
    `ConsumerConfig.consume_timestamp` or later.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
