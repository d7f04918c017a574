"""The tables of all groups that were asked for, from what was read of a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from steelyard.errors import ConfigError
from steelyard.incident.kafka.broker_log import Evidence
from steelyard.incident.kafka.costs import costs
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.incident.remoting.costs import rocketmq_costs
from steelyard.incident.remoting.logs import LogEvent
from steelyard.incident.tables import (
    IncidentCosts,
    IncidentHandoff,
    IncidentLag,
    IncidentRebalance,
    QueueHolding,
)
from steelyard.spark.printing import known_groups
from steelyard.types import TopicPartition


class Sources(NamedTuple):
    """What was read, and from where, in words."""

    found: OffsetsTopic
    log_ends: dict[TopicPartition, int]
    evidence: list[Evidence]
    words: str


class Tables(NamedTuple):
    """The tables of all groups that were asked for, and by group who had which queue when."""

    rebalances: list[IncidentRebalance]
    handoffs: list[IncidentHandoff]
    lag: list[IncidentLag]
    holdings: dict[str, list[QueueHolding]]


TABLES: dict[str, type[msgspec.Struct]] = {
    "rebalances": IncidentRebalance,
    "handoffs": IncidentHandoff,
    "lag": IncidentLag,
}


def tables(
    sources: Sources, group: str | None, since: int | None = None, until: int | None = None
) -> Tables:
    """Compute the tables of one group, or of all. `since`, `until`: ms since the epoch.

    Raises ConfigError for a group that is not there.
    """
    found = sources.found
    if group is not None and group not in found.groups:
        raise ConfigError(f"no group {group!r} in {sources.words}; {known_groups(found.names)}")
    by_group: dict[str, list[Evidence]] = defaultdict(list)
    for one in sources.evidence:
        by_group[one.group].append(one)
    made = Tables([], [], [], {})
    for name, history in sorted(found.groups.items()):
        rows = _between(costs(history, found.topics, by_group[name]), since, until)
        made.holdings[name] = rows.holdings
        made.rebalances.extend(rows.rebalances)
        made.handoffs.extend(rows.handoffs)
        for place, series in sorted(history.commits.items()):
            end = sources.log_ends.get(place)
            if end is not None:
                committed = series.offsets[-1]
                made.lag.append(
                    IncidentLag(
                        group=name,
                        topic=place.topic,
                        queue=place.partition,
                        committed=committed,
                        committed_at=series.at[-1],
                        log_end=end,
                        lag=max(0, end - committed),
                    )
                )
    return made


def rocketmq_tables(
    events: Iterable[LogEvent], group: str | None, since: int | None, until: int | None
) -> Tables:
    """Compute the tables of RocketMQ groups. Raises ConfigError for a group that is not there."""
    found = list(events)
    names = {event.group for event in found}
    if group is not None and group not in names:
        raise ConfigError(f"no group {group!r} in the logs; {known_groups(names)}")
    made = Tables([], [], [], {})
    for rows in rocketmq_costs(one for one in found if group in (None, one.group)):
        kept = _between(rows, since, until)
        if rows.rebalances:
            made.holdings[rows.rebalances[0].group] = rows.holdings
        made.rebalances.extend(kept.rebalances)
        made.handoffs.extend(kept.handoffs)
    return made


def _between(rows: IncidentCosts, since: int | None, until: int | None) -> IncidentCosts:
    kept = [
        row
        for row in rows.rebalances
        if (since is None or row.started_at >= since) and (until is None or row.started_at < until)
    ]
    names = {row.rebalance for row in kept}
    moved = [row for row in rows.handoffs if row.rebalance in names]
    return IncidentCosts(kept, moved, rows.holdings)
