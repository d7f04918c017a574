"""Compares what `steelyard.incident` finds with what was done to a group, and what its members saw."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import msgspec

from steelyard.incident.kafka.broker_log import COORDINATOR
from steelyard.incident.kafka.causes import UNKNOWN
from steelyard.incident.tables import IncidentHandoff, IncidentRebalance, QueueHolding
from steelyard.ledger.tables import MOVED, STALLED

SLACK_MS = 100
"""The members' times are those at which they told of records, or a test read it, and not at which they committed."""


EARLY_MS = 1_000
"""So much earlier than its cause a rebalance may be found: with the last commit of who died."""
STALL_TIMES = 5
"""A partition that stood still for so many intervals between commits must be in the tables."""


class Truth(msgspec.Struct, frozen=True):
    """One incident; see tests/peers/kafka/incidents.py. Members by their client ids.

    `interval_ms`, `long_ms`: how often records were read on a busy machine, 0 where none was;
    `late_ms`: how long the commits of the records around a pause took.
    """

    trigger: str
    at: int
    before: frozenset[str]
    after: frozenset[str]
    pauses_ms: Mapping[str, int]
    stalls_ms: Mapping[str, int] = {}
    also: str = ""
    interval_ms: int = 0
    long_ms: int = 0
    late_ms: Mapping[str, int] = {}


def compare(
    rebalances: Sequence[IncidentRebalance],
    handoffs: Sequence[IncidentHandoff],
    truth: Sequence[Truth],
    interval_ms: int,
    *,
    has_log: bool = True,
) -> None:
    """Assert that each incident was found, in order, and that its pauses are within their errors.

    `interval_ms`: how often members commit if the machine is not too busy; `has_log`: the broker's
    log was read; without it nothing tells of coordinators.
    """
    begins = [one.at - EARLY_MS for one in truth]
    by_incident: list[list[IncidentRebalance]] = [[] for _ in truth]
    for row in rebalances:
        by_incident[bisect_right(begins, row.started_at + row.started_error_ms) - 1].append(row)
    for one, rows in zip(truth, by_incident, strict=True):
        triggers = [row.trigger for row in rows]
        if one.trigger == COORDINATOR and not has_log:
            assert triggers in ([], [UNKNOWN]), one
        else:
            assert triggers in ([one.trigger], [one.trigger, one.also]), one
        if rows:
            members = _clients(rows[0].members_before), _clients(rows[-1].members_after)
            assert members == (one.before, one.after)
            names = [row.rebalance for row in rows]
            _compare_pauses(names, handoffs, one, interval_ms, has_log=has_log)


def _compare_pauses(
    names: Sequence[str],
    handoffs: Sequence[IncidentHandoff],
    one: Truth,
    interval_ms: int,
    *,
    has_log: bool,
) -> None:
    usual, long = max(interval_ms, one.interval_ms), max(interval_ms, one.long_ms)
    known = [row for row in handoffs if row.rebalance in names and row.pause_ms is not None]
    for kind, true in ((MOVED, one.pauses_ms), (STALLED, one.stalls_ms)):
        found = {f"{row.topic}-{row.queue}": row for row in known if row.kind == kind}
        for place, true_ms in true.items():
            if kind == STALLED and place not in found:
                # Without the log, a coordinator's restart is a rebalance that began when it was back.
                if one.trigger == COORDINATOR and not has_log:
                    continue
                assert true_ms < STALL_TIMES * long, f"{one.trigger} {place}: {true_ms}"
                continue
            row = found[place]  # the last one, of a partition that moved twice
            assert row.pause_ms is not None
            assert row.pause_error_ms is not None
            slack = SLACK_MS + max(0, long - usual)
            if one.trigger != COORDINATOR:  # whose commits are late by their nature
                slack += one.late_ms.get(place, 0)
            where = f"{one.trigger} {row}, true {true_ms}, slack {slack}"
            assert abs(row.pause_ms - true_ms) <= row.pause_error_ms + slack, where
            worst = usual
            if one.trigger == COORDINATOR:
                worst = 4 * long
                if one.long_ms and row.first_commit_ms is not None:
                    worst += (
                        row.first_commit_ms - one.at
                    ) // 2  # it may have been readable long before
            assert row.pause_error_ms <= worst + SLACK_MS, where


def compare_holdings(
    holdings: Sequence[QueueHolding],
    truth: Sequence[Truth],
    queues: int,
    client_of: Callable[[str], str],
) -> None:
    """Assert that before each incident every queue had one owner, and all members were owners."""
    for one in truth[1:]:
        before = one.at - 1_000
        held = [each for each in holdings if each.start <= before < each.end]
        assert sorted(each.queue for each in held) == list(range(queues)), one
        assert {client_of(each.client) for each in held} == one.before


def _clients(members: Sequence[str]) -> frozenset[str]:
    return frozenset(member.partition("-")[0] for member in members)
