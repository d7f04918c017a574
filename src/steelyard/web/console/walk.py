"""Walks through several queues at once, in the order of their messages' times."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from steelyard.web.console.answers import BrowsedMessage

SCANNED_MAX = 10_000
"""Most messages that one request looks at; the cursor of its answer goes on."""

SECONDS_MAX = 4.0
"""Time after which a request looks at no more messages."""


class Read(NamedTuple):
    """Messages of a queue in the order of their offsets, and where to read on.

    `is_end`: there are no more at the moment.
    """

    messages: list[BrowsedMessage]
    next_offset: int
    is_end: bool


Reader = Callable[[str, int], Awaitable[Read]]
"""Reads a queue, by its key, from an offset on."""

Wanted = Callable[[BrowsedMessage], bool]


class Walked(NamedTuple):
    """What was found, and the next offset of each queue. `is_end`: nothing is left."""

    messages: list[BrowsedMessage]
    offsets: Mapping[str, int]
    is_end: bool


class _Queue:
    def __init__(self, offset: int) -> None:
        self.waiting: deque[BrowsedMessage] = deque()
        self.read_to = offset
        self.is_end = False

    @property
    def offset(self) -> int:
        return self.waiting[0].offset if self.waiting else self.read_to


async def walk(starts: Mapping[str, int], read: Reader, wanted: Wanted, limit: int) -> Walked:
    """Return the first `limit` wanted messages from these offsets on.

    Messages of one queue stay in their order, whatever their times. Ends early when SCANNED_MAX
    messages were looked at, or SECONDS_MAX are over.
    """
    queues = {key: _Queue(offset) for key, offset in starts.items()}
    found: list[BrowsedMessage] = []
    scanned = 0
    until = time.monotonic() + SECONDS_MAX

    async def fill(key: str, queue: _Queue) -> int:
        answer = await read(key, queue.read_to)
        queue.waiting.extend(filter(wanted, answer.messages))
        queue.read_to = max(queue.read_to, answer.next_offset)
        queue.is_end = answer.is_end
        return len(answer.messages)

    while len(found) < limit:
        empty = [(k, q) for k, q in queues.items() if not q.waiting and not q.is_end]
        if empty:
            if scanned >= SCANNED_MAX or time.monotonic() >= until:
                break
            scanned += sum(await asyncio.gather(*(fill(*each) for each in empty)))
            continue
        first = min(
            (queue for queue in queues.values() if queue.waiting),
            key=lambda queue: queue.waiting[0].stored_at,
            default=None,
        )
        if first is None:
            break
        found.append(first.waiting.popleft())
    is_end = all(queue.is_end and not queue.waiting for queue in queues.values())
    return Walked(found, {key: queue.offset for key, queue in queues.items()}, is_end)


def last_each(limit: int, queue_count: int, *, is_filtered: bool) -> int:
    """Return how far before its end to begin in each queue, for the last `limit` messages of all.

    More than an equal share, because some queues have more of the latest messages than others; and
    as many as may be looked at if not all of them are wanted.
    """
    if is_filtered:
        return max(1, SCANNED_MAX // max(1, queue_count))
    return min(limit, max(10, 2 * limit // max(1, queue_count)))
