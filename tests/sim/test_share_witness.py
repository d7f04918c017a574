"""What the witness of the simulated share group takes for a broken rule."""

from __future__ import annotations

import pytest

from steelyard.nodes.broker.kafka.shares.share_partition import ACCEPT, REJECT, RELEASE, RENEW
from steelyard.sim.checkers import Witness
from steelyard.sim.kafka.shares.fates import Who
from steelyard.sim.kafka.shares.witness import SLACK_MS, ShareWitness
from steelyard.sim.kafka.witness import Seen
from steelyard.sim.world import Violation
from steelyard.types import Message, MessageQueue, TopicPartition

LOCK_MS = 3_000
SESSION_MS = 6_000
LIMIT = 5
PARTITION = TopicPartition("T", 0)
RECORD = Seen(PARTITION, 7, b"00000042")
FIRST, SECOND = Who("first 1", "broker:9092", 1), Who("second 1", "broker:9092", 2)


class Scene:
    """A witness; `FIRST` got a record with a fetch of 1,000 ms."""

    def __init__(self, *, is_sure: bool = True) -> None:
        self.sent = sent = Witness([])
        sent.sent(42, Message("T", b"00000042"))
        sent.acknowledge(42, MessageQueue("T", "broker", 0), 7, 900)
        self.seen = ShareWitness(
            sent, lock_ms=LOCK_MS, deliveries_max=LIMIT, session_ms=SESSION_MS, is_sure=is_sure
        )
        self.run = 1
        self.now = 1_010
        self.seen.run_of = lambda leader: self.run
        self.seen.now = lambda: self.now
        self.get(FIRST, 1, 1_000)

    def get(self, who: Who, count: int, sent_at: int, *, now: int = 0, value: bytes = b"") -> None:
        """A record comes; 10 ms after it was asked for, unless `now` tells when."""
        record = RECORD._replace(value=value or RECORD.value)
        self.seen.delivered(who, [(record, count)], sent_at, now or sent_at + 10, self.run)

    def get_one_before(self, who: Who, sent_at: int) -> None:
        """The record before it comes as well, and is not finished."""
        self.sent.sent(41, Message("T", b"00000041"))
        self.sent.acknowledge(41, MessageQueue("T", "broker", 0), 6, 900)
        record = Seen(PARTITION, 6, b"00000041")
        self.seen.delivered(who, [(record, 1)], sent_at, sent_at + 10, self.run)

    def say(self, who: Who, kind: int, sent_at: int, *, count: int = 1) -> None:
        """An acknowledgement is sent, and answered well 10 ms later."""
        self.seen.acknowledges(who, PARTITION, {7: kind})
        self.seen.acknowledged(who, PARTITION, {7: kind}, {7: count}, sent_at, sent_at + 10)

    def refuse(self, who: Who, sent_at: int | None, *, by_state: bool = True) -> None:
        """An acceptance is sent, and refused 10 ms later, or never answered."""
        self.seen.acknowledges(who, PARTITION, {7: ACCEPT})
        now = None if sent_at is None else sent_at + 10
        self.seen.refuses(who, PARTITION, {7: ACCEPT}, now, because_of_state=by_state)


# -- who has a record ------------------------------------------------------------------------------


def test_a_locked_record_goes_to_nobody_else() -> None:
    """1. Two members have a record. 2. The first is answered on its connection: it had not lost it."""
    scene = Scene()
    scene.get(SECOND, 2, 2_000)
    scene.seen.answered(FIRST, 2_010)  # it had asked before
    with pytest.raises(Violation, match=r"second 1 gets .* first 1 has it for 1790 ms more"):
        scene.seen.answered(FIRST, 2_011)


def test_on_another_connection_a_member_has_nothing() -> None:
    scene = Scene()
    scene.get(SECOND, 2, 2_000)
    scene.seen.answered(FIRST._replace(link=3), 2_500)


def test_a_lock_ends() -> None:
    scene = Scene()
    scene.get(SECOND, 2, 1_000 + LOCK_MS - SLACK_MS)
    scene.seen.answered(FIRST, 9_000)


def test_a_renewed_lock_ends_later() -> None:
    scene = Scene()
    scene.say(FIRST, RENEW, 2_000)
    scene.get(SECOND, 2, 1_000 + LOCK_MS)
    with pytest.raises(Violation, match="has it for 790 ms more"):
        scene.seen.answered(FIRST, 9_000)


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT])
def test_who_acknowledges_a_record_has_it_no_longer(kind: int) -> None:
    scene = Scene()
    scene.seen.acknowledges(FIRST, PARTITION, {7: kind})
    scene.get(SECOND, 2, 2_000)
    scene.seen.answered(FIRST, 9_000)


