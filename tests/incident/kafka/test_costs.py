"""What was done to groups on Apache Kafka is found in what their brokers kept of it."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from tests.incident.dumps import DUMPS, EAGER, GROUP, RESTARTS, ROLLING, evidence, topic, truth
from tests.incident.truth import compare, compare_holdings

from steelyard.incident.kafka.broker_log import COORDINATOR
from steelyard.incident.kafka.costs import costs
from steelyard.ledger.tables import MOVED, STALLED

INTERVAL_MS = 500
"""How often the members committed."""


@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("dump", DUMPS)
def test_eight_incidents(dump: str, with_log: bool) -> None:
    found = topic(dump)
    rows = costs(found.groups[GROUP], found.topics, evidence(dump) if with_log else ())
    compare(rows.rebalances, rows.handoffs, truth(dump), INTERVAL_MS, has_log=with_log)
    compare_holdings(rows.holdings, truth(dump), 4, lambda name: name.partition("-")[0])
    confident = {row.confidence for row in rows.rebalances if row.trigger.startswith("left")}
    assert ("high" in confident) is with_log
    assert "low" not in confident


@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("dump", RESTARTS)
def test_restarts(dump: str, with_log: bool) -> None:
    """Static members, a rolling restart, restarts of the broker."""
    found = topic(dump)
    rows = costs(found.groups[GROUP], found.topics, evidence(dump) if with_log else ())
    compare(rows.rebalances, rows.handoffs, truth(dump), INTERVAL_MS, has_log=with_log)
    compare_holdings(rows.holdings, truth(dump), 4, lambda name: name.partition("-")[0])
    restarted = [row for row in rows.rebalances if row.trigger == COORDINATOR]
    assert bool(restarted) is with_log
    for row in restarted:
        assert row.queues_stalled == 4
        assert row.started_error_ms == 0  # the log says when it stopped
        assert row.rebalance_ms is not None
        assert row.rebalance_ms > 1_000


@pytest.mark.parametrize("with_log", [True, False])
def test_rolling_restarts(with_log: bool) -> None:
    """A member leaves and another one joins at once: a partition moves, and is read when the next rebalance is on."""
    found = topic(ROLLING)
    rows = costs(found.groups[GROUP], found.topics, evidence(ROLLING) if with_log else ())
    compare(rows.rebalances, rows.handoffs, truth(ROLLING), INTERVAL_MS, has_log=with_log)
    began = [row.started_at for row in rows.rebalances]
    outlast = [
        row
        for row in rows.handoffs
        if row.pause_ms is not None
        and bisect_right(began, row.moved_at) < bisect_right(began, row.first_commit_ms or 0)
    ]
    assert {row.kind for row in outlast} == {MOVED}


@pytest.mark.parametrize("with_log", [True, False])
def test_partitions_that_stand_still_without_moving(with_log: bool) -> None:
    """An eager assignor: all wait for the member whose application hangs."""
    found = topic(EAGER)
    rows = costs(found.groups[GROUP], found.topics, evidence(EAGER) if with_log else ())
    compare(rows.rebalances, rows.handoffs, truth(EAGER), INTERVAL_MS, has_log=with_log)
    waited = rows.rebalances[2]
    stalled = [
        row for row in rows.handoffs if row.kind == STALLED and row.rebalance == waited.rebalance
    ]
    assert waited.queues_stalled == len(stalled) > 0
    assert all((row.pause_ms or 0) > 5_000 for row in stalled)


@pytest.mark.parametrize("dump", DUMPS)
def test_what_the_broker_says_is_passed_on(dump: str) -> None:
    found = topic(dump)
    rows = costs(found.groups[GROUP], found.topics, evidence(dump)).rebalances
    (died,) = (row for row in rows if row.trigger == "left (expired)")
    assert died.detect_ms is not None
    assert 5_000 < died.detect_ms < 8_000  # the session is 6 s
    assert "heartbeat expiration" in died.reason or "session expired" in died.reason


def test_a_history_without_a_beginning() -> None:
    """Compaction leaves the last generation only: nobody can say what led to it."""
    found = topic("kafka-4.3.1-classic")
    history = found.groups[GROUP]
    history.records = history.records[-1:]
    assert costs(history, found.topics).rebalances == []


def test_the_same_generation_again_is_no_rebalance() -> None:
    found = topic("kafka-4.3.1-classic")
    history = found.groups[GROUP]
    once = costs(history, found.topics)
    history.records.append(history.records[-1]._replace(at=history.records[-1].at + 60_000))
    assert costs(history, found.topics) == once


def test_a_member_that_is_idle_may_have_left_long_ago() -> None:
    """Without commits nothing but a guess is left, and it is called one."""
    found = topic("kafka-4.3.1-classic")
    history = found.groups[GROUP]
    history.commits.clear()
    left = [row for row in costs(history, found.topics).rebalances if row.trigger[:4] == "left"]
    assert {row.confidence for row in left} == {"low"}
    assert {row.pause_max_ms for row in left} == {None}
