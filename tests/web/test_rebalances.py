"""What rebalances cost as counters: each counts once, and what comes later is added."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from tests.examples import examples
from tests.ledger.stories import DELAY_MS, Story, stories

from steelyard.config import HttpConfig
from steelyard.ledger.cluster import LedgerGroups
from steelyard.ledger.group import GroupState
from steelyard.ledger.order import in_order
from steelyard.ledger.stream import OutputRow, Stream, Taken
from steelyard.ledger.tables import Handoff, Rebalance
from steelyard.web import metrics
from steelyard.web.metrics import Metric
from steelyard.web.rebalances import OTHERS, RebalanceCosts
from steelyard.web.series import Pauses

BEGAN = 1_000_000
CONFIG = HttpConfig(rebalance_settle_ms=1_000, rebalance_groups_max=2)


def rebalance(group: str = "g", at: int = BEGAN, repeats: int = 0) -> Rebalance:
    return Rebalance(
        group=group,
        rebalance=f"{group}/{at}",
        started_at=at,
        reason="A joined",
        trigger="joined",
        members_before=(),
        members_after=("A",),
        detect_ms=0,
        rebalance_ms=0,
        first_fetch_ms=None,
        queues_moved=1,
        queues_stalled=0,
        pause_p50_ms=40,
        pause_p99_ms=40,
        pause_max_ms=40,
        redelivered=repeats,
        reprocessed_min=0,
        reprocessed_max=repeats,
        spike=None,
        drain_ms=None,
    )


def handoff(pause_ms: int, queue: int = 0) -> Handoff:
    return Handoff(
        group="g",
        topic="T",
        broker="a",
        queue=queue,
        kind="moved",
        from_client="A",
        to_client="B",
        last_delivery_ms=BEGAN,
        first_delivery_ms=BEGAN + pause_ms,
        pause_ms=pause_ms,
        first_fetch_ms=None,
        listener_pause_ms=None,
        redelivered=0,
        reprocessed_min=0,
        reprocessed_max=0,
        rebalance=f"g/{BEGAN}",
    )


def taken(*rows: Rebalance | Handoff, is_open: bool = True) -> Taken:
    made = [OutputRow(row.group, row, is_open) for row in rows]
    return Taken({row.group for row in rows}, made, {}, 0, 0)


def counters(costs: RebalanceCosts, metric: Metric) -> dict[tuple[str, ...], object]:
    """Those that have counted something."""
    return {one.labels: one.value for one in costs.samples() if one.metric is metric and one.value}


def test_an_open_row_counts_once_it_has_settled() -> None:
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance(), handoff(40)), 0)
    assert counters(costs, metrics.REBALANCES) == {}
    costs.settle(999)
    assert counters(costs, metrics.REBALANCES) == {}
    costs.settle(1_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}
    for now in (2_000, 3_000):
        costs.take(taken(rebalance(), handoff(40)), now)
    costs.take(taken(rebalance(), handoff(40), is_open=False), 4_000)
    costs.settle(100_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}
    pauses = counters(costs, metrics.PAUSE)["g", "moved"]
    assert isinstance(pauses, Pauses)
    assert (sum(pauses.counts), pauses.sum_seconds) == (1, 0.04)


def test_counters_of_a_known_group_begin_with_0() -> None:
    """Prometheus would not see the first death otherwise."""
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance(), is_open=False), 0)
    samples = {one.labels: one.value for one in costs.samples() if one.metric is metrics.REBALANCES}
    assert samples["g", "joined"] == 1
    assert samples["g", "left (expired)"] == samples["g", "left (closed)"] == 0
    kinds = {one.labels for one in costs.samples() if one.metric is metrics.PAUSE}
    assert kinds == {("g", "moved"), ("g", "stalled")}


def test_a_row_that_goes_before_it_has_settled_does_not_count() -> None:
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance()), 0)
    costs.take(taken(rebalance(at=BEGAN + 5)), 500)  # an earlier event turned up, or a later one
    costs.settle(10_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}


def test_a_final_row_counts_at_once_also_when_nothing_else_of_its_group_comes() -> None:
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance()), 0)
    final = taken(rebalance(), is_open=False)
    costs.take(final._replace(groups=set()), 1)
    costs.settle(10_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}


def test_repeats_that_come_later_are_added_and_never_taken_back() -> None:
    costs = RebalanceCosts(0, CONFIG)
    for now, repeats in ((0, 3), (1_000, 5), (2_000, 4), (3_000, 9)):
        costs.take(taken(rebalance(repeats=repeats)), now)
        found = counters(costs, metrics.REDELIVERED).get(("g",))
        assert found == {0: None, 1_000: 5, 2_000: 5, 3_000: 9}[now]
    assert counters(costs, metrics.REPROCESSED_MAX) == {("g",): 9}
    assert counters(costs, metrics.REPROCESSED_MIN) == {}


def test_rebalances_before_the_process_do_not_count() -> None:
    costs = RebalanceCosts(BEGAN + 1, CONFIG)
    costs.take(taken(rebalance(), rebalance(at=BEGAN + 1), is_open=False), 0)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}


def test_what_was_counted_is_not_counted_again_when_the_ledger_is_read_again() -> None:
    """Rows that are final, open, new, and larger now: counters never go back, and what is more is added."""
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance(repeats=3), handoff(40), is_open=False), 0)
    costs.take(taken(rebalance(at=BEGAN + 9, repeats=5)), 0)
    costs.settle(1_000)
    assert counters(costs, metrics.REDELIVERED) == {("g",): 8}
    costs.begin_again(BEGAN)
    again: list[Rebalance | Handoff] = [rebalance(repeats=7), handoff(40), handoff(90_000, queue=1)]
    costs.take(taken(*again, rebalance(at=BEGAN + 9, repeats=2)), 2_000, settles=False)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 2}
    costs.settle(4_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 2}
    assert counters(costs, metrics.REDELIVERED) == {("g",): 12}
    pauses = counters(costs, metrics.PAUSE)["g", "moved"]
    assert isinstance(pauses, Pauses)
    assert (sum(pauses.counts), pauses.sum_seconds) == (2, 90.04)


def test_rows_of_before_what_is_read_again_do_not_count() -> None:
    costs = RebalanceCosts(0, CONFIG)
    costs.begin_again(BEGAN + 1)
    costs.take(taken(rebalance(), rebalance(at=BEGAN + 1), is_open=False), 0)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}


def test_while_the_past_is_read_open_rows_do_not_count() -> None:
    costs = RebalanceCosts(0, CONFIG)
    costs.take(taken(rebalance(at=BEGAN)), 0, settles=False)
    costs.take(taken(rebalance(at=BEGAN - 5)), 60_000, settles=False)
    assert counters(costs, metrics.REBALANCES) == {}
    costs.settle(61_000)
    assert counters(costs, metrics.REBALANCES) == {("g", "joined"): 1}


def test_groups_beyond_the_limit_are_added_up() -> None:
    costs = RebalanceCosts(0, CONFIG)
    for number, group in enumerate(("one", "two", "three", "four", "two")):
        costs.take(taken(rebalance(group, BEGAN + number), is_open=False), 0)
    began = counters(costs, metrics.REBALANCES)
    assert began == {("one", "joined"): 1, ("two", "joined"): 2, (OTHERS, "joined"): 2}


@given(stories)
@settings(max_examples=examples(100))
def test_the_counters_are_the_sums_of_the_tables(story: Story) -> None:
    """Whatever the batches: when all is settled, what was counted is what the ledger's tables say."""
    stream, states = Stream(DELAY_MS), dict[str, GroupState]()
    costs = RebalanceCosts(-(2**53), HttpConfig(rebalance_settle_ms=10**12))
    for batch in story.batches:
        found = stream.take(batch, states.get)
        for name, state in found.states.items():
            if state is None:
                states.pop(name, None)
            else:
                states[name] = state
        costs.take(found, 0)
    costs.settle(10**13)
    groups = LedgerGroups()
    rows = [each.row for each in (*groups.add(in_order(story.records)), *groups.finish())]
    triggers = Counter((row.group, row.trigger) for row in rows if isinstance(row, Rebalance))
    assert counters(costs, metrics.REBALANCES) == dict(triggers)
    pauses = [row.pause_ms for row in rows if isinstance(row, Handoff)]
    counted = [one.value for one in costs.samples() if one.metric is metrics.PAUSE]
    histograms = [value for value in counted if isinstance(value, Pauses)]
    assert sum(sum(value.counts) for value in histograms) == len(pauses)
    assert round(sum(value.sum_seconds for value in histograms) * 1000) == sum(pauses)