def test_a_session_that_ended_has_no_records() -> None:
    scene = Scene()
    scene.seen.closes(FIRST)
    scene.get(SECOND, 2, 2_000)
    scene.seen.answered(FIRST, 9_000)


def test_a_session_that_was_lost_may_have_lost_its_records() -> None:
    scene = Scene()
    scene.get(SECOND, 2, 2_000)
    scene.seen.loses(FIRST)
    scene.seen.answered(FIRST, 9_000)


def test_an_answer_that_was_overtaken_takes_nothing_away() -> None:
    """The second member's lock had ended before the first one got the record."""
    scene = Scene()
    scene.get(FIRST, 3, 4_500)
    scene.get(SECOND, 2, 1_100, now=4_600)
    scene.seen.answered(FIRST, 9_000)
    scene.seen.answered(SECOND, 9_000)
    scene.get(SECOND, 4, 5_000)
    with pytest.raises(Violation, match="first 1 has it"):
        scene.seen.answered(FIRST, 9_001)


def test_who_has_a_record_may_acknowledge_it() -> None:
    scene = Scene()
    with pytest.raises(Violation, match=r"first 1 is refused 7 to 7 of .* for 1790 ms more"):
        scene.refuse(FIRST, 2_000)


def test_what_may_be_refused() -> None:
    scene = Scene()
    scene.refuse(FIRST._replace(link=3), 1_500)  # it has lost the record with its connection
    scene = Scene()
    scene.refuse(FIRST, 2_000, by_state=False)
    scene = Scene()
    scene.refuse(FIRST, 1_000 + LOCK_MS)
    scene = Scene()
    scene.refuse(FIRST, None)
    assert scene.seen.counts()["share_refused"] == 0


# -- what is finished ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_what_is_finished_does_not_come_again(kind: int) -> None:
    scene = Scene()
    scene.say(FIRST, kind, 2_000)
    with pytest.raises(Violation, match="which is finished"):
        scene.get(SECOND, 1, 2_010)


def test_what_comes_after_a_later_delivery_is_finished() -> None:
    """The fetch waited at the broker: only the count tells that the record was acquired later."""
    scene = Scene()
    scene.say(FIRST, ACCEPT, 2_000)
    scene.get(SECOND, 1, 1_000, now=2_100)
    with pytest.raises(Violation, match="which is finished"):
        scene.get(SECOND, 2, 2_000, now=2_200)


def test_nothing_is_finished_twice() -> None:
    scene = Scene()
    scene.get_one_before(FIRST, 1_000)
    scene.say(FIRST, ACCEPT, 2_000)
    scene.get(SECOND, 1, 900, now=2_200)
    with pytest.raises(Violation, match="finished by second 1, for the second time"):
        scene.say(SECOND, ACCEPT, 2_300)


def test_what_lies_before_the_start_is_passed_over() -> None:
    """Nobody has a record before it that is not finished: the group's start is behind it."""
    scene = Scene()
    scene.get(SECOND, 2, 4_100)
    scene.say(SECOND, ACCEPT, 4_200, count=2)
    scene.say(FIRST, ACCEPT, 4_300)


def test_a_renewal_that_was_passed_over_renews_nothing() -> None:
    """1. A record comes as often as is allowed, and its lock ends: the leader gives it up. 2. Its member renews the lock:
    what lies before the start is passed over. 3. So is an acceptance of a later record that is finished."""
    scene = Scene()
    record = Seen(PARTITION, 6, b"00000041")
    scene.sent.sent(41, Message("T", b"00000041"))
    scene.seen.delivered(FIRST, [(record, LIMIT)], 1_000, 1_010, scene.run)
    scene.now = 1_010 + LOCK_MS + SLACK_MS
    scene.get(SECOND, 2, scene.now)
    scene.say(SECOND, ACCEPT, scene.now + 10, count=2)
    scene.now += 100
    for kind in (RENEW, ACCEPT):
        kinds = {6: RENEW, 7: kind}
        scene.seen.acknowledges(FIRST, PARTITION, kinds)
        scene.seen.acknowledged(
            FIRST, PARTITION, kinds, {6: LIMIT, 7: 1}, scene.now, scene.now + 10
        )


def test_who_has_lost_a_record_finishes_nothing() -> None:
    scene = Scene()
    scene.now = 4_200
    scene.get(SECOND, 2, 4_100)
    with pytest.raises(Violation, match="finished by first 1, after second 1 got it again"):
        scene.say(FIRST, ACCEPT, 4_200)


