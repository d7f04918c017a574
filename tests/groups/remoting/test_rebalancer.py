from __future__ import annotations

from itertools import pairwise

import pytest

from steelyard.allocate import contiguous
from steelyard.allocate.plan import Plan
from steelyard.groups.remoting.rebalancer import Decision, Rebalancer, View
from steelyard.types import MessageQueue


def queues(topic: str, count: int, broker: str = "a") -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, broker, number) for number in range(count))


def rebalancer(client_id: str = "c1") -> Rebalancer:
    return Rebalancer(client_id, contiguous.allocate, interval_ms=20_000, retry_ms=1_000)


def run(
    subject: Rebalancer, now: int, *views: View, held: tuple[MessageQueue, ...] = ()
) -> Decision:
    subject.begin(now)
    subject.check()
    decision = subject.decide(views, held, now)
    subject.check()
    return decision


def broken(claims: object, queues: object) -> Plan[MessageQueue]:
    raise LookupError("no room for c1")


GOOD = View("T", ("c1",), queues("T", 2))


def test_the_first_run_begins_at_once_the_next_soon() -> None:
    subject = rebalancer()
    assert subject.wake(100) == 100
    assert run(subject, 100, GOOD).next_at == 20_100
    assert subject.wake(105) == 120
    assert subject.wake(110) == 120
    run(subject, 120, GOOD)
    assert subject.wake(5_000) == 5_000


def test_in_a_storm_of_notifications_runs_are_apart_by_twice_as_much_each_time_up_to_a_second() -> (
    None
):
    """After a quiet second the next one is as quick as the first. Timers may come late."""
    subject = rebalancer()
    now, runs = 0, [0]
    while now < 10_000:
        run(subject, now, GOOD)
        at = subject.wake(now + 1)
        assert at is not None
        now = at + 3
        runs.append(now)
    gaps = [later - sooner for sooner, later in pairwise(runs)]
    assert gaps[:8] == [23, 43, 83, 163, 323, 643, 1_003, 1_003]
    assert set(gaps[8:]) == {1_003}
    run(subject, now + 2_001, GOOD)
    assert subject.wake(now + 2_002) == now + 2_021


def test_what_wakes_it_during_a_run_counts_for_the_next() -> None:
    subject = rebalancer()
    subject.begin(0)
    assert subject.wake(3) is None
    assert subject.decide([GOOD], (), 5).next_at == 20
    assert run(subject, 50, GOOD).next_at == 20_050


def test_an_unbalanced_run_is_repeated_after_a_second_or_when_something_wakes_it() -> None:
    subject = rebalancer()
    missing = View("T", None, queues("T", 2))
    assert run(subject, 0, missing).next_at == 1_000
    assert subject.wake(300) == 300


@pytest.mark.parametrize(
    ("view", "kept"),
    [
        (View("T", None, queues("T", 2)), True),
        (View("T", ("c1",), None), True),
        (View("T", ("c2",), queues("T", 2)), False),
    ],
)
def test_an_incomplete_view_is_looked_at_again_soon(view: View, kept: bool) -> None:
    """A topic without a view stays as it is; one whose list lacks this member is given up (RocketMQ does so too)."""
    held = queues("T", 2)
    decision = run(rebalancer(), 0, view, held=held)
    assert decision.target == (held if kept else ())
    assert not decision.balanced
    assert decision.absent == (() if kept else ("T",))
    assert decision.next_at == 1_000


def test_a_retry_topic_without_a_route_is_no_reason_to_hurry() -> None:
    retry = View("%RETRY%g", None, None, optional=True)
    decision = run(rebalancer(), 0, GOOD, retry)
    assert decision == Decision(queues("T", 2), True, (), 20_000)
    without_list = View("%RETRY%g", None, queues("%RETRY%g", 1), optional=True)
    assert not run(rebalancer(), 0, GOOD, without_list).balanced


def test_members_agree_whatever_order_they_hear_of_each_other_in() -> None:
    """Java sorts by UTF-16 units: U+1F600 (a surrogate pair) comes before U+FF5E, unlike by code points."""
    members = ("\uff5e", "\U0001f600", "c1", "C1")
    everything = queues("T", 2, "b") + queues("T", 2, "a")
    shares = {m: rebalancer(m).share(members[::-1], everything) for m in members}
    assert shares == {
        "C1": (MessageQueue("T", "a", 0),),
        "c1": (MessageQueue("T", "a", 1),),
        "\U0001f600": (MessageQueue("T", "b", 0),),
        "\uff5e": (MessageQueue("T", "b", 1),),
    }


def test_a_topic_that_lost_its_queues_is_held_no_more() -> None:
    decision = run(rebalancer(), 0, View("T", ("c1",), ()), held=queues("T", 2))
    assert decision == Decision((), True, (), 20_000)


def test_topics_are_decided_one_by_one() -> None:
    views = [View(t, ("c1", "c2", "c3", "c4"), queues(t, 2)) for t in ("TopicX", "TopicY")]
    counts = {}
    for member in ("c1", "c2", "c3", "c4"):
        counts[member] = len(run(rebalancer(member), 0, *views).target)
    assert counts == {"c1": 2, "c2": 2, "c3": 0, "c4": 0}


def test_a_strategy_that_raises_changes_nothing_and_is_tried_again_soon() -> None:
    subject = Rebalancer("c1", broken, interval_ms=20_000, retry_ms=1_000)
    held = queues("T", 1)
    assert run(subject, 100, GOOD, held=held) == Decision(
        target=held,
        balanced=False,
        absent=(),
        next_at=1_100,
        faults=("T: LookupError('no room for c1')",),
    )
