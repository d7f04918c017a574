"""Figures of a broker, which it sends to whoever watches the cluster: bodies of our own, in JSON.

- `BrokerFigures` answers FIGURES (9103), by `nodes/broker/remoting/figures`;
- `KafkaFigures` answers KAFKA_FIGURES (9104), by `nodes/broker/kafka/figures`;
- `StoreTimes` is the body of STORE_TIMES (9105), and of its answer.

Rows are arrays. Counters begin with the broker, times are in ms since the epoch by the broker's
clock, durations in seconds. A field that a later version adds has a default, so that brokers and
readers of neighbouring versions understand each other.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar, TypeVar

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError

T = TypeVar("T")

DURATION_BOUNDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the buckets of `Durations`, in seconds; one more bucket has what is longer."""

ROWS_MAX = 50_000
"""Most rows of a kind in one answer, so that it fits a frame; further ones are only counted."""

NOT_COMMITTED = -1
"""Stands for the offset of a group in what its members read without having committed one."""

TIMES_MAX = 50_000
"""Most offsets that one request may ask the times of."""


class Durations(msgspec.Struct):
    """How often something took how long. `counts`: by bucket; the last has what is longer."""

    bounds: ClassVar[tuple[float, ...]] = DURATION_BOUNDS
    """Upper bounds of the buckets, in seconds."""
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))
    sum_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; less than nothing counts as nothing."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds


class ListenerFigures(msgspec.Struct, frozen=True):
    """A listening port: its connections now, and the bytes since it was opened."""

    connections: int
    received_bytes: int
    sent_bytes: int


class ProcessFigures(msgspec.Struct, frozen=True):
    """What only the process knows: measured by its driver, which decides nothing by it.

    `loop_delay`: how late the event loop called back. `syncs`: how long the disk took to have what
    was written. `listeners`: by dialect. `refused`: connections refused for lack of room.
    `displaced`: those closed because others needed their places. `failures`: bugs met.
    """

    loop_delay: Durations
    syncs: Durations
    listeners: dict[str, ListenerFigures]
    refused: int
    displaced: int
    failures: int
    cpu_seconds: float
    resident_bytes: int


class QueueRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A queue: its readable offsets, from `begin` to before `end`, and the bytes of its files."""

    topic: str
    queue_id: int
    begin: int
    end: int
    size_bytes: int


class OffsetRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a RocketMQ group has come in a queue.

    `offset`: -1 if it has committed none; its lag counts from the queue's first message then.
    `waiting_since`: when the first message that it has not committed was stored; 0 if none waits.
    """

    topic: str
    queue_id: int
    offset: int
    lag: int
    waiting_since: int


class GroupFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A RocketMQ group: its members at this broker, and where it is in the broker's queues."""

    group: str
    members: int
    offsets: tuple[OffsetRow, ...]


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to FIGURES.

    `requests`: those of RocketMQ's clients that came, by name; `refused`: those that were refused,
    by the name of the response code. `parked`: requests that wait now, by kind. `skipped`: messages
    that RocketMQ consumers cannot receive. `damaged`: log entries found damaged. `disk_free`,
    `disk_size`: bytes of the file system. `left_out`: rows beyond `ROWS_MAX`. `process`: None until
    the driver has measured for the first time. `stood_still_ms`: time in which the broker did not
    run, from its pulse.
    """

    name: str
    cluster: str
    address: str
    now: int
    started_at: int
    messages_in: int
    bytes_in: int
    messages_out: int
    requests: dict[str, int]
    refused: dict[str, int]
    parked: dict[str, int]
    skipped: int
    damaged: int
    disk_free: int
    disk_size: int
    queues: tuple[QueueRow, ...]
    groups: tuple[GroupFigures, ...]
    left_out: int
    process: ProcessFigures | None
    stood_still_ms: int = 0


class PartitionRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition that a group has committed an offset of or a member holds, and its queue.

    `offset`: NOT_COMMITTED if there is none; the lag counts from the first message then.
    """

    topic: str
    partition: int
    broker: str
    queue_id: int
    offset: int

    @property
    def reached(self) -> int:
        """Return the offset from which messages count as not consumed; it may be deleted."""
        return max(self.offset, 0)


class KafkaGroupFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A Kafka group.

    `kind`: classic, consumer, share or streams; `state`: as in Kafka's ListGroups.
    """

    group: str
    kind: str
    state: str
    members: int
    offsets: tuple[PartitionRow, ...]


class QueuePartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The partition that a queue of the broker is."""

    topic: str
    queue_id: int
    partition: int


class KafkaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to KAFKA_FIGURES: the Kafka listener, and the groups that the broker coordinates.

    `ready`: Kafka's clients are served. `requests`: those that came, by name; `refused`: batches of
    producers that were refused, by the name of the error. `partitions`: those in which something
    was written. `left_out`: rows beyond `ROWS_MAX`. `logins`: by mechanism, then by outcome,
    accepted or refused.
    """

    name: str
    ready: bool
    requests: dict[str, int]
    refused: dict[str, int]
    parked: dict[str, int]
    partitions: tuple[QueuePartition, ...]
    groups: tuple[KafkaGroupFigures, ...]
    left_out: int
    logins: dict[str, dict[str, int]] = {}


class QueueTimes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """In a request offsets of a queue; in the answer, in the same order, when each was stored.

    An offset that was deleted stands for the first one that is left; one that does not exist yet
    gets 0.
    """

    topic: str
    queue_id: int
    values: tuple[int, ...]


class StoreTimes(msgspec.Struct, frozen=True):
    """Body of STORE_TIMES, and of its answer.

    `now`: in the answer the broker's clock, 0 from versions that do not say it.
    """

    queues: tuple[QueueTimes, ...]
    now: int = 0


_encoder = msgspec.json.Encoder()


def write(body: BrokerFigures | KafkaFigures | StoreTimes) -> bytes:
    """Encode a body."""
    return _encoder.encode(body)


def read(body: bytes, kind: type[T]) -> T:
    """Decode a body. Raises ProtocolError."""
    try:
        return msgspec.json.decode(body, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"no {kind.__name__}: {error}") from None
