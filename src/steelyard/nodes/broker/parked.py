"""Those who found too little and wait: for a message, for their deadline, or for their connection to close.

A hold waits at one queue (a pull) or at several (a fetch). Deadlines are rounded up to slots, so that thousands of
holds need few timers and leave without a search. The node asks `next_at` after each event and sets the timer when it
moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Generic, TypeVar

from steelyard.nodes.seam import Link

Queue = tuple[str, int]
"""Topic and queue id."""

T = TypeVar("T")


class Holds(Generic[T]):
    """See the module's text. Holds are numbered in the order they came.

    `waiting_max`: most holds, `link_max`: most of one link, None for as many. `slot_ms`: what deadlines are rounded to.
    """

    def __init__(self, waiting_max: int, slot_ms: int, link_max: int | None = None) -> None:
        self._waiting_max = waiting_max
        self._link_max = waiting_max if link_max is None else link_max
        self._slot_ms = slot_ms
        self._serial = 0
        # Plain tuples: a hold is made and forgotten with every message that a reader waited for.
        self._holds: dict[int, tuple[T, Iterable[Queue], Link, int]] = {}
        """By number: the hold, the queues it waits at, its link, its slot."""
        self._by_queue: dict[Queue, dict[int, T]] = {}
        self._by_link: dict[Link, set[int]] = {}
        self._slots: dict[int, set[int]] = {}
        self._slot_order: list[int] = []

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def next_at(self) -> int | None:
        """When the next hold may be due, None without holds. May be earlier than any hold left."""
        return self._slot_order[0] if self._slot_order else None

    def add(self, hold: T, queues: Iterable[Queue], link: Link, due_at: int) -> bool:
        """Let a hold wait at queues, which stay as they are; False where too many wait already."""
        of_link = self._by_link.get(link)
        if len(self._holds) >= self._waiting_max or (of_link and len(of_link) >= self._link_max):
            return False
        self._serial += 1
        serial = self._serial
        slot = -(-due_at // self._slot_ms) * self._slot_ms
        self._holds[serial] = (hold, queues, link, slot)
        by_queue = self._by_queue
        for queue in queues:
            waiting = by_queue.get(queue)
            if waiting is None:
                by_queue[queue] = {serial: hold}
            else:
                waiting[serial] = hold
        if of_link is None:
            self._by_link[link] = {serial}
        else:
            of_link.add(serial)
        of_slot = self._slots.get(slot)
        if of_slot is None:
            self._slots[slot] = {serial}
            heapq.heappush(self._slot_order, slot)
        else:
            of_slot.add(serial)
        return True

    def of_queue(self, queue: Queue) -> dict[int, T] | None:
        """The holds that wait for a queue, by number; None for none. Not to be changed by the caller."""
        return self._by_queue.get(queue)

    def remove(self, serial: int) -> T:
        hold, queues, link, slot = self._holds.pop(serial)
        by_queue = self._by_queue
        for queue in queues:
            waiting = by_queue[queue]
            del waiting[serial]
            if not waiting:
                del by_queue[queue]
        of_link = self._by_link[link]
        of_link.remove(serial)
        if not of_link:
            del self._by_link[link]
        self._slots[slot].remove(serial)  # an empty slot goes when its time comes
        return hold

    def due(self, now: int) -> list[T]:
        """Remove and return the holds whose time has come, in the order they came."""
        found: list[T] = []
        while self._slot_order and self._slot_order[0] <= now:
            slot = heapq.heappop(self._slot_order)
            found.extend(self.remove(serial) for serial in sorted(self._slots[slot]))
            del self._slots[slot]
        return found

    def closed(self, link: Link) -> None:
        """Nobody waits on this connection any more."""
        for serial in sorted(self._by_link.get(link, ())):
            self.remove(serial)

    def of_topic(self, topic: str) -> list[T]:
        """Remove and return all holds that wait at a queue of a topic."""
        serials = [
            serial
            for serial, (_, queues, _, _) in self._holds.items()
            if any(name == topic for name, _ in queues)
        ]
        return [self.remove(serial) for serial in serials]

    def check(self) -> None:
        holds = self._holds
        assert len(holds) <= self._waiting_max
        waiting = {
            (queue, serial): hold
            for queue, of_queue in self._by_queue.items()
            for serial, hold in of_queue.items()
        }
        assert waiting == {
            (queue, serial): hold
            for serial, (hold, queues, _, _) in holds.items()
            for queue in queues
        }
        assert all(self._by_queue.values())
        assert all(0 < len(serials) <= self._link_max for serials in self._by_link.values())
        by_link = [(serial, link) for link, serials in self._by_link.items() for serial in serials]
        assert sorted(by_link) == sorted((serial, hold[2]) for serial, hold in holds.items())
        by_slot = [(serial, slot) for slot, serials in self._slots.items() for serial in serials]
        assert sorted(by_slot) == sorted((serial, hold[3]) for serial, hold in holds.items())
        assert sorted(self._slot_order) == sorted(self._slots)
