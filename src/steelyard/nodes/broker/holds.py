"""Pulls that found nothing and wait: for a message, for their deadline, or for their connection to close.

Deadlines are rounded up to `SLOT_MS`, so that thousands of holds need one timer and leave without a
search. The node asks `next_at` after each event and sets the timer when it moved.
"""

from __future__ import annotations

import heapq

import msgspec

from steelyard.groups.subscriptions import Filter
from steelyard.nodes.broker.door import Peer
from steelyard.wire.remoting.command import Command

SLOT_MS = 50

Queue = tuple[str, int]
"""Topic and queue id."""


class Pull(msgspec.Struct):
    """One pull request, checked. `asked` is the offset in it, from which `offset` moves past messages
    that the filter refuses."""

    request: Command
    peer: Peer
    group: str
    topic: str
    queue_id: int
    asked: int
    offset: int
    count_max: int
    bytes_max: int
    filter: Filter
    hold_ms: int
    slot: int = 0


class Holds:
    """See the module's text. Holds are numbered in the order they came."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._serial = 0
        self._holds: dict[int, Pull] = {}
        self._by_queue: dict[Queue, dict[int, Pull]] = {}
        self._by_link: dict[int, set[int]] = {}
        self._slots: dict[int, set[int]] = {}
        self._slot_order: list[int] = []

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def next_at(self) -> int | None:
        """When the next hold may be due, None without holds. May be earlier than any hold left."""
        return self._slot_order[0] if self._slot_order else None

    def add(self, pull: Pull, now: int) -> bool:
        """Let the pull wait; False where too many wait already."""
        if len(self._holds) >= self._waiting_max:
            return False
        self._serial += 1
        serial = self._serial
        pull.slot = -(-(now + pull.hold_ms) // SLOT_MS) * SLOT_MS
        self._holds[serial] = pull
        self._by_queue.setdefault((pull.topic, pull.queue_id), {})[serial] = pull
        self._by_link.setdefault(pull.peer.link, set()).add(serial)
        slot = self._slots.get(pull.slot)
        if slot is None:
            self._slots[pull.slot] = slot = set()
            heapq.heappush(self._slot_order, pull.slot)
        slot.add(serial)
        return True

    def of_queue(self, topic: str, queue_id: int) -> dict[int, Pull] | None:
        """The pulls that wait for a queue, by number. Not to be changed by the caller."""
        return self._by_queue.get((topic, queue_id))

    def remove(self, serial: int) -> Pull:
        pull = self._holds.pop(serial)
        queue = (pull.topic, pull.queue_id)
        of_queue = self._by_queue[queue]
        del of_queue[serial]
        if not of_queue:
            del self._by_queue[queue]
        of_link = self._by_link[pull.peer.link]
        of_link.remove(serial)
        if not of_link:
            del self._by_link[pull.peer.link]
        self._slots[pull.slot].remove(serial)  # an empty slot goes when its time comes
        return pull

    def due(self, now: int) -> list[Pull]:
        """Remove and return the holds whose time has come, in the order they came."""
        found: list[Pull] = []
        while self._slot_order and self._slot_order[0] <= now:
            slot = heapq.heappop(self._slot_order)
            found.extend(self.remove(serial) for serial in sorted(self._slots[slot]))
            del self._slots[slot]
        return found

    def closed(self, link: int) -> None:
        """Nobody waits on this connection any more."""
        for serial in sorted(self._by_link.get(link, ())):
            self.remove(serial)

    def of_topic(self, topic: str) -> list[Pull]:
        """Remove and return all holds of a topic."""
        serials = [serial for serial, pull in self._holds.items() if pull.topic == topic]
        return [self.remove(serial) for serial in serials]

    def check(self) -> None:
        assert len(self._holds) <= self._waiting_max
        by_queue = {s: p for holds in self._by_queue.values() for s, p in holds.items()}
        assert by_queue == self._holds
        assert all(self._by_queue.values())
        by_link = [s for serials in self._by_link.values() for s in serials]
        assert sorted(by_link) == sorted(self._holds)
        assert sorted(s for slot in self._slots.values() for s in slot) == sorted(self._holds)
        assert sorted(self._slot_order) == sorted(self._slots)