def test_it_may_have_got_it_again_in_an_answer_that_was_lost() -> None:
    scene = Scene()
    scene.get(SECOND, 2, 4_100)
    scene.seen.unseen.fetches(FIRST.name, FIRST.leader)
    scene.seen.unseen.fetched(FIRST.name, FIRST.leader, heard=False)
    scene.say(FIRST, ACCEPT, 8_000)


# -- counts ----------------------------------------------------------------------------------------


def test_the_count_rises() -> None:
    scene = Scene()
    with pytest.raises(Violation, match="for the 1th time, after first 1 for the 1th"):
        scene.get(SECOND, 1, 4_100)


def test_a_restart_forgets_a_delivery_that_had_not_ended() -> None:
    scene = Scene()
    scene.get(SECOND, 2, 4_100)
    scene.run = 2
    scene.get(FIRST, 2, 5_000)
    with pytest.raises(Violation, match="for the 1th time, after first 1 for the 2th"):
        scene.get(SECOND, 1, 9_000)


def test_counts_are_lost_with_power() -> None:
    scene = Scene(is_sure=False)
    scene.get(SECOND, 1, 4_100)


def test_the_limit_is_kept() -> None:
    with pytest.raises(Violation, match="for the 6th time"):
        Scene().get(SECOND, LIMIT + 1, 9_000)


def test_a_record_is_what_was_sent() -> None:
    with pytest.raises(Violation, match="message 43 was never sent"):
        Scene().get(SECOND, 2, 9_000, value=b"00000043")


# -- members and the end ---------------------------------------------------------------------------


def test_nobody_is_expelled_who_was_heard() -> None:
    seen = Scene().seen
    seen.heard(FIRST.name, "broker:9092", 1_000)
    seen.expelled(FIRST.name, "broker:9092", 1_000 + SESSION_MS)
    seen.heard(FIRST.name, "broker:9092", 1_000)
    seen.expelled(FIRST.name, "another:9092", 3_000)
    seen.heard(FIRST.name, "broker:9092", 1_000)
    with pytest.raises(Violation, match="first 1 is expelled, it was heard 2000 ms ago"):
        seen.expelled(FIRST.name, "broker:9092", 3_000)


def test_each_partition_has_a_member() -> None:
    seen = Scene().seen
    seen.assigned(FIRST.name, frozenset({PARTITION}))
    assert seen.unassigned({"T": 1}, [FIRST.name]) is None
    assert "nobody of the share group has" in str(seen.unassigned({"T": 2}, [FIRST.name]))
    assert "nobody of the share group has" in str(seen.unassigned({"T": 1}, [SECOND.name]))
    assert "which does not exist" in str(seen.unassigned({"U": 0}, [FIRST.name]))


def test_what_was_acknowledged_to_its_producer_is_delivered() -> None:
    scene = Scene()
    scene.say(FIRST, ACCEPT, 2_000)
    assert scene.seen.unfinished() is None
    scene.seen._witness.acknowledge(43, MessageQueue("T", "broker", 0), 8, 900)
    assert (
        scene.seen.unfinished()
    ) == "1 acknowledged messages did not reach the share group, e.g. 43"


def test_what_came_is_finished() -> None:
    scene = Scene()
    assert "has not finished" in str(scene.seen.unfinished())
    scene.say(FIRST, RELEASE, 2_000)
    assert "it came to first 1 (1)" in str(scene.seen.unfinished())
    scene.get(SECOND, 2, 3_000)
    scene.refuse(SECOND, None)
    assert scene.seen.unfinished() is None  # the acceptance may have arrived


def test_what_came_as_often_as_is_allowed_is_finished_when_its_lock_has_ended() -> None:
    scene = Scene()
    scene.get(SECOND, LIMIT, 4_100)
    scene.now = 4_200
    assert scene.seen.unfinished() is not None
    scene.now = 4_100 + LOCK_MS + SLACK_MS
    assert scene.seen.unfinished() is None


def test_answers_that_nobody_got_may_have_been_the_others() -> None:
    scene = Scene()
    scene.say(FIRST, RELEASE, 2_000)
    for heard in (True, False, False, False):
        scene.seen.unseen.fetches(FIRST.name, FIRST.leader)
        scene.seen.unseen.fetched(FIRST.name, FIRST.leader, heard=heard)
    assert scene.seen.unfinished() is not None
    scene.seen.unseen.fetches(SECOND.name, SECOND.leader)
    assert scene.seen.unfinished() is not None  # it waits for its answer
    scene.seen.is_alive = lambda name: name == FIRST.name
    assert scene.seen.unfinished() is None
