"""What one setting of a scenario changes in the cost of its rebalances.

The scenario runs with the setting off and on, with the same seeds: the same messages and faults,
in the same weather. The figures are those of the ledger (`ledger.cost` defines them), in virtual
time, so that a busy machine does not change them. Counted are rebalances of groups that had members
before and have some afterwards; how a group starts and ends is not what a rebalance costs.

The members are Steelyard's own. With `clean_handover = false` those of RocketMQ's group give queues
up as Apache's clients do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from steelyard.errors import ConfigError
from steelyard.ledger import cost
from steelyard.ledger.measures import percentile
from steelyard.ledger.tables import Costs
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import Scenario

Run = Callable[[Scenario], RunOutcome]


class GroupCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the rebalances of one group cost, in ms and in messages, with one value of a setting."""

    group: str
    value: bool
    rebalances: int
    moved: int
    """Queues or partitions that changed hands."""
    pauses_ms: tuple[int, ...]
    """Of those, and of the ones that stood still, sorted."""
    shared_ms: tuple[int, ...]
    """From what caused a rebalance until all members had their shares, sorted; of those rebalances
    of which it was recorded.
    """
    redelivered: int
    reprocessed_max: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`failures`: runs that broke a rule; their figures count all the same."""

    field: str
    costs: tuple[GroupCost, ...]
    """Sorted by group; first with the setting off, then on."""
    failures: tuple[RunOutcome, ...] = ()


def switches() -> list[str]:
    """Return the settings of a scenario that are on or off."""
    return sorted(name for name, kind in Scenario.__annotations__.items() if kind == "bool")


def compare(scenario: Scenario, field: str, rounds: int, run: Run) -> Comparison:
    """Run the scenario with `field` off and on, and with as many seeds as there are `rounds`.

    Raises ConfigError for a setting that is neither on nor off.
    """
    if field not in switches():
        raise ConfigError(f"--compare {field}: expected one of {', '.join(switches())}")
    found: list[GroupCost] = []
    failures: list[RunOutcome] = []
    for value in (False, True):
        outcomes = [
            run(replace(scenario, seed=scenario.seed + number, **{field: value}))
            for number in range(rounds)
        ]
        failures += [outcome for outcome in outcomes if outcome.failure is not None]
        found += summed((cost.costs(outcome.ledger) for outcome in outcomes), value=value)
    found.sort(key=lambda each: (each.group, each.value))
    return Comparison(field=field, costs=tuple(found), failures=tuple(failures))


def summed(runs: Iterable[Costs], *, value: bool) -> list[GroupCost]:
    """Return what several runs cost each group."""
    counted = [
        (rebalance, [row for row in each.handoffs if row.rebalance == rebalance.rebalance])
        for each in runs
        for rebalance in each.rebalances
        if rebalance.members_before and rebalance.members_after
    ]
    return [
        GroupCost(
            group=group,
            value=value,
            rebalances=len(own),
            moved=sum(rebalance.queues_moved for rebalance, _ in own),
            pauses_ms=tuple(sorted(row.pause_ms for _, rows in own for row in rows)),
            shared_ms=tuple(
                sorted(
                    (each.detect_ms or 0) + each.rebalance_ms
                    for each, _ in own
                    if each.rebalance_ms is not None
                )
            ),
            redelivered=sum(rebalance.redelivered for rebalance, _ in own),
            reprocessed_max=sum(rebalance.reprocessed_max for rebalance, _ in own),
        )
        for group in sorted({rebalance.group for rebalance, _ in counted})
        for own in [[pair for pair in counted if pair[0].group == group]]
    ]


def table(comparison: Comparison) -> str:
    """Return the comparison as text, one line per group and value of the setting."""
    heads = (
        "group",
        comparison.field,
        "rebalances",
        "moved",
        "pause p50",
        "longest",
        "shares p50",
        "longest",
        "redelivered",
        "reprocessed ≤",
    )
    rows = [heads, *(_cells(each) for each in comparison.costs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = (
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _cells(each: GroupCost) -> tuple[str, ...]:
    return (
        each.group,
        "on" if each.value else "off",
        str(each.rebalances),
        str(each.moved),
        *_times(each.pauses_ms),
        *_times(each.shared_ms),
        str(each.redelivered),
        str(each.reprocessed_max),
    )


def _times(times_ms: Sequence[int]) -> tuple[str, str]:
    """Return the median and the longest of sorted times."""
    if not times_ms:
        return "-", "-"
    return f"{percentile(times_ms, 0.5)} ms", f"{times_ms[-1]} ms"
