"""Fetches that found too little and wait: for records, for their time, or for their link to close.

A fetch waits at all the queues that it reads. An append tells it by how much a queue has grown, so
that nothing is read before there is enough.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from steelyard.nodes.broker.kafka.data.fetch_sessions import CachedPartition, Key, Session
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.parked import Parked, Queue
from steelyard.store.address import distance
from steelyard.store.log import Log

SLOT_MS = 10
PARKED_MAX = 16
"""Most waiting fetches of one link.

Kafka's clients have one at a time; a single append may have to answer all.
"""


class ReadableEnd(NamedTuple):
    """Up to where a log may be read: its offset and its address."""

    offset: int
    address: int

    @staticmethod
    def of(log: Log, offset: int) -> ReadableEnd:
        """May raise StorageError, but not for the end of the log."""
        at_end = offset == log.max_offset
        return ReadableEnd(offset, log.next_address if at_end else log.address_at(offset))


class Fetch(msgspec.Struct):
    """A fetch request that was checked.

    `session`: that of an incremental fetch, which is answered when something has changed.
    `makes_session`: the answer begins one. `committed`: only committed records are read. `found`:
    bytes that were there when it began to wait, and those added since. `ends`: the address up to
    which each queue could be read then, -1 if nothing was written yet. `news`: the partitions with
    something to report. `is_timed`: it waits for its time only.
    """

    call: OpenRequest
    parts: list[CachedPartition]
    session: Session | None
    makes_session: bool
    min_bytes: int
    max_bytes: int
    committed: bool
    found: int = 0
    ends: dict[Queue, tuple[CachedPartition, int]] = {}
    news: dict[Key, CachedPartition] = {}
    is_timed: bool = False


class ParkedFetches(Parked[Fetch]):
    """The fetches that wait, each at the queues in its `ends`."""

    def __init__(self, waiting_max: int) -> None:
        super().__init__(waiting_max, SLOT_MS, PARKED_MAX)

    def grown(self, queue: Queue, log: Log, high: ReadableEnd, stable: ReadableEnd) -> list[Fetch]:
        """Remove and return the fetches that have enough, now that more of a queue may be read.

        `high`: up to where; `stable` is that for readers of committed records.
        """
        ready = []
        for serial, fetch in self._by_queue[queue].items():
            asked, before = fetch.ends[queue]
            end = stable if fetch.committed else high
            if end.offset <= asked.offset:
                continue
            fetch.found += log.size() if before < 0 else distance(before, end.address)
            fetch.ends[queue] = (asked, end.address)
            fetch.news[asked.key] = asked
            if fetch.found >= fetch.min_bytes:
                ready.append(serial)
        return [self.remove(serial) for serial in ready]
