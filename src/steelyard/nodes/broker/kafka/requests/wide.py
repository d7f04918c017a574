"""Splits requests that name very many partitions or groups into parts, handled one by one.

In the requests in `CUTS`, the outcome for one partition does not depend on the others named with
it. The state may change between two parts: if a rebalance interrupts a commit of offsets, some are
committed and the others get an error, as if the client had sent two requests. In requests that
change topics, duplicates are in the same part (`batches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from steelyard.wire.kafka.messages.cluster import FIND_COORDINATOR, METADATA
from steelyard.wire.kafka.messages.configs import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from steelyard.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_DESCRIBE
from steelyard.wire.kafka.messages.data import PRODUCE
from steelyard.wire.kafka.messages.groups import DELETE_GROUPS, DESCRIBE_GROUPS
from steelyard.wire.kafka.messages.logs import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    OFFSET_FOR_LEADER_EPOCH,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from steelyard.wire.kafka.messages.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
)
from steelyard.wire.kafka.messages.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from steelyard.wire.kafka.messages.transactions import DESCRIBE_TRANSACTIONS, WRITE_TXN_MARKERS
from steelyard.wire.kafka.schema import ApiMessage, Part

PART_ITEMS = 200
"""Partitions, groups, or topics without partitions in one part, which takes about 4 ms."""
PART_BATCHES = 50
"""Partitions in one part of a request that writes to each of them."""
PART_GROUPS = 100
"""Groups in one part of a request that describes them."""
PART_TOPICS = 100
"""Topics in one part of a request that changes them; even, because duplicates come in pairs.

Not smaller, because after each part the nameservers are sent all topics of the broker.
"""


class Cut(NamedTuple):
    """The arrays, outermost first, that lead to the items of a request and of its response.

    `items`: how many fit one part.
    """

    request: Sequence[str]
    response: Sequence[str]
    items: int = PART_ITEMS


_PARTITIONS = ("topics", "partitions")
_EACH = Cut(_PARTITIONS, _PARTITIONS)


def cut_of(key: int, version: int) -> Cut | None:
    """Return how a request is split; None if it is not."""
    if key == OFFSET_FETCH.key:
        outer = ("groups",) if version >= 8 else ()
        return Cut((*outer, "topics", "partition_indexes"), (*outer, *_PARTITIONS))
    if key == DELETE_TOPICS.key and version < 6:
        return CUTS[DELETE_TOPICS.key]._replace(request=("topic_names",))
    return CUTS.get(key)


CUTS = {
    PRODUCE.key: Cut(
        ("topic_data", "partition_data"), ("responses", "partition_responses"), PART_BATCHES
    ),
    METADATA.key: Cut(("topics",), ("topics",)),
    OFFSET_COMMIT.key: _EACH,
    FIND_COORDINATOR.key: Cut(("coordinator_keys",), ("coordinators",)),
    DESCRIBE_GROUPS.key: Cut(("groups",), ("groups",), PART_GROUPS),
    CREATE_TOPICS.key: Cut(("topics",), ("topics",), PART_TOPICS),
    DELETE_TOPICS.key: Cut(("topics",), ("responses",), PART_TOPICS),
    DELETE_RECORDS.key: _EACH,
    OFFSET_FOR_LEADER_EPOCH.key: _EACH,
    WRITE_TXN_MARKERS.key: Cut(
        ("markers", "topics", "partition_indexes"), ("markers", *_PARTITIONS), PART_BATCHES
    ),
    TXN_OFFSET_COMMIT.key: _EACH,
    ALTER_CONFIGS.key: Cut(("resources",), ("responses",), PART_TOPICS),
    CREATE_PARTITIONS.key: Cut(("topics",), ("results",), PART_TOPICS),
    DELETE_GROUPS.key: Cut(("groups_names",), ("results",)),
    INCREMENTAL_ALTER_CONFIGS.key: Cut(("resources",), ("responses",), PART_TOPICS),
    OFFSET_DELETE.key: _EACH,
    DESCRIBE_PRODUCERS.key: Cut(("topics", "partition_indexes"), _PARTITIONS),
    DESCRIBE_TRANSACTIONS.key: Cut(("transactional_ids",), ("transaction_states",)),
    CONSUMER_GROUP_DESCRIBE.key: Cut(("group_ids",), ("groups",), PART_GROUPS),
    SHARE_GROUP_DESCRIBE.key: Cut(("group_ids",), ("groups",), PART_GROUPS),
    DESCRIBE_SHARE_GROUP_OFFSETS.key: Cut(
        ("groups", "topics", "partitions"), ("groups", "topics", "partitions")
    ),
    ALTER_SHARE_GROUP_OFFSETS.key: Cut(_PARTITIONS, ("responses", "partitions"), PART_BATCHES),
    DELETE_SHARE_GROUP_OFFSETS.key: Cut(("topics",), ("responses",), PART_BATCHES),
}


def is_wide(message: ApiMessage, cut: Cut) -> bool:
    """Return whether a request that is small in bytes names more items than fit one part.

    Only lists of mere names can: other items take more bytes.
    """
    return len(cut.request) == 1 and len(getattr(message, cut.request[0]) or ()) > cut.items


def parts_of(message: ApiMessage, cut: Cut) -> Iterator[ApiMessage]:
    """Yield the request in parts, in its order; at least one."""
    for part, _ in _cut(message, cut.request, _Room(cut.items)):
        yield part


class _Room:
    """How many items still fit the current part."""

    def __init__(self, items: int) -> None:
        self._items = self.left = items

    def take(self, count: int) -> bool:
        """Count items; return whether they fill the part, so that the next one begins."""
        self.left -= count
        if self.left > 0:
            return False
        self.left = self._items
        return True


def _cut(whole: Any, path: Sequence[str], room: _Room) -> Iterator[tuple[Any, bool]]:
    """Yield the structure in pieces, each with whether a part ends there."""
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


class JoinedAnswer:
    """The answers to all parts, joined into one.

    If one answer ends and the next begins with the same topic, its two entries become one. What an
    answer has once is that of the last part, which knows for how long the client is to be silent.
    """

    def __init__(self, cut: Cut) -> None:
        self._path = cut.response
        self._last: ApiMessage | None = None
        self._items: list[Any] = []

    def add(self, answer: ApiMessage) -> None:
        self._last = answer
        _join(self._items, getattr(answer, self._path[0]), self._path[1:])

    def answer(self) -> ApiMessage | None:
        """Return the joined answer; None if no part had one."""
        if self._last is None:
            return None
        return msgspec.structs.replace(self._last, **{self._path[0]: self._items})


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
