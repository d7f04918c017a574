"""Types shared by all rooms: queues, messages, and results of sends and consumption.

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
"""Number of a queue or a partition: 32 bits on both wires."""


class Random(Protocol):
    """The part of `random.Random` that pure rooms use; drivers pass a seeded one in."""

    def randrange(self, stop: int, /) -> int: ...
    def random(self) -> float: ...
    def choice(self, options: Sequence[T], /) -> T: ...


class LogLine(msgspec.Struct, frozen=True):
    """An effect: a line for the log. Nothing depends on it.

    `level` is a name of the logging module: DEBUG, INFO, WARNING, ERROR.
    """

    level: str
    text: str


class Effort:
    """The work that may still be done at once, in about microseconds of an ordinary core.

    `left` may fall below zero, by the cost of what cannot be divided.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class FileRange(Protocol):
    """`len` unread bytes of a file, which a driver may send without reading them.

    They do not change as long as the range exists, even if the file is deleted.
    """

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """Read all of them. Raises OSError."""


Sendable = bytes | FileRange
"""A piece of a frame, as drivers send it."""


def joined(pieces: Iterable[Sendable]) -> bytes:
    """Concatenate the pieces; those of files are read. Raises OSError."""
    return b"".join([piece if isinstance(piece, bytes) else piece.read() for piece in pieces])


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Sorts like Java's `MessageQueue.compareTo`."""

    topic: str
    broker_name: str
    queue_id: Number


class TopicPartition(NamedTuple):
    """One partition of a topic, numbered across all brokers as in Kafka."""

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    partition: Number


def numbers_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The numbers of each topic's partitions, both in the order in which they come."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


class Message(msgspec.Struct, frozen=True):
    """A message to send: `body` to `topic`.

    `keys` and `tags` are RocketMQ's properties KEYS and TAGS; `properties` holds the user's own,
    whose names and values must not contain the separators U+0001 and U+0002. `flag` is the
    application's own number. `delay_level`: 0 for none, 1 to 18 for a level of RocketMQ's
    messageDelayLevel. `delay_ms` delays the message by that time, `deliver_at_ms` until that time,
    in ms since the epoch; 0 for none. `wait_store_ok`: a broker with `flush=sync` replies when the
    message is on disk; False: at once. Messages with the same `sharding_key` go to the same queue,
    in the order in which they are sent.
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
    delay_ms: int = 0
    deliver_at_ms: int = 0


class SendStatus(Enum):
    """The status of a stored message. Source: client/producer/SendStatus.java.

    `SEND_OK`: success. The others: the broker has the message, but it is not yet on its disk
    (`FLUSH_DISK_TIMEOUT`) or its replica (`FLUSH_SLAVE_TIMEOUT`), or there is no replica
    (`SLAVE_NOT_AVAILABLE`).
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True):
    """The result of an accepted send, for a batch that of its first message.

    `status` tells how safe it is. `message_id` is the client's UNIQ_KEY, `offset_message_id` the
    broker's id (comma-joined for a batch), `queue_offset` the offset in `queue`. With
    `recall_handle` a producer can take back a message with `delay_ms` or `deliver_at_ms`.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str | None = None


class ConsumeStatus(Enum):
    """The result of a concurrent listener. Source: listener/ConsumeConcurrentlyStatus.java.

    `CONSUME_SUCCESS`: consumed. `RECONSUME_LATER`: redeliver the message after a growing delay.
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """The result of an orderly listener.

    Source: listener/ConsumeOrderlyStatus.java (without the deprecated two).

    `SUCCESS`: consumed. `SUSPEND_CURRENT_QUEUE_A_MOMENT`: redeliver the message before the next one
    of its queue.
    """

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class TransactionState(Enum):
    """The state of a local transaction. Source: client/producer/LocalTransactionState.java.

    `COMMIT` publishes the message, `ROLLBACK` discards it; after `UNKNOWN` the broker keeps the
    half message and asks again.
    """

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class TransactionResult(msgspec.Struct, frozen=True):
    """The result of a message sent in a transaction.

    `send_result`: of the half message; its `message_id` is the transaction's id, its queue the
    message's later queue, its offset that of the half message. `state`: as sent to the broker.
    Source: client/producer/TransactionSendResult.java.
    """

    send_result: SendResult
    state: TransactionState


class MessageModel(Enum):
    """The members of a group that get a message. Source: heartbeat/MessageModel.java."""

    CLUSTERING = "CLUSTERING"
    """One member gets it."""
    BROADCASTING = "BROADCASTING"
    """Every member gets it, and keeps its own offsets."""


class ExpressionType(Enum):
    """The language of a subscription's expression. Source: common/filter/ExpressionType.java."""

    TAG = "TAG"
    SQL92 = "SQL92"


class Subscription(NamedTuple):
    """A subscription: all messages of a topic (`*`), tags joined by `||`, or an SQL92 condition."""

    topic: str
    expression: str = "*"
    expression_type: ExpressionType = ExpressionType.TAG


class ConsumeFrom(Enum):
    """The start of a group without a committed offset.

    Source: common/consumer/ConsumeFromWhere.java.

    `LAST_OFFSET`: at the end of the queue. `FIRST_OFFSET`: at its beginning. `TIMESTAMP`: at the
    first message stored at `ConsumerConfig.consume_timestamp` or later.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
