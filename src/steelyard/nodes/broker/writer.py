"""The only way into the logs: a message becomes a record, is appended, and wakes its readers.

Producers, the schedule, retries and the ledger all write through here; so do Kafka's producers, in
whole batches. Writing raises StorageError if the disk refuses; nothing was written then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.requests import host_of
from steelyard.nodes.broker.retention import Retention
from steelyard.nodes.broker.statistics import BrokerStatistics
from steelyard.nodes.seam import Effect
from steelyard.store.address import POSITION_MASK, distance
from steelyard.store.log import Log
from steelyard.store.store import Store
from steelyard.wire.kafka.records import with_offset
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import batch_writer, encode_record
from steelyard.wire.remoting.properties import TAGS, VALUE_END, Properties

_END = VALUE_END.encode()
_TAG = f"{TAGS}\x01".encode()
_LATER_TAG = _END + _TAG


Watcher = Callable[[str, int, int, list[Effect]], None]
"""A function of (topic, queue id, now, effects to add to)."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A message that has no place in a log yet."""

    body: bytes
    properties: Properties
    born_host: bytes
    born_timestamp: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class BatchOrigin(msgspec.Struct, frozen=True, gc=False):
    """What the messages of a batch have in common."""

    born_host: bytes
    born_timestamp: int
    sys_flag: int = 0
    reconsume_times: int = 0


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was written."""

    offset: int
    address: int


class Writer:
    """Appends messages to logs; see the module docstring."""

    def __init__(
        self,
        store: Store,
        durability: Durability,
        retention: Retention,
        statistics: BrokerStatistics,
        address: str,
        appended: Watcher,
    ) -> None:
        """`appended` is called for every queue with something new, once that may be read."""
        self._store = store
        self._appended = appended
        self._durability = durability
        self.admit = retention.admit
        """Raises DiskFullError while the disk is nearly full.

        Called before messages of clients are written. What the broker writes for itself, such as
        transaction markers, continues until the disk itself refuses.
        """
        self.statistics = statistics
        self.host = host_of(address)

    def next_address(self, topic: str, queue_id: int) -> int:
        """Return the address that the next message of a queue will have."""
        return self._store.create_log(topic, queue_id).next_address

    def log(self, topic: str, queue_id: int) -> Log:
        """Return the log of a queue, created if it does not exist. Raises StorageError."""
        return self._store.log(topic, queue_id) or self._store.create_log(topic, queue_id)

    def write(
        self, topic: str, queue_id: int, draft: Draft, now: int, effects: list[Effect]
    ) -> AppendResult:
        """Append one message and wake the requests that wait for it."""
        log = self.log(topic, queue_id)
        offset = log.max_offset
        address = log.next_address
        properties = draft.properties.text.encode()
        record = self._record(topic, queue_id, draft, properties, offset, address, now)
        log.append(record, tag_code_of(properties), now)
        self.statistics.put_messages += 1
        self.statistics.put_bytes += len(record)
        self.wrote(log, offset, now, effects)
        return AppendResult(offset, address)

    def write_many(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[tuple[int, bytes, bytes]],
        origin: BatchOrigin,
        now: int,
        effects: list[Effect],
    ) -> tuple[int, list[int]]:
        """Append messages, at least one, back to back, all or none.

        `messages`: flag, body and properties of each. Return the offset of the first and the
        address of each.
        """
        log = self.log(topic, queue_id)
        first = offset = log.max_offset
        address = log.next_address
        log_base = address & ~POSITION_MASK
        write = batch_writer(
            topic,
            queue_id,
            origin.born_host,
            self.host,
            origin.sys_flag,
            origin.reconsume_times,
            origin.born_timestamp,
            now,
        )
        entries: list[tuple[bytes, int]] = []
        addresses: list[int] = []
        for flag, body, properties in messages:
            record = write(flag, offset, address, body, properties)
            entries.append((record, tag_code_of(properties)))
            addresses.append(address)
            address = log_base | address + len(record) & POSITION_MASK
            offset += 1
        log.append_many(entries, now)
        self.statistics.put_messages += len(entries)
        self.statistics.put_bytes += distance(addresses[0], address)
        self.wrote(log, first, now, effects)
        return first, addresses

    def write_batch(
        self, log: Log, batch: bytes, count: int, now: int, append_time: int | None = None
    ) -> int:
        """Append a checked Kafka record batch and return its base offset; call `wrote` next.

        `append_time`: the timestamp that all its records get, None to keep their own.
        """
        placed = with_offset(batch, log.max_offset, append_time=append_time)
        offset = log.append_batch(placed, count, now)
        self.statistics.put_messages += count
        self.statistics.put_bytes += len(placed)
        return offset

    def wrote(self, log: Log, offset: int, now: int, effects: list[Effect]) -> None:
        """Wake who waits for a log that was appended to from `offset` on, if it may be read yet."""
        if self._durability.wrote(log, offset):
            self._appended(log.topic, log.queue_id, now, effects)

    def _record(
        self,
        topic: str,
        queue_id: int,
        draft: Draft,
        properties: bytes,
        offset: int,
        address: int,
        now: int,
    ) -> bytes:
        return encode_record(
            topic=topic,
            queue_id=queue_id,
            flag=draft.flag,
            queue_offset=offset,
            physical_offset=address,
            sys_flag=draft.sys_flag,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_timestamp=now,
            store_host=self.host,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
            body=draft.body,
            properties=properties,
        )


def tag_code_of(properties: bytes) -> int:
    """Return the code of a message's tag, 0 without one."""
    if properties.startswith(_TAG):
        start = len(_TAG)
    else:
        start = properties.find(_LATER_TAG) + len(_LATER_TAG)
        if start < len(_LATER_TAG):
            return 0
    end = properties.find(_END, start)
    return _code_of(properties[start:end] if end >= 0 else properties[start:])


@lru_cache(maxsize=4096)
def _code_of(tag: bytes) -> int:
    return tag_code(str(tag, "utf-8", "replace"))
