"""Groups that grow and shrink over real brokers while messages flow and listeners take their time."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.nodes.consumer.remoting.test_group import Cluster

from steelyard.nodes.consumer.remoting.node import Stop
from steelyard.types import MessageQueue


def flow(town: Cluster, ms: int, *, every_ms: int = 20) -> None:
    """Let time pass, with a message now and then."""
    for _ in range(ms // every_ms):
        town.send(1)
        town.advance(every_ms)


def grown(*topics: str, count: int = 3, **settings: object) -> Cluster:
    """A group that has formed, its topics made, its listeners at work."""
    town = Cluster(*topics, **settings)
    town.send(20)
    town.advance(31_000)
    for number in range(count):
        town.join(f"c{number}")
    town.advance(31_000)
    town.listen_ms = 35
    flow(town, 2_000)
    return town


def everything_came_once(town: Cluster) -> bool:
    town.advance(5_000)
    return Counter(town.bodies) == Counter(town.sent)


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "EVEN"])
def test_members_join_and_leave_and_every_message_comes_once(strategy: str) -> None:
    town = grown(strategy=strategy)
    for name in ("a", "z", "b"):
        town.join(name)
        flow(town, 1_000)
    for name in ("c1", "a", "c0"):
        stop = town.ask(name, Stop())
        flow(town, 300)
        assert town.answers[stop] is None
        town.kill(name)
    town.join("c1")
    flow(town, 2_000)
    assert everything_came_once(town)


def test_a_rolling_restart_repeats_nothing() -> None:
    town = grown()
    for name in ("c0", "c1", "c2"):
        stop = town.ask(name, Stop())
        flow(town, 500)
        assert town.answers[stop] is None
        town.kill(name)
        flow(town, 300)
        town.join(name)
        flow(town, 500)
    assert everything_came_once(town)


def test_the_new_owner_of_a_queue_waits_for_a_listener_that_takes_seconds() -> None:
    town = grown(count=1)
    town.listen_ms = 3_000
    flow(town, 400)
    town.join("c1")
    flow(town, 8_000)
    assert any(address == "c1" for address, _, _ in town.consumed)
    assert everything_came_once(town)


def test_a_member_that_hears_no_notification_is_waited_for_until_it_finds_out() -> None:
    """The newcomer gets its queues once the other one looks by itself; nothing is read twice."""
    town = grown(count=1, takeover_timeout_ms=30_000)
    town.deaf.add("c0")
    town.join("c1")
    flow(town, 21_000, every_ms=100)
    first, second = town.held("c0", "c1")
    assert not set(first) & set(second)
    assert [sum(q.topic == "T" for q in part) for part in (first, second)] == [4, 4]
    assert everything_came_once(town)


def test_the_queues_of_a_killed_member_are_read_again_at_once() -> None:
    town = grown()
    town.kill("c1")
    flow(town, 300)
    held = [queue for part in town.held("c0", "c2") for queue in part if queue.topic == "T"]
    assert len(held) == len(set(held)) == 8
    town.advance(5_000)
    assert set(town.bodies) == set(town.sent)


def test_a_lone_member_that_was_killed_and_started_anew_reads_at_once() -> None:
    town = grown(count=1)
    town.kill("c0")
    town.join("other")
    flow(town, 300)
    assert len([q for q in town.held("other")[0] if q.topic == "T"]) == 8
    town.advance(5_000)
    assert set(town.bodies) == set(town.sent)


# -- quotas ----------------------------------------------------------------------------------------


def of(town: Cluster, *names: str) -> dict[str, set[MessageQueue]]:
    """What each holds of the topics; nothing is held twice, and nothing by nobody."""
    held = {
        name: {queue for queue in part if queue.topic in town.topics}
        for name, part in zip(names, town.held(*names), strict=True)
    }
    queues = [queue for part in held.values() for queue in part]
    assert len(queues) == len(set(queues)) == 8 * len(town.topics)
    return held


def sizes(held: dict[str, set[MessageQueue]]) -> list[int]:
    return sorted(len(part) for part in held.values())


def moved(before: dict[str, set[MessageQueue]], after: dict[str, set[MessageQueue]]) -> int:
    """Queues that another member holds than before."""
    owner = {queue: name for name, part in before.items() for queue in part}
    return sum(owner[queue] != name for name, part in after.items() for queue in part)


def test_even_spreads_all_topics_together() -> None:
    """Three topics of eight queues over five members: AVG would give 6, 6, 6, 3, 3."""
    town = grown("X", "Y", "Z", count=5, strategy="EVEN")
    assert sizes(of(town, *(f"c{n}" for n in range(5)))) == [4, 5, 5, 5, 5]


def test_even_moves_what_a_newcomer_gets_or_one_more() -> None:
    town = grown("X", "Y", count=3, strategy="EVEN")
    names = ["c0", "c1", "c2"]
    before = of(town, *names)
    for name in ("b", "d"):
        town.join(name)
        names.append(name)
        flow(town, 1_000)
        after = of(town, *names)
        assert max(sizes(after)) - min(sizes(after)) <= 1
        assert moved(before, after) - len(after[name]) in (0, 1)
        before = after
    assert everything_came_once(town)


def test_even_moves_only_the_queues_of_a_member_that_leaves() -> None:
    town = grown("X", "Y", count=5, strategy="EVEN")
    names = [f"c{n}" for n in range(5)]
    before = of(town, *names)
    for name in ("c3", "c0"):
        town.ask(name, Stop())
        names.remove(name)
        flow(town, 1_000)
        after = of(town, *names)
        assert max(sizes(after)) - min(sizes(after)) <= 1
        assert moved(before, after) == len(before[name])
        before = after
    assert everything_came_once(town)


def test_even_takes_the_locks_of_a_killed_member() -> None:
    town = grown("X", "Y", count=3, strategy="EVEN")
    town.kill("c1")
    flow(town, 600)
    assert sizes(of(town, "c0", "c2")) == [8, 8]
    town.kill("c2")
    flow(town, 600)
    assert sizes(of(town, "c0")) == [16]
    town.kill("c0")
    town.join("other")
    flow(town, 600)
    assert sizes(of(town, "other")) == [16]


def test_even_shares_what_a_lone_member_reads_without_the_locks_of_the_dead() -> None:
    """They lapse after a minute, and whoever gets one then has the queue."""
    town = grown("X", "Y", count=1, strategy="EVEN")
    town.kill("c0")
    town.join("c1")
    town.advance(5_000)
    town.join("c2")
    town.advance(70_000)
    assert sizes(of(town, "c1", "c2")) == [8, 8]


def test_even_needs_its_locks_without_a_clean_handover_as_well() -> None:
    town = grown("X", "Y", count=2, strategy="EVEN", clean_handover=False)
    town.join("c2")
    flow(town, 1_000)
    assert sizes(of(town, "c0", "c1", "c2")) == [5, 5, 6]
    town.advance(5_000)
    assert set(town.bodies) == set(town.sent)


def test_even_finds_the_queues_of_a_broker_that_comes_back() -> None:
    town = grown("X", "Y", count=3, strategy="EVEN")
    town.kill("127.0.0.1:1")
    town.advance(3_000)
    held = town.held("c0", "c1", "c2")
    assert sorted(sum(q.topic in "XY" for q in part) for part in held) == [2, 3, 3]
    town.add_broker("127.0.0.1:1")
    town.advance(10_000)
    assert sizes(of(town, "c0", "c1", "c2")) == [5, 5, 6]
    flow(town, 1_000)
    town.advance(5_000)
    assert set(town.bodies) == set(town.sent)
