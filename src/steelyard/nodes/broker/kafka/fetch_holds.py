"""Fetches that found too little and wait: for records, for their time, or for their connection to close.

A fetch waits at all the queues that it asks for. Appends tell it by how much a queue has grown, so that nothing is read
before there is enough. Times are rounded up to `SLOT_MS`, so that a thousand fetches need few timers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from steelyard.nodes.broker.kafka.door import Call
from steelyard.nodes.broker.kafka.fetch_sessions import Asked, Key, Session
from steelyard.nodes.seam import Link
from steelyard.store.log import Log

SLOT_MS = 10
PARKED_MAX = 16
"""Most fetches of one link that wait. Kafka's clients have one at a time; all of them may be answered by one append."""

Queue = tuple[str, int]
"""Topic and queue id."""


class Fetch(msgspec.Struct):
    """One fetch request, checked.

    `session`: that of an incremental fetch, which is answered where something has changed; `makes_session`: the answer
    begins one. `found`: bytes that were there when it began to wait, and those that came since; `ends`: where each
    queue ended then, an address, -1 where nobody had written yet; `news`: the partitions with something to tell.
    """

    call: Call
    parts: list[Asked]
    session: Session | None
    makes_session: bool
    min_bytes: int
    max_bytes: int
    committed: bool
    found: int = 0
    ends: dict[Queue, tuple[Asked, int]] = {}
    news: dict[Key, Asked] = {}
    slot: int = 0


class Holds:
    """See the module's text. Holds are numbered in the order they came."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._serial = 0
        self._holds: dict[int, Fetch] = {}
        self._by_queue: dict[Queue, dict[int, Fetch]] = {}
        self._by_link: dict[Link, set[int]] = {}
        self._slots: dict[int, set[int]] = {}
        self._slot_order: list[int] = []

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def next_at(self) -> int | None:
        """When the next hold may be due, None without holds. May be earlier than any hold left."""
        return self._slot_order[0] if self._slot_order else None

    def add(self, fetch: Fetch, due_at: int) -> bool:
        """Let a fetch wait at the queues in its `ends`; False where too many wait already."""
        of_link = self._by_link.get(fetch.call.peer.link)
        if len(self._holds) >= self._waiting_max or (of_link and len(of_link) >= PARKED_MAX):
            return False
        self._serial += 1
        serial = self._serial
        fetch.slot = -(-due_at // SLOT_MS) * SLOT_MS
        self._holds[serial] = fetch
        by_queue = self._by_queue
        for queue in fetch.ends:
            waiting = by_queue.get(queue)
            if waiting is None:
                by_queue[queue] = {serial: fetch}
            else:
                waiting[serial] = fetch
        self._by_link.setdefault(fetch.call.peer.link, set()).add(serial)
        slot = self._slots.get(fetch.slot)
        if slot is None:
            self._slots[fetch.slot] = slot = set()
            heapq.heappush(self._slot_order, fetch.slot)
        slot.add(serial)
        return True

    def waited_for(self, queue: Queue) -> bool:
        return queue in self._by_queue

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
        return [self._remove(serial) for serial in ready]

    def _remove(self, serial: int) -> Fetch:
        fetch = self._holds.pop(serial)
        for queue in fetch.ends:
            waiting = self._by_queue[queue]
            del waiting[serial]
            if not waiting:
                del self._by_queue[queue]
        of_link = self._by_link[fetch.call.peer.link]
        of_link.remove(serial)
        if not of_link:
            del self._by_link[fetch.call.peer.link]
        self._slots[fetch.slot].remove(serial)  # an empty slot goes when its time comes
        return fetch

    def due(self, now: int) -> list[Fetch]:
        """Remove and return the holds whose time has come, in the order they came."""
        found: list[Fetch] = []
        while self._slot_order and self._slot_order[0] <= now:
            slot = heapq.heappop(self._slot_order)
            found.extend(self._remove(serial) for serial in sorted(self._slots[slot]))
            del self._slots[slot]
        return found

    def closed(self, link: Link) -> None:
        """Nobody waits on this connection any more."""
        for serial in sorted(self._by_link.get(link, ())):
            self._remove(serial)

    def check(self) -> None:
        assert len(self._holds) <= self._waiting_max
        waiting: Iterable[tuple[Queue, int]] = (
            (queue, serial) for queue, holds in self._by_queue.items() for serial in holds
        )
        assert sorted(waiting) == sorted(
            (queue, serial) for serial, fetch in self._holds.items() for queue in fetch.ends
        )
        assert all(self._by_queue.values())
        by_link = [serial for serials in self._by_link.values() for serial in serials]
        assert sorted(by_link) == sorted(self._holds)
        assert sorted(s for slot in self._slots.values() for s in slot) == sorted(self._holds)
        assert sorted(self._slot_order) == sorted(self._slots)
