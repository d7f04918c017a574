"""What waits for groups, as a broker notes it: at each second, at its peaks, and for nobody too long."""

from __future__ import annotations

import pytest

from steelyard.ledger.events import Backlog, Delivered
from steelyard.nodes.broker import backlogs
from steelyard.nodes.broker.backlogs import FORGET_MS, Backlogs


class Bench:
    """Two queues of topic T on a broker; group g reads it."""

    def __init__(self) -> None:
        self.ends = {0: 0, 1: 0}
        self.subject = Backlogs("a", lambda topic, queue: self.ends[queue])

    def deliver(self, now: int, queue: int, first: int, following: int, client: str = "c") -> None:
        delivery = Delivered(
            at=now,
            broker="a",
            group="g",
            client=client,
            topic="T",
            queue=queue,
            until=now,
            first=first,
            next=following,
            count=following - first,
            stored=now,
        )
        self.subject.delivered(delivery, first, now)

    def commit(self, now: int, queue: int, offset: int) -> None:
        self.subject.committed("g", "T", queue, offset, now)

    def take(self, now: int) -> list[tuple[int, tuple[int, ...], int, int]]:
        taken: list[Backlog] = list(self.subject.take(now))
        assert {(one.broker, one.group, one.topic) for one in taken} <= {("a", "g", "T")}
        return [(one.at, one.waiting, one.peak, one.peak_at) for one in taken]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_nobody_reads_waits(bench: Bench) -> None:
    bench.ends = {0: 5, 1: 5}
    bench.deliver(100, 0, 0, 5)
    bench.deliver(150, 1, 0, 5)
    assert bench.take(1_000) == [(1_000, (0, 0), 5, 100)]
    bench.ends = {0: 5, 1: 9}
    assert bench.take(2_000) == [(2_000, (0, 4), 4, 2_000)]
    bench.ends = {0: 5, 1: 12}
    assert bench.take(3_000) == [(3_000, (0, 7), 7, 3_000)]


def test_a_peak_is_just_before_a_delivery(bench: Bench) -> None:
    """It is that of all queues together."""
    bench.deliver(0, 0, 0, 0)
    bench.deliver(0, 1, 0, 0)
    bench.ends = {0: 30, 1: 12}
    bench.deliver(400, 0, 0, 30)
    bench.deliver(500, 1, 0, 12)
    assert bench.take(1_000) == [(1_000, (0, 0), 42, 400)]


def test_a_new_owner_begins_where_it_asks(bench: Bench) -> None:
    """c was delivered all, but had not worked on what is behind 20."""
    bench.ends = {0: 50}
    bench.deliver(100, 0, 0, 50)
    assert bench.take(1_000) == [(1_000, (0,), 50, 100)]
    bench.deliver(1_500, 0, 20, 40, client="d")
    assert bench.take(2_000) == [(2_000, (10,), 30, 1_500)]


def test_what_a_member_fetched_ahead_waits_but_for_the_last_answer(bench: Bench) -> None:
    bench.ends = {0: 90}
    bench.deliver(100, 0, 0, 30)
    bench.deliver(200, 0, 30, 60)
    bench.commit(300, 0, 10)  # 10 to 29 are not finished; of 30 to 59 nobody can know
    assert bench.take(1_000) == [(1_000, (50,), 90, 100)]
    bench.commit(1_300, 0, 60)
    assert bench.take(2_000) == [(2_000, (30,), 30, 2_000)]


def test_what_a_member_that_left_had_not_finished_waits_again(bench: Bench) -> None:
    """Of queue 0 it committed 10 of 60 messages, of queue 1, read from 20 on, nothing."""
    bench.ends = {0: 60, 1: 30}
    bench.deliver(100, 0, 0, 60)
    bench.deliver(100, 1, 20, 30)
    bench.commit(200, 0, 10)
    bench.deliver(250, 1, 30, 30, client="another")
    bench.deliver(300, 1, 25, 30)
    assert bench.take(1_000)[0][1] == (0, 0)
    bench.subject.left("g", "nobody")
    bench.subject.left("another group", "c")
    assert bench.take(2_000) == []
    bench.subject.left("g", "c")
    assert bench.take(3_000)[-1][1] == (50, 5)


def test_what_a_member_fetched_ahead_of_a_queue_that_it_gives_up_waits_again(bench: Bench) -> None:
    bench.ends = {0: 60}
    bench.deliver(100, 0, 0, 60)
    bench.subject.committed("g", "T", 0, 40, 200, gives_up=True)
    assert bench.take(1_000)[0][1] == (20,)


def test_a_commit_behind_what_was_delivered_moves_the_group_on(bench: Bench) -> None:
    """A filter refused what is in between."""
    bench.ends = {0: 90}
    bench.deliver(100, 0, 0, 30)
    bench.commit(200, 0, 80)
    assert bench.take(1_000)[0][1] == (10,)


def test_a_committed_offset_is_enough(bench: Bench) -> None:
    bench.ends = {0: 0, 1: 9}
    bench.commit(0, 1, 4)
    assert bench.take(1_000) == [(1_000, (0, 5), 5, 1_000)]


def test_after_a_restart_a_group_goes_on_where_it_had_committed(bench: Bench) -> None:
    bench.ends = {0: 8, 1: 9}
    bench.deliver(0, 0, 5, 7)
    bench.subject.resumed("g", [("T", 0, 5), ("T", 1, 4)], 0)
    assert bench.take(1_000)[0][1] == (1, 5)


def test_what_does_not_move_is_written_once_and_again_before_it_moves(bench: Bench) -> None:
    bench.ends = {0: 5}
    bench.deliver(100, 0, 0, 2)
    assert bench.take(1_000) == [(1_000, (3,), 5, 100)]
    assert bench.take(2_000) == []
    assert bench.take(3_000) == []
    bench.ends = {0: 9}
    assert bench.take(4_000) == [(3_000, (3,), 3, 3_000), (4_000, (7,), 7, 4_000)]


def test_a_group_that_is_gone_is_forgotten(bench: Bench) -> None:
    bench.deliver(0, 0, 0, 0)
    bench.ends = {0: 5}
    assert bench.take(FORGET_MS - 1)
    assert bench.take(FORGET_MS) == []
    assert not bench.subject.is_watching


def test_no_more_queues_are_watched_than_can_be_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "WATCHED_MAX", 1)
    bench.ends = {0: 5, 1: 5}
    bench.deliver(100, 0, 0, 1)
    bench.deliver(100, 1, 0, 1)
    bench.commit(100, 1, 3)
    assert bench.take(1_000) == [(1_000, (4,), 5, 100)]
    later = 100 + FORGET_MS
    assert bench.take(later) == []
    monkeypatch.setattr(backlogs, "WATCHED_MAX", 2)
    bench.deliver(later, 1, 1, 2)
    assert bench.take(later + 1_000)[0][1] == (0, 3)


def test_a_high_queue_counts_as_all_below_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record has a place for each of them, and the queue's number comes from the network."""
    monkeypatch.setattr(backlogs, "WATCHED_MAX", 2)
    bench.ends = {0: 5, 1: 5, 2: 5}
    bench.deliver(100, 2, 0, 1)
    assert bench.take(1_000) == []
    bench.deliver(1_100, 1, 0, 1)
    assert bench.take(2_000) == [(2_000, (0, 4), 5, 1_100)]
