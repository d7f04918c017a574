"""Offsets of queues: their JSON, how a limit is shared among queues, how ranges are split, the lag.

Everything here is arithmetic; `catalog` asks brokers for offsets. An offset is that of the next
message to read, so that a range from one set of offsets to another includes its start only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from steelyard.errors import ConfigError

QueueName = tuple[str, str, int]
"""Topic, broker, queue id."""
Offsets = Mapping[QueueName, int]

Tree = dict[str, dict[str, dict[str, int]]]
"""Offsets as JSON: `{"topic": {"broker-a": {"0": 23}}}`."""


def to_json(offsets: Offsets) -> Tree:
    """Return offsets as JSON, in the order of topics, brokers and queues.

    Spark compares offsets as text, so equal offsets must have equal JSON.
    """
    tree: Tree = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        tree.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return tree


def from_json(tree: object) -> dict[QueueName, int]:
    """Read what `to_json` wrote. Raises ConfigError for anything else."""
    return {queue: _offset(value) for queue, value in leaves(tree)}


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is no offset; it must be a whole number")
    return value


def leaves(tree: object) -> Iterator[tuple[QueueName, object]]:
    """Yield what a tree of topics, brokers and queues has for each queue.

    Raises ConfigError that says what is wrong with the tree.
    """
    for topic, brokers in _entries(tree):
        for broker, queues in _entries(brokers):
            for queue, value in _entries(queues):
                if not (queue.isascii() and queue.isdecimal()):
                    raise ConfigError(f"has the queue {queue!r}; it must be a queue's number")
                yield (topic, broker, int(queue)), value


def _entries(tree: object) -> list[tuple[str, object]]:
    if not isinstance(tree, dict):
        raise ConfigError(f"has {tree!r} where an object belongs")
    return [(str(key), value) for key, value in tree.items()]


# -- limits ----------------------------------------------------------------------------------------


def backlogs(start: Offsets, end: Offsets) -> dict[QueueName, int]:
    """Return the number of offsets from `start` to `end` of queues that have any."""
    return {
        queue: end[queue] - offset
        for queue, offset in sorted(start.items())
        if end.get(queue, offset) > offset
    }


def limited(start: Offsets, end: Offsets, most: int) -> dict[QueueName, int]:
    """Return ends that are at most `most` offsets after `start` in all; `most` is at least 1.

    Queues get shares in proportion to their backlogs, and at least one offset each. If `most` is
    less than the number of queues that have a backlog, they take turns. Exactly `most` offsets are
    given out, or all; Spark's Kafka source may exceed its limit by one for each partition.
    """
    sizes = backlogs(start, end)
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    # Every batch moves the sum of the starts, and so the queue that is first.
    queues = list(sizes)
    first = sum(start.values()) % len(queues)
    queues = queues[first:] + queues[:first]
    if most < len(queues):
        shares = dict.fromkeys(queues[:most], 1)
    else:
        rest, wanted = most - len(queues), total - len(queues)
        shares = {queue: 1 + rest * (sizes[queue] - 1) // wanted for queue in queues}
        left = most - sum(shares.values())
        for queue in queues:
            if left and shares[queue] < sizes[queue]:
                shares[queue] += 1
                left -= 1
    return {
        queue: start[queue] + shares.get(queue, 0) if queue in sizes else offset
        for queue, offset in end.items()
    }


def aligned(
    start: Offsets,
    end: Offsets,
    most: int,
    at_time: Callable[[int], Offsets],
    *,
    after: int,
    before: int,
) -> tuple[dict[QueueName, int], int]:
    """Return the offsets of one time, from `start` on at most `most` in all, and that time.

    It is the latest such time; more than `most` are returned if a millisecond has more.
    `at_time`: the first offset of each queue that was stored at a time (milliseconds) or later; to
    be asked for times after `after`, by when nothing beyond `start` had been stored, up to
    `before`, by when more than `most` had been. Queues of `end` only are left where they are.
    """

    def offsets(time: int) -> dict[QueueName, int]:
        found = at_time(time)
        return {
            queue: min(max(found.get(queue, begun), begun), end.get(queue, begun))
            for queue, begun in start.items()
        }

    def size(found: Offsets) -> int:
        return sum(found[queue] - begun for queue, begun in start.items())

    low, high = after, before
    chosen, beyond = dict(start), offsets(before)
    while high - low > 1:
        middle = (low + high) // 2
        found = offsets(middle)
        if size(found) <= most:
            low, chosen = middle, found
        else:
            high, beyond = middle, found
    if size(chosen) > 0:
        return chosen, low
    return beyond, high


# -- splitting -------------------------------------------------------------------------------------


class Range(NamedTuple):
    """Offsets of one queue from `start` up to, not including, `end`."""

    queue: QueueName
    start: int
    end: int


def split(
    ranges: list[Range], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Split ranges so that there are at least `partitions_min`, of at most `records_max` offsets.

    The longest pieces are split first, each range into pieces of nearly equal length. A range is
    never split into pieces of less than one offset, so there may be fewer than `partitions_min`.
    """
    pieces = [
        1 if records_max is None else -(-(one.end - one.start) // records_max) for one in ranges
    ]
    missing = (partitions_min or 0) - sum(pieces)
    longest = [(-(one.end - one.start) / pieces[at], at) for at, one in enumerate(ranges)]
    heapq.heapify(longest)
    while missing > 0 and longest:
        _, at = longest[0]
        size = ranges[at].end - ranges[at].start
        if pieces[at] >= size:
            heapq.heappop(longest)
            continue
        pieces[at] += 1
        missing -= 1
        heapq.heapreplace(longest, (-size / pieces[at], at))
    return [
        Range(
            one.queue,
            one.start + (one.end - one.start) * piece // count,
            one.start + (one.end - one.start) * (piece + 1) // count,
        )
        for one, count in zip(ranges, pieces, strict=True)
        for piece in range(count)
    ]


# -- lag -------------------------------------------------------------------------------------------


class Behind(NamedTuple):
    """How many offsets a query is behind the end of its queues: per queue, and in all."""

    least: int
    average: float
    most: int
    total: int


def behind(position: Offsets, latest: Offsets) -> Behind:
    """Return the lag of a query that is at `position`; a queue that it has not begun is left out.

    Without any queue everything is 0.
    """
    lags = [max(0, latest[queue] - at) for queue, at in position.items() if queue in latest]
    if not lags:
        return Behind(0, 0.0, 0, 0)
    return Behind(min(lags), sum(lags) / len(lags), max(lags), sum(lags))
