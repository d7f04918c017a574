"""Fetches that found too little and wait: for records, for their time, or for their connection to close.

A fetch waits at all the queues that it asks for. Appends tell it by how much a queue has grown, so that nothing is read
before there is enough.
"""

from __future__ import annotations

import msgspec

from steelyard.nodes.broker.kafka.data.fetch_sessions import CachedPartition, Key, Session
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.parked import Parked, Queue
from steelyard.store.log import Log

SLOT_MS = 10
PARKED_MAX = 16
"""Most fetches of one link that wait. Kafka's clients have one at a time; all of them may be answered by one append."""


class Fetch(msgspec.Struct):
    """One fetch request, checked.

    `session`: that of an incremental fetch, which is answered where something has changed; `makes_session`: the answer
    begins one. `found`: bytes that were there when it began to wait, and those that came since; `ends`: where each
    queue ended then, an address, -1 where nobody had written yet; `news`: the partitions with something to tell;
    `is_timed`: it waits for its time only.
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
    """See the module's text. A fetch waits at the queues in its `ends`."""

    def __init__(self, waiting_max: int) -> None:
        super().__init__(waiting_max, SLOT_MS, PARKED_MAX)

    def grown(self, queue: Queue, log: Log, stable: int) -> list[Fetch]:
        """A queue has grown: the fetches that waited for it and now have enough, removed.

        `stable`: its last stable offset; who reads committed records does not mind what is beyond.
        """
        ready = []
        for serial, fetch in self._by_queue[queue].items():
            asked, end = fetch.ends[queue]
            if fetch.committed and stable <= asked.offset:
                continue
            fetch.found += log.size() if end < 0 else log.next_address - end
            fetch.ends[queue] = (asked, log.next_address)
            fetch.news[asked.key] = asked
            if fetch.found >= fetch.min_bytes:
                ready.append(serial)
        return [self.remove(serial) for serial in ready]
