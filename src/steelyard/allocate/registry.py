"""Strategies by the names that RocketMQ gives them (`AllocateMessageQueueStrategy.getName`).

Nothing on the wire tells which strategy a member uses: a group whose members differ reads some
queues twice and others never.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from steelyard.allocate import circle, contiguous
from steelyard.allocate.plan import Strategy
from steelyard.errors import ConfigError

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {"AVG": contiguous.allocate, "AVG_BY_CIRCLE": circle.allocate}
)


def strategy(name: str) -> Strategy:
    """The strategy of that name. Raises ConfigError, which lists the names there are."""
    found = STRATEGIES.get(name)
    if found is None:
        raise ConfigError(f"no allocation strategy {name!r}; there are {', '.join(STRATEGIES)}")
    return found
