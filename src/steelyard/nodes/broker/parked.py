"""Parked requests: they found too little and wait for messages, until a deadline.

A parked request waits at one queue (a pull) or at several (a fetch), until it is removed, it is
due, or its connection closes. Deadlines are rounded up to slots, so that thousands of parked
requests need few timers and are found without a search. After each event the node reads `next_at`
and sets the timer if it has moved.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Generic, TypeVar

from steelyard.nodes.seam import Link

Queue = tuple[str, int]
"""Topic and queue id."""

T = TypeVar("T")


class Parked(Generic[T]):
    """Parked requests, numbered in the order they came; see the module docstring.

    `waiting_max`: maximum of requests; `link_max`: maximum of one link, by default as many.
    `slot_ms`: deadlines are rounded up to multiples of it.
    """

    def __init__(self, waiting_max: int, slot_ms: int, link_max: int | None = None) -> None:
        self._waiting_max = waiting_max
        self._link_max = waiting_max if link_max is None else link_max
        self._slot_ms = slot_ms
        self._serial = 0
        # Plain tuples, because each message that a reader waited for creates and drops one.
        self._requests: dict[int, tuple[T, Iterable[Queue], Link, int]] = {}
        """By number: the request, the queues it waits at, its link, its slot."""
        self._by_queue: dict[Queue, dict[int, T]] = {}
        self._by_link: dict[Link, set[int]] = {}
        self._slots: dict[int, set[int]] = {}
        self._slot_order: list[int] = []
        self.next_at: int | None = None
        """When the next request may be due; None without any.

        May be earlier than the deadlines of all requests that are left.
        """

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: T, queues: Iterable[Queue], link: Link, due_at: int) -> bool:
        """Park a request at queues, which must not change later; return False if too many wait."""
        of_link = self._by_link.get(link)
        if len(self._requests) >= self._waiting_max or (of_link and len(of_link) >= self._link_max):
            return False
        self._serial += 1
        serial = self._serial
        slot = -(-due_at // self._slot_ms) * self._slot_ms
        self._requests[serial] = (request, queues, link, slot)
        by_queue = self._by_queue
        for queue in queues:
            waiting = by_queue.get(queue)
            if waiting is None:
                by_queue[queue] = {serial: request}
            else:
                waiting[serial] = request
        if of_link is None:
            self._by_link[link] = {serial}
        else:
            of_link.add(serial)
        of_slot = self._slots.get(slot)
        if of_slot is None:
            self._slots[slot] = {serial}
            heapq.heappush(self._slot_order, slot)
            self.next_at = self._slot_order[0]
        else:
            of_slot.add(serial)
        return True

    def of_queue(self, queue: Queue) -> dict[int, T] | None:
        """Return the requests at a queue by number, or None. Callers must not change it."""
        return self._by_queue.get(queue)

    def remove(self, serial: int) -> T:
        request, queues, link, slot = self._requests.pop(serial)
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
        self._slots[slot].remove(serial)  # an empty slot is removed when it is due
        return request

    def due(self, now: int) -> list[T]:
        """Remove and return the requests that are due, by slot and then in the order they came."""
        found: list[T] = []
        while self._slot_order and self._slot_order[0] <= now:
            slot = heapq.heappop(self._slot_order)
            found.extend(self.remove(serial) for serial in sorted(self._slots[slot]))
            del self._slots[slot]
        self.next_at = self._slot_order[0] if self._slot_order else None
        return found

    def closed(self, link: Link) -> None:
        """Remove the requests of a closed connection."""
        for serial in sorted(self._by_link.get(link, ())):
            self.remove(serial)

    def of_link(self, link: Link) -> list[tuple[int, T]]:
        """Return the requests of a connection with their numbers, in the order they came."""
        return [
            (serial, self._requests[serial][0]) for serial in sorted(self._by_link.get(link, ()))
        ]

    def all(self) -> list[tuple[int, T]]:
        """Return all requests with their numbers, in the order they came."""
        return [(serial, request) for serial, (request, _, _, _) in self._requests.items()]

    def check(self) -> None:
        requests = self._requests
        assert len(requests) <= self._waiting_max
        waiting = {
            (queue, serial): request
            for queue, of_queue in self._by_queue.items()
            for serial, request in of_queue.items()
        }
        assert waiting == {
            (queue, serial): request
            for serial, (request, queues, _, _) in requests.items()
            for queue in queues
        }
        assert all(self._by_queue.values())
        assert all(0 < len(serials) <= self._link_max for serials in self._by_link.values())
        by_link = [(serial, link) for link, serials in self._by_link.items() for serial in serials]
        assert sorted(by_link) == sorted(
            (serial, request[2]) for serial, request in requests.items()
        )
        by_slot = [(serial, slot) for slot, serials in self._slots.items() for serial in serials]
        assert sorted(by_slot) == sorted(
            (serial, request[3]) for serial, request in requests.items()
        )
        assert sorted(self._slot_order) == sorted(self._slots)
        assert self.next_at == min(self._slots, default=None)
