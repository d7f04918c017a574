"""Which queue each row goes to.

- `queueId` (with `brokerName` where a topic has several brokers) decides, where it is given.
- Otherwise rows of one `shardingKey`, or of one of `keys`, go to the queue that Java clients choose
  for the key (SelectMessageQueueByHash), as long as the topic has the same queues.
- Rows without a key go to the queues in turn, `TURN_ROWS` at a time.

Rows of a queue keep their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steelyard.errors import MessageError
from steelyard.spark.joining import Integers, buffers
from steelyard.spark.offsets import QueueName
from steelyard.spark.writing.rows import Rows
from steelyard.wire.remoting.flags import tag_code

TURN_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Target:
    """Rows for one queue, in order; None: all rows of the batch. `free`: any queue would do."""

    queue: QueueName
    rows: Integers | None
    free: bool


class Targets:
    """The choice of queues in one task. `queues_of` returns a topic's writable queues, in order."""

    def __init__(self, topic: str, queues_of: Callable[[str], Sequence[QueueName]]) -> None:
        """`topic`: of all rows; empty: each has its own."""
        self._topic = topic
        self._queues_of = queues_of
        self._turn = random.randrange(1 << 31)

    def choose(self, rows: Rows) -> Iterator[Target]:
        """Yield every row once. Raises MessageError for a queue that does not exist."""
        for topic, part in self._by_topic(rows):
            queues = self._queues_of(topic)
            chosen, free = self._chosen(rows, part, topic, queues)
            yield from _by_queue(queues, chosen, free, part)

    def _by_topic(self, rows: Rows) -> Iterator[tuple[str, Integers | None]]:
        if self._topic or rows.topic is None:
            yield self._topic, None
            return
        topics = rows.topic.dictionary_encode()
        codes = np.asarray(topics.indices, np.int64)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            part = None if len(topics.dictionary) == 1 else np.flatnonzero(codes == code)
            yield str(topic, "utf-8"), part

    def _chosen(
        self, rows: Rows, part: Integers | None, topic: str, queues: Sequence[QueueName]
    ) -> tuple[Integers, bool]:
        """Return the place in `queues` for each row of a topic, and whether any would do."""
        count = rows.count if part is None else len(part)
        chosen = (self._turn + np.arange(count) // TURN_ROWS) % len(queues)
        self._turn += -(-count // TURN_ROWS)
        free = True
        key = rows.keys if rows.sharding_key is None else rows.sharding_key
        if rows.sharding_key is not None and rows.keys is not None:
            key = pc.coalesce(rows.sharding_key, rows.keys)
        if key is not None:
            key = key if part is None else key.take(pa.array(part))
            keyed = np.asarray(pc.is_valid(key))
            hashes = np.abs(java_hashes(pc.fill_null(key, b"")).astype(np.int64))
            chosen = np.where(keyed, hashes % len(queues), chosen)
            free = not keyed.any()
        if rows.queue_id is not None:
            given = rows.queue_id if part is None else rows.queue_id[part]
            if (given >= 0).any():
                chosen = np.where(given >= 0, _given(rows, part, given, topic, queues), chosen)
                free = False
        return chosen, free


def _by_queue(
    queues: Sequence[QueueName], chosen: Integers, free: bool, part: Integers | None
) -> Iterator[Target]:
    used = np.unique(chosen)
    for place in used.tolist():
        if len(used) == 1:
            rows = part
        else:
            rows = np.flatnonzero(chosen == place)
            rows = rows if part is None else part[rows]
        yield Target(queues[place], rows, free)


def _given(
    rows: Rows, part: Integers | None, given: Integers, topic: str, queues: Sequence[QueueName]
) -> Integers:
    """Return the places of the queues that rows name, -1 where they name none."""
    brokers = {broker for _, broker, _ in queues}
    if rows.broker_name is None:
        if len(brokers) > 1:
            raise MessageError(
                f"column 'queueId' needs a column 'brokerName': topic {topic!r} is on the brokers"
                f" {', '.join(sorted(brokers))}"
            )
        named: list[str | None] = [*brokers] * len(given)
    else:
        column = rows.broker_name if part is None else rows.broker_name.take(pa.array(part))
        if len(brokers) == 1:
            column = pc.fill_null(column, next(iter(brokers)).encode())
        named = [None if name is None else str(name, "utf-8") for name in column.to_pylist()]
    places = {(broker, queue_id): place for place, (_, broker, queue_id) in enumerate(queues)}
    found = [
        -1 if queue_id < 0 else places.get((broker or "", queue_id), -2)
        for broker, queue_id in zip(named, given.tolist(), strict=True)
    ]
    if -2 in found:
        row = found.index(-2)
        raise MessageError(
            f"columns 'brokerName' and 'queueId' name queue {given[row]} of broker {named[row]!r},"
            f" which topic {topic!r} does not have for writing; drop the columns to have the queue"
            " chosen"
        )
    return np.array(found, np.int64)


def java_hashes(keys: pa.Array) -> Integers:
    """Return Java's `String.hashCode` of each UTF-8 text; see `wire.remoting.flags.tag_code`."""
    starts, data = buffers(keys)
    octets = np.frombuffer(data, np.uint8)[: starts[-1]] if len(data) else np.zeros(0, np.uint8)
    if (octets[starts[0] :] >= 0x80).any():
        coded = keys.dictionary_encode()
        hashes = [tag_code(str(key, "utf-8")) for key in coded.dictionary.to_pylist()]
        return np.array(hashes, np.int64)[np.asarray(coded.indices, np.int64)]
    found = np.zeros(len(keys), np.uint32)
    left = np.diff(starts)
    rows = np.flatnonzero(left)
    place = 0
    while len(rows):
        found[rows] = found[rows] * np.uint32(31) + octets[starts[rows] + place]
        place += 1
        rows = rows[left[rows] > place]
    return found.view(np.int32).astype(np.int64)
