"""Requests that name very many partitions or groups are handled as several that name few, one after the other.

For the requests in `CUTS` it makes no difference to what becomes of one partition which others are named with it. What is
between two of those parts may change: of a commit of offsets that a rebalance interrupts some count and the others have an
error, as if the client had sent two requests. Of those that change topics, what is named twice is in one part (`batches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from steelyard.wire.kafka.schema import Message, Part

PART_ITEMS = 200
"""Partitions, groups, or topics without partitions that one part names; they take some 4 ms."""
PART_BATCHES = 50
"""Those of Produce, each of which has something written."""
PART_GROUPS = 100
"""Groups that are described."""
PART_TOPICS = 100
"""Topics that are changed. Few parts: after each of them the nameservers are told of all topics. An even number, for pairs."""


class Cut(NamedTuple):
    """Which arrays lead to what a request names, and those of the answer that correspond, outermost first; items a part."""

    request: Sequence[str]
    response: Sequence[str]
    items: int = PART_ITEMS


_PARTITIONS = ("topics", "partitions")
_EACH = Cut(_PARTITIONS, _PARTITIONS)


def cut_of(key: int, version: int) -> Cut | None:
    """How a request is cut, None for one that is not."""
    if key == 9:
        outer = ("groups",) if version >= 8 else ()
        return Cut((*outer, "topics", "partition_indexes"), (*outer, *_PARTITIONS))
    if key == 20 and version < 6:
        return CUTS[20]._replace(request=("topic_names",))
    return CUTS.get(key)


CUTS = {
    0: Cut(("topic_data", "partition_data"), ("responses", "partition_responses"), PART_BATCHES),
    3: Cut(("topics",), ("topics",)),
    8: _EACH,
    10: Cut(("coordinator_keys",), ("coordinators",)),
    15: Cut(("groups",), ("groups",), PART_GROUPS),
    19: Cut(("topics",), ("topics",), PART_TOPICS),
    20: Cut(("topics",), ("responses",), PART_TOPICS),
    21: _EACH,
    23: _EACH,
    27: Cut(("markers", "topics", "partition_indexes"), ("markers", *_PARTITIONS), PART_BATCHES),
    28: _EACH,
    33: Cut(("resources",), ("responses",), PART_TOPICS),
    37: Cut(("topics",), ("results",), PART_TOPICS),
    42: Cut(("groups_names",), ("results",)),
    44: Cut(("resources",), ("responses",), PART_TOPICS),
    47: _EACH,
    61: Cut(("topics", "partition_indexes"), _PARTITIONS),
    65: Cut(("transactional_ids",), ("transaction_states",)),
    69: Cut(("group_ids",), ("groups",), PART_GROUPS),
}
"""Produce, Metadata, OffsetCommit, FindCoordinator, DescribeGroups, CreateTopics, DeleteTopics, DeleteRecords,
OffsetForLeaderEpoch, WriteTxnMarkers, TxnOffsetCommit, AlterConfigs, CreatePartitions, DeleteGroups, IncrementalAlterConfigs,
OffsetDelete, DescribeProducers, DescribeTransactions, ConsumerGroupDescribe; and OffsetFetch."""


def is_wide(message: Message, cut: Cut) -> bool:
    """Whether a request that is small in bytes names more than a part does. Lists of names may; what has more to say of each has few."""
    return len(cut.request) == 1 and len(getattr(message, cut.request[0]) or ()) > cut.items


def parts_of(message: Message, cut: Cut) -> Iterator[Message]:
    """The request as several, in its order; at least one."""
    for part, _ in _cut(message, cut.request, _Room(cut.items)):
        yield part


class _Room:
    """How many items fit the part that is made now."""

    def __init__(self, items: int) -> None:
        self._items = self.left = items

    def take(self, count: int) -> bool:
        """Whether that fills the part; then the next one begins."""
        self.left -= count
        if self.left > 0:
            return False
        self.left = self._items
        return True


def _cut(whole: Any, path: Sequence[str], room: _Room) -> Iterator[tuple[Any, bool]]:
    """The structure in pieces, and whether a part ends with that piece."""
    name, *inner = path
    items = getattr(whole, name)
    if not items:
        yield whole, room.take(1)
        return
    chosen: list[Any] = []
    at = 0
    if not inner:
        while at < len(items):
            some = items[at : at + room.left]
            at += len(some)
            yield msgspec.structs.replace(whole, **{name: some}), room.take(len(some))
        return
    for item in items:
        for piece, ends in _cut(item, inner, room):
            chosen.append(piece)
            if ends:
                yield msgspec.structs.replace(whole, **{name: chosen}), True
                chosen = []
    if chosen:
        yield msgspec.structs.replace(whole, **{name: chosen}), False


class Joined:
    """The answers to the parts, as one. What two of them say of one topic, at the end and at the beginning, is put together."""

    def __init__(self, cut: Cut) -> None:
        self._path = cut.response
        self._first: Message | None = None
        self._items: list[Any] = []

    def add(self, answer: Message) -> None:
        if self._first is None:
            self._first = answer
        _join(self._items, getattr(answer, self._path[0]), self._path[1:])

    def answer(self) -> Message | None:
        """None where no part had one."""
        if self._first is None:
            return None
        return msgspec.structs.replace(self._first, **{self._path[0]: self._items})


def _join(have: list[Any], more: Sequence[Any], path: Sequence[str]) -> None:
    if have and more and path:
        name, *inner = path
        last, first = have[-1], more[0]
        if _without(last, name) == _without(first, name):
            items = getattr(last, name)
            if type(items) is not list:
                items = list(items)
                have[-1] = msgspec.structs.replace(last, **{name: items})
            _join(items, getattr(first, name), inner)
            more = more[1:]
    have += more


def _without(part: Part, name: str) -> Part:
    return msgspec.structs.replace(part, **{name: ()})
