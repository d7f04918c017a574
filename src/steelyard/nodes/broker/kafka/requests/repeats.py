"""Drops repeated names from requests: a name of a few bytes may stand for megabytes of answer.

Clients do not repeat names. (Apache Kafka answers every repetition.) The first occurrence counts. A
group of which all offsets are requested counts as different from the same group with a list of
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from steelyard.nodes.broker.turns import Steps
from steelyard.wire.kafka.messages.cluster import (
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    MetadataRequestTopic,
)
from steelyard.wire.kafka.messages.configs import DESCRIBE_CONFIGS
from steelyard.wire.kafka.messages.consumer_groups import CONSUMER_GROUP_DESCRIBE
from steelyard.wire.kafka.messages.groups import DELETE_GROUPS, DESCRIBE_GROUPS
from steelyard.wire.kafka.messages.logs import DESCRIBE_PRODUCERS
from steelyard.wire.kafka.messages.offsets import OFFSET_FETCH, OffsetFetchRequestTopic
from steelyard.wire.kafka.messages.share_groups import (
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
)
from steelyard.wire.kafka.messages.transactions import DESCRIBE_TRANSACTIONS
from steelyard.wire.kafka.schema import NO_ID, ApiMessage, Part

STEP_ITEMS = 10_000
"""Items examined in one step, which takes about 4 ms."""

P = TypeVar("P", bound=Part)
Name = Callable[[Any], Hashable]


class _Level(NamedTuple):
    """An array of a request, and what identifies its items."""

    array: str
    name: Name


def _itself(item: Hashable) -> Hashable:
    return item


def _topic(item: MetadataRequestTopic | OffsetFetchRequestTopic) -> Hashable:
    """Identify a topic by its id if it has one: clients may send any name with an id."""
    return item.name if item.topic_id == NO_ID else item.topic_id


_PARTITIONS = _Level("partition_indexes", _itself)

_LEVELS: dict[int, Sequence[_Level]] = {
    METADATA.key: (_Level("topics", _topic),),
    DESCRIBE_GROUPS.key: (_Level("groups", _itself),),
    DESCRIBE_CONFIGS.key: (_Level("resources", attrgetter("resource_type", "resource_name")),),
    DELETE_GROUPS.key: (_Level("groups_names", _itself),),
    DESCRIBE_PRODUCERS.key: (_Level("topics", attrgetter("name")), _PARTITIONS),
    DESCRIBE_TRANSACTIONS.key: (_Level("transactional_ids", _itself),),
    CONSUMER_GROUP_DESCRIBE.key: (_Level("group_ids", _itself),),
    SHARE_GROUP_DESCRIBE.key: (_Level("group_ids", _itself),),
    DESCRIBE_SHARE_GROUP_OFFSETS.key: (
        _Level("groups", attrgetter("group_id")),
        _Level("topics", attrgetter("topic_name")),
        _Level("partitions", _itself),
    ),
    DELETE_SHARE_GROUP_OFFSETS.key: (_Level("topics", attrgetter("topic_name")),),
    DESCRIBE_TOPIC_PARTITIONS.key: (_Level("topics", attrgetter("name")),),
}
"""By API, the nested arrays of names; `_levels` adds those of OffsetFetch.

The answers of all other APIs are about as long as their requests.
"""


NAMING = frozenset({OFFSET_FETCH.key, *_LEVELS})
"""APIs whose requests may repeat a name."""


def _levels(key: int, version: int) -> Sequence[_Level]:
    if key == OFFSET_FETCH.key:
        if version < 8:
            return _Level("topics", attrgetter("name")), _PARTITIONS
        return _Level("groups", attrgetter("group_id")), _Level("topics", _topic), _PARTITIONS
    return _LEVELS.get(key, ())


def without_repeats(message: ApiMessage, key: int, version: int) -> Steps[ApiMessage]:
    """Return a request without repeated names; unchanged if its API is not in `NAMING`."""
    levels = _levels(key, version)
    if not levels:
        return message
    found = yield from _Once().of(message, levels, ())
    assert found is not None  # its first item cannot be a repetition
    return found


class _Once:
    """The names that a request has used so far."""

    def __init__(self) -> None:
        self._empty: set[Hashable] = set()
        self._named: dict[Hashable, Sequence[Hashable] | set[Hashable]] = {}
        """By the enclosing names: a tuple after one array, a set after several."""
        self._left = STEP_ITEMS

    def of(
        self, whole: P, levels: Sequence[_Level], around: tuple[Hashable, ...]
    ) -> Steps[P | None]:
        """Return a structure with only its new items; None if it has none.

        `around`: the names that enclose it.
        """
        (array, name), *inner = levels
        items = getattr(whole, array)
        if not items:
            key = (*around, items is None)
            is_new = key not in self._empty
            self._empty.add(key)
            return whole if is_new else None
        fresh: list[Any] = []
        if inner:
            for item in items:
                found = yield from self.of(item, inner, (*around, name(item)))
                if found is not None:
                    fresh.append(found)
                if self._is_step(1):
                    yield
        else:
            for at in range(0, len(items), STEP_ITEMS):
                some = items[at : at + STEP_ITEMS]
                fresh += self._new(some, name, around)
                if self._is_step(len(some)):
                    yield
        return msgspec.structs.replace(whole, **{array: fresh}) if fresh else None

    def _is_step(self, count: int) -> bool:
        self._left -= count
        if self._left > 0:
            return False
        self._left = STEP_ITEMS
        return True

    def _new(self, items: Sequence[Any], name: Name, around: tuple[Hashable, ...]) -> list[Any]:
        named: dict[Hashable, Any] = {}
        for item in items:
            named.setdefault(name(item), item)
        have = self._named.get(around)
        if have is None:
            self._named[around] = tuple(named)
            return list(named.values())
        if not isinstance(have, set):
            have = self._named[around] = set(have)
        fresh = [item for each, item in named.items() if each not in have]
        have.update(named)
        return fresh
