"""The rebalances of all groups as Steelyard's brokers recorded them: the rows of the ledger.

The rows are those that `ledger.stream` computes for `steelyard pipeline ledger` and the metrics, so
that the console shows the same figures. Open rows replace those of before until they are final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from steelyard.groups.flapping import PERIOD_MS, Flapping
from steelyard.groups.remoting.flapping import name_of
from steelyard.ledger.stream import Taken
from steelyard.ledger.tables import STALLED, GroupEvent, Handoff, Rebalance
from steelyard.web.console.answers import FlappingView, HandoffView, RebalanceView

GROUPS_MAX = 1_000
"""Most groups whose rebalances are kept; those that rebalanced last."""

REBALANCES_MAX = 200
"""Most rebalances of a group that are kept."""

HANDOFFS_MAX = 1_000
"""Most queues of a rebalance that are kept."""

KeyOf = Callable[[str, str, int], str]
"""Returns the key of a queue from topic, broker and queue."""


class _Kept:
    """A rebalance with its queues. `is_open`: it may change."""

    __slots__ = ("handoffs", "is_open", "row")

    def __init__(self, row: Rebalance, *, is_open: bool) -> None:
        self.row = row
        self.is_open = is_open
        self.handoffs: dict[tuple[str, str, int, str], Handoff] = {}


class LedgerHistory:
    """The latest rebalances of each group. `since`: from when on the ledger is read, in ms."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.incomplete: str | None = None
        """Why rebalances or figures are missing, in words; None if nothing is."""
        self._groups: dict[str, dict[str, _Kept]] = {}
        """By group and rebalance, in the order in which they began."""
        self._flapping = Flapping()

    def take(self, taken: Taken) -> set[str]:
        """Take the rows that came of some messages; return the groups whose rebalances changed."""
        changed: set[str] = set()
        for group in taken.groups:
            of_group = self._groups.get(group, {})
            for name in [name for name, kept in of_group.items() if kept.is_open]:
                del of_group[name]
                changed.add(group)
        handoffs: list[Handoff] = []
        for group, row, is_open in taken.rows:
            if isinstance(row, Rebalance):
                self._keep(group, row, is_open=is_open)
                changed.add(group)
            elif isinstance(row, Handoff):
                handoffs.append(row)
            elif isinstance(row, GroupEvent) and not is_open:
                self._happened(row)
        for handoff in handoffs:
            found = self._groups.get(handoff.group, {}).get(handoff.rebalance)
            if found is not None and len(found.handoffs) < HANDOFFS_MAX:
                place = (handoff.topic, handoff.broker, handoff.queue, handoff.kind)
                found.handoffs[place] = handoff
        return changed

    def renew(self, fresh: LedgerHistory, since: int) -> None:
        """Take over what another one has of rebalances that began at `since` or later.

        It has read the ledger again. Rows of before stay, and are final.
        """
        groups: dict[str, dict[str, _Kept]] = {}
        for group in (*self._groups.keys() - fresh._groups.keys(), *fresh._groups):
            old, new = self._groups.get(group, {}), fresh._groups.get(group, {})
            rows = {name: kept for name, kept in old.items() if kept.row.started_at < since}
            for kept in rows.values():
                kept.is_open = False
            rows |= {name: kept for name, kept in new.items() if kept.row.started_at >= since}
            if rows:
                groups[group] = rows
        self._groups = groups
        self._flapping = fresh._flapping

    def _keep(self, group: str, row: Rebalance, *, is_open: bool) -> None:
        of_group = self._groups.pop(group, {})
        self._groups[group] = of_group
        of_group[row.rebalance] = _Kept(row, is_open=is_open)
        while len(of_group) > REBALANCES_MAX:
            del of_group[min(of_group, key=lambda name: of_group[name].row.started_at)]
        while len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]

    def _happened(self, row: GroupEvent) -> None:
        """Count the clients of RocketMQ groups that join and go; Kafka's coordinators do so."""
        if row.kind == "joined":
            self._flapping.joined(row.group, row.client, name_of(row.client), row.at)
        elif row.kind == "left":
            self._flapping.left(row.group, row.client, row.at, row.at, disturbs=True)

    def last_at(self, group: str) -> int | None:
        """Return when the last rebalance of a group began; None if none is known."""
        rows = self._groups.get(group, {}).values()
        return max((kept.row.started_at for kept in rows), default=None)

    def rebalances(self, group: str, limit: int, key_of: KeyOf) -> list[RebalanceView]:
        """Return the latest rebalances of a group, the latest first."""
        rows = sorted(
            self._groups.get(group, {}).values(), key=lambda kept: kept.row.started_at, reverse=True
        )
        return [_view(kept.row, kept.handoffs.values(), key_of) for kept in rows[:limit]]

    def flapping(self, group: str, now: int) -> list[FlappingView]:
        """Return the clients of a RocketMQ group that flap."""
        return [
            FlappingView(member=one.name, joins=one.flaps, window_ms=PERIOD_MS)
            for one in self._flapping.of_group(group, now)
        ]


def _view(row: Rebalance, handoffs: Iterable[Handoff], key_of: KeyOf) -> RebalanceView:
    """Return a rebalance as it is shown."""
    found = sorted(handoffs, key=lambda one: (-one.pause_ms, one.topic, one.broker, one.queue))
    noticed_at = None if row.detect_ms is None else row.started_at + row.detect_ms
    stalls = [one.pause_ms for one in found if one.kind == STALLED]
    return RebalanceView(
        id=row.rebalance,
        at=row.started_at,
        noticed_at=noticed_at,
        ended_at=None
        if row.rebalance_ms is None
        else (noticed_at or row.started_at) + row.rebalance_ms,
        trigger=row.trigger,
        reason=row.reason,
        members_before=list(row.members_before),
        members_after=list(row.members_after),
        moved=row.queues_moved,
        pause_ms=row.pause_max_ms,
        pause_p50_ms=row.pause_p50_ms,
        stalled_ms=max(stalls, default=None),
        reprocessed=row.reprocessed_min,
        reprocessed_upper=row.reprocessed_max,
        spike=row.spike,
        took_ms=row.rebalance_ms,
        handoffs=[
            HandoffView(
                queue=key_of(one.topic, one.broker, one.queue),
                from_=one.from_client or None,
                to=one.to_client or None,
                pause_ms=one.pause_ms,
                reprocessed=one.reprocessed_min,
                reprocessed_upper=one.reprocessed_max,
            )
            for one in found
        ],
        confidence=None,
    )


def remoting_key(topic: str, broker: str, queue: int) -> str:
    """Return the key of a queue in RocketMQ groups."""
    return f"{topic}/{broker}/{queue}"


def kafka_key(partitions: Mapping[tuple[str, str, int], int]) -> KeyOf:
    """Return how queues are named in Kafka groups. `partitions`: of topic, broker and queue."""

    def key_of(topic: str, broker: str, queue: int) -> str:
        return f"{topic}/{partitions.get((topic, broker, queue), queue)}"

    return key_of
