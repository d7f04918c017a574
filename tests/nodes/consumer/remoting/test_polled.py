"""A consumer that polls, through the seam: polls and what they commit, seeks, pauses, assigned queues."""

from __future__ import annotations

import gc

import pytest
from tests.nodes.consumer.remoting.conftest import (
    START,
    Broker,
    Nameserver,
    Rig,
    pulled,
    queues,
    reply,
    rng,
)

from steelyard.config import LitePullConfig
from steelyard.consume.process_queue import ProcessQueue
from steelyard.errors import BrokerError, ClosedError, ConfigError, RemotingError, RouteError
from steelyard.nodes.consumer.remoting.contract import (
    Assign,
    Assigned,
    Assignment,
    Bound,
    Commit,
    ConsumerState,
    Describe,
    GiveBack,
    PauseQueues,
    Poll,
    ResumeQueues,
    Revoked,
    Seek,
    Stop,
)
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.questions import (
    FetchQueues,
    MaxOffset,
    OffsetForTimestamp,
    QueryConsumerOffset,
)
from steelyard.nodes.seam import Handled
from steelyard.types import ConsumeFrom, ExpressionType, MessageQueue, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ConsumerStatusBody, HeartbeatData, ResetOffsetBody
from steelyard.wire.remoting.command import Command

Q0, Q1 = queues("T", "a", 0, 1)


class Bench:
    """A member of group g that polls T: two queues on broker a. It starts at the first message."""

    def __init__(self, *, subscribe: bool = True, start: bool = True, **settings: object) -> None:
        self.a, self.ns = Broker("a", "a:1"), Nameserver()
        self.ns.add("T", self.a, queues=2)
        values = {
            "nameservers": ("ns:9876",),
            "group": "g",
            "client_id": "c1",
            "subscriptions": (Subscription("T"),) if subscribe else (),
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "clean_handover": False,
        } | settings
        config = LitePullConfig(**values)  # type: ignore[arg-type]
        self.rig = Rig(ConsumerNode(config, rng()), self.ns, self.a)
        if start:
            self.rig.start()
            self.rig.advance(0)

    def ask(self, call: object) -> object:
        """The answer to a call, which must be there at once."""
        return self.rig.answers[self.rig.ask(call)]

    def poll(self, messages_max: int = 100) -> list[tuple[int, int]]:
        """Queue and offset of each message that is here."""
        return seen(self.ask(Poll(messages_max, 0)))

    def committed(self, number: int = 0) -> int | None:
        """What the broker has."""
        return self.a.offsets.get(("T", number))

    def state(self) -> ConsumerState:
        state = self.ask(Describe())
        assert isinstance(state, ConsumerState)
        return state

    def pulls(self, number: int = 0) -> list[int]:
        """From which offsets a queue was pulled."""
        found = [c for c in self.rig.to(self.a, 11) if c.ext["queueId"] == str(number)]
        return [int(command.ext["queueOffset"]) for command in found]

    def join(self, *members: str) -> None:
        """The group is these from now on, and everybody is told."""
        self.a.members[:] = members
        notification = Command(40, opaque=9, flag=2, ext={"consumerGroup": "g"})
        self.rig.push(self.a, notification)
        self.rig.advance(1_000)


def seen(answer: object) -> list[tuple[int, int]]:
    assert isinstance(answer, tuple), answer
    return [(message.queue_id, message.queue_offset) for message in answer]


def error(answer: object, kind: type[Exception] = ConfigError) -> str:
    assert isinstance(answer, kind), answer
    return str(answer)


# -- polls -----------------------------------------------------------------------------------------


def test_brokers_are_told_of_a_consumer_that_pulls_without_a_retry_topic() -> None:
    bench = Bench()
    (heartbeat,) = bench.rig.to(bench.a, 34)
    (data,) = fastjson.read(HeartbeatData, heartbeat.body).consumer_data_set
    assert data.consume_type == "CONSUME_ACTIVELY"
    assert [item.topic for item in data.subscription_data_set] == ["T"]
    assert {command.ext["topic"] for command in bench.rig.to(bench.ns, 105)} == {"T"}


def test_a_pull_carries_its_subscription_and_no_commit() -> None:
    bench = Bench(subscriptions=(Subscription("T", "x || y"),))
    bench.a.fill("T", 0, 1)
    (first, *_) = bench.rig.to(bench.a, 11)
    version = first.ext["subVersion"]
    assert first.ext == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "10",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "20000",
        "subscription": "x || y",
        "subVersion": version,
        "expressionType": "TAG",
        "bname": "a",
    }


def test_a_poll_returns_messages_of_all_queues_in_turn() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    bench.rig.publish(bench.a, "T", 1, 2)
    assert bench.poll(2) == [(0, 0), (0, 1)]
    bench.rig.publish(bench.a, "T", 0, 1)
    assert bench.poll(2) == [(1, 0), (1, 1)]
    assert bench.poll(5) == [(0, 2), (0, 3)]
    assert bench.poll() == []


def test_a_poll_waits_for_the_first_messages() -> None:
    bench = Bench()
    call = bench.rig.ask(Poll(10, 5_000))
    bench.rig.advance(4_999)
    assert call not in bench.rig.answers
    bench.rig.publish(bench.a, "T", 1, 2)
    assert seen(bench.rig.answers[call]) == [(1, 0), (1, 1)]
    later = bench.rig.ask(Poll(10, 5_000))
    bench.rig.advance(5_000)
    assert seen(bench.rig.answers[later]) == []


def test_polls_that_cannot_be() -> None:
    bench = Bench()
    first = bench.rig.ask(Poll(10, 5_000))
    assert "one thread or task polls at a time" in error(bench.ask(Poll(10, 0)))
    assert "0 messages" in error(bench.ask(Poll(0, 100)))
    assert "-1 ms" in error(bench.ask(Poll(1, -1)))
    assert first not in bench.rig.answers


def test_pulling_goes_on_up_to_the_limits() -> None:
    """Limits are looked at before a pull: with more than two messages here nothing is pulled."""
    bench = Bench(queue_messages_max=2, pull_batch=2)
    bench.rig.publish(bench.a, "T", 0, 20)
    assert bench.pulls() == [0, 2]
    assert bench.poll(1) == [(0, 0)]
    bench.rig.advance(50)
    assert bench.pulls() == [0, 2]
    assert bench.poll(1) == [(0, 1)]
    bench.rig.advance(50)
    assert bench.pulls() == [0, 2, 4]


def test_what_is_in_the_client_is_shared_by_its_queues() -> None:
    bench = Bench(messages_max=6, pull_batch=2)
    bench.rig.publish(bench.a, "T", 0, 20)
    bench.rig.publish(bench.a, "T", 1, 20)
    assert bench.pulls(0) == bench.pulls(1) == [0, 2]
    assert len(bench.poll()) == 8


# -- commits ---------------------------------------------------------------------------------------


def test_a_poll_is_consumed_when_the_next_one_begins() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 4)
    bench.poll(2)
    bench.rig.advance(5_000)
    assert bench.committed() == 0
    bench.poll(1)
    bench.rig.advance(5_000)
    assert bench.committed() == 2
    bench.poll(1)
    bench.poll(1)
    bench.rig.advance(5_000)
    assert bench.committed() == 4


def test_a_commit_ends_what_was_polled_and_is_answered_by_the_broker() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 4)
    bench.rig.publish(bench.a, "T", 1, 4)
    bench.poll(6)
    assert bench.ask(Commit()) is None
    assert (bench.committed(0), bench.committed(1)) == (4, 2)
    before = len(bench.rig.to(bench.a, 15))
    assert bench.ask(Commit()) is None
    bench.rig.advance(5_000)
    assert len(bench.rig.to(bench.a, 15)) == before


def test_without_auto_commit_only_the_application_commits() -> None:
    bench = Bench(auto_commit=False, queue_messages_max=3, pull_batch=2)
    bench.rig.publish(bench.a, "T", 0, 9)
    assert [bench.poll(3), bench.poll(3)] == [[(0, 0), (0, 1), (0, 2)], [(0, 3)]]
    bench.rig.advance(10_000)
    assert bench.poll(4) == [(0, 4), (0, 5), (0, 6), (0, 7)]
    bench.rig.advance(10_000)
    assert bench.rig.to(bench.a, 15) == []
    assert bench.ask(Commit()) is None
    assert bench.committed() == 8
    bench.rig.advance(10_000)
    bench.poll()
    bench.rig.advance(10_000)
    assert bench.committed() == 8


def test_an_offset_of_the_applications_own_stays_until_it_says_more() -> None:
    bench = Bench(auto_commit=False)
    bench.rig.publish(bench.a, "T", 0, 9)
    bench.poll(6)
    assert bench.ask(Commit({Q0: 4})) is None
    bench.rig.advance(5_000)
    assert bench.committed() == 4
    bench.poll(2)
    assert bench.state().offsets[Q0] == 4
    assert bench.ask(Commit({Q0: 2})) is None
    assert bench.committed() == 2


def test_with_auto_commit_an_offset_of_its_own_lasts_until_the_next_poll() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 9)
    bench.poll(6)
    assert bench.ask(Commit({Q0: 4})) is None
    bench.rig.advance(5_000)
    assert bench.committed() == 4
    bench.poll(1)
    bench.rig.advance(5_000)
    assert bench.committed() == 6


def test_a_commit_that_a_broker_refuses_or_does_not_answer() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    bench.poll()
    take = bench.a.script[15]
    bench.a.script[15] = lambda command: reply(1, "no")
    assert "code 1 from a:1: no" in error(bench.ask(Commit()), BrokerError)
    bench.a.script[15] = lambda command: None
    call = bench.rig.ask(Commit())
    bench.rig.advance(3_000)
    error(bench.rig.answers[call], RemotingError)
    bench.a.script[15] = take
    bench.rig.advance(5_000)
    assert bench.committed() == 3  # the commit interval makes it good


def test_a_commit_is_not_believed_before_the_broker_has_answered() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    take, bench.a.script[15] = bench.a.script[15], lambda command: None
    bench.poll()
    bench.poll()
    bench.rig.advance(5_000)
    assert bench.rig.to(bench.a, 15), "those of the commit interval, one-way, which are lost"
    call = bench.rig.ask(Commit())
    bench.rig.advance(6_000)
    error(bench.rig.answers[call], RemotingError)
    bench.a.script[15] = take
    assert bench.ask(Commit()) is None
    assert bench.committed() == 3
    commits = len(bench.rig.to(bench.a, 15))
    assert bench.ask(Commit()) is None
    assert len(bench.rig.to(bench.a, 15)) == commits, "that was answered"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Commit({MessageQueue("T", "a", 9): 3}), "is not held"),
        (Commit({Q0: -1}), "offset of .* is -1"),
        (PauseQueues((Q0, MessageQueue("X", "a", 0))), "is not held"),
        (ResumeQueues((MessageQueue("X", "a", 0),)), "is not held"),
        (Seek(MessageQueue("X", "a", 0), 0), "is not held"),
        (Seek(Q0, 4), "no offset 4; it has 0 to 3"),
        (Seek(Q0, -1), "no offset -1"),
        (Assign((Q0,)), "either subscribe or assign"),
        (FetchQueues(""), "name is empty"),
    ],
)
def test_wrong_calls(call: object, text: str) -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    answer = bench.ask(call)
    with pytest.raises(ConfigError, match=text):
        raise answer if isinstance(answer, Exception) else AssertionError(answer)


# -- polls that nobody waits for any more ----------------------------------------------------------


def test_a_poll_given_up_ends() -> None:
    bench = Bench()
    call = bench.rig.ask(Poll(10, 60_000, number=1))
    assert bench.ask(GiveBack(2)) is None
    assert call not in bench.rig.answers
    assert bench.ask(GiveBack(1)) is None
    assert bench.rig.answers[call] == ()
    bench.rig.publish(bench.a, "T", 0, 1)
    assert bench.poll() == [(0, 0)]


def test_messages_that_nobody_saw_are_returned_again() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 6)
    bench.rig.publish(bench.a, "T", 1, 1)
    assert bench.poll(2) == [(0, 0), (0, 1)]
    assert len(seen(bench.ask(Poll(5, 0, number=7)))) == 5
    assert bench.ask(GiveBack(6)) is None
    assert bench.ask(GiveBack(7)) is None
    assert bench.ask(GiveBack(7)) is None
    bench.rig.advance(5_000)
    assert bench.committed() == 2
    assert sorted(bench.poll()) == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 0)]
    bench.poll()
    bench.rig.advance(5_000)
    assert (bench.committed(0), bench.committed(1)) == (6, 1)


def test_messages_that_nobody_saw_go_with_a_queue_that_is_given_up() -> None:
    bench = Bench(clean_handover=True)
    bench.rig.publish(bench.a, "T", 1, 4)
    assert bench.poll(1) == [(1, 0)]
    bench.ask(Poll(2, 0, number=1))
    bench.join("c1", "c2")
    bench.ask(GiveBack(1))
    bench.rig.advance(100)
    assert bench.committed(1) == 1
    assert bench.state().held == (Q0,)


def test_messages_that_nobody_saw_are_not_committed() -> None:
    bench = Bench(auto_commit=False)
    bench.rig.publish(bench.a, "T", 0, 6)
    bench.poll(2)
    bench.ask(Poll(2, 0, number=1))
    bench.ask(GiveBack(1))
    bench.ask(Commit())
    assert bench.committed() == 2
    assert bench.poll(1) == [(0, 2)]


# -- seeks -----------------------------------------------------------------------------------------


def test_a_seek_leaves_what_is_here_and_goes_on_elsewhere() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 9)
    assert bench.poll(2) == [(0, 0), (0, 1)]
    assert bench.ask(Seek(Q0, 6)) is None
    assert bench.poll() == [(0, 6), (0, 7), (0, 8)]
    assert bench.ask(Seek(Q0, Bound.BEGIN)) is None
    assert bench.poll(1) == [(0, 0)]
    assert bench.ask(Seek(Q0, Bound.END)) is None
    assert bench.poll() == []
    bench.rig.publish(bench.a, "T", 0, 1)
    assert bench.poll() == [(0, 9)]


def kept_queues() -> int:
    """How many queues with prefetched messages are in memory."""
    gc.collect()
    return sum(isinstance(each, ProcessQueue) for each in gc.get_objects())


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_was_prefetched_before_a_seek_is_dropped(auto_commit: bool) -> None:
    bench = Bench(auto_commit=auto_commit)
    bench.rig.publish(bench.a, "T", 0, 9)
    before = kept_queues()
    for _ in range(10):
        assert bench.poll(1) == [(0, 0)]
        assert bench.ask(Seek(Q0, Bound.BEGIN)) is None
    assert kept_queues() <= before + 1, "the last one, in case that its poll is given back"


def test_what_was_prefetched_of_a_broker_that_comes_and_goes_is_dropped() -> None:
    bench = Bench(auto_commit=False)
    bench.a.fill("T", 0, 9)
    b = Broker("b", "b:1")
    bench.rig.peers[b.address] = b
    numbers = []
    for _ in range(5):
        bench.ns.add("T", bench.a, queues=2)
        bench.rig.advance(60_000)
        assert bench.poll(1) == [(0, 0)]
        bench.ns.add("T", b, queues=2)
        bench.rig.advance(60_000)
        bench.poll(1)
        numbers.append(kept_queues())
    assert numbers == [numbers[0]] * 5


def test_a_pull_from_before_a_seek_counts_for_nothing() -> None:
    bench = Bench()
    (old,) = [c for c in bench.rig.to(bench.a, 11) if c.ext["queueId"] == "0"]
    bench.a.fill("T", 0, 5)
    assert bench.ask(Seek(Q0, 3)) is None
    assert bench.poll(1) == [(0, 3)]
    bench.rig.answer(bench.a, old, pulled(bench.a.logs["T", 0][:2], 2))
    assert bench.poll() == [(0, 4)]


def test_a_seek_is_committed_like_a_poll() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 9)
    bench.ask(Seek(Q0, 6))
    bench.rig.advance(5_000)
    assert bench.committed() == 6
    manual = Bench(auto_commit=False)
    manual.rig.publish(manual.a, "T", 0, 9)
    manual.poll(4)
    manual.ask(Commit())
    manual.ask(Seek(Q0, 6))
    manual.rig.advance(5_000)
    assert manual.committed() == 4
    manual.ask(Commit())
    assert manual.committed() == 6


def test_what_is_read_again_after_a_seek_is_done_at_the_commit() -> None:
    bench = Bench(auto_commit=False, clean_handover=True)
    bench.rig.publish(bench.a, "T", 1, 6)
    bench.poll()
    bench.ask(Commit())
    bench.ask(Seek(Q1, 2))
    assert len(bench.poll()) == 4
    bench.ask(Commit())
    bench.join("c1", "c2")
    assert bench.state().held == (Q0,)


def test_a_seek_whose_broker_does_not_tell_the_ends_fails() -> None:
    bench = Bench()
    bench.a.script[30] = lambda command: reply(1, "broken")
    assert "broken" in error(bench.ask(Seek(Q0, 0)), BrokerError)
    bench.a.script[30] = lambda command: reply(offset=-1)
    assert "-1" in str(bench.ask(Seek(Q0, 0)))
    bench.a.script[30] = lambda command: None
    call = bench.rig.ask(Seek(Q0, 0))
    bench.rig.advance(3_000)
    error(bench.rig.answers[call], RemotingError)


def test_a_seek_of_a_queue_that_goes_away_meanwhile() -> None:
    bench = Bench()
    bench.a.script[30] = lambda command: None
    call = bench.rig.ask(Seek(Q1, 0))
    (question,) = bench.rig.to(bench.a, 30)
    bench.join("c1", "c2")
    bench.rig.answer(bench.a, question, reply(offset=0))
    assert "is not held" in error(bench.rig.answers[call])


# -- pauses ----------------------------------------------------------------------------------------


def test_a_paused_queue_is_neither_pulled_nor_returned() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    bench.rig.publish(bench.a, "T", 1, 1)
    assert bench.ask(PauseQueues((Q0,))) is None
    assert bench.poll() == [(1, 0)]
    before = len(bench.pulls(0))
    bench.rig.advance(300_000)  # longer than pull_idle_max_ms: it is not taken for dead
    assert len(bench.pulls(0)) == before
    assert bench.state().held == (Q0, Q1)
    assert bench.ask(ResumeQueues((Q0,))) is None
    assert bench.poll() == [(0, 0), (0, 1), (0, 2)]
    assert len(bench.pulls(0)) == before + 1


def test_resuming_answers_a_poll_that_waits() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 1)
    bench.ask(PauseQueues((Q0, Q1)))
    call = bench.rig.ask(Poll(1, 60_000))
    bench.ask(ResumeQueues((Q0,)))
    assert seen(bench.rig.answers[call]) == [(0, 0)]


# -- a share of the group --------------------------------------------------------------------------


def test_a_queue_given_up_is_done_when_its_polled_messages_are_consumed() -> None:
    bench = Bench(clean_handover=True)
    bench.rig.publish(bench.a, "T", 1, 3)
    assert bench.poll(2) == [(1, 0), (1, 1)]
    bench.join("c1", "c2")
    assert bench.ask(Assignment()) == (Q0,)
    assert bench.committed(1) is None
    assert bench.rig.to(bench.a, 42) == []
    assert bench.poll() == []
    bench.rig.advance(100)
    assert bench.committed(1) == 2
    assert [command.code for command in bench.rig.to(bench.a, 15, 42)] == [15, 42]


def test_the_wait_for_the_application_is_bounded() -> None:
    bench = Bench(clean_handover=True)
    bench.rig.publish(bench.a, "T", 1, 3)
    bench.poll(2)
    bench.join("c1", "c2")
    assert bench.ask(Assignment()) == (Q0,)
    bench.rig.advance(5_000)
    assert bench.committed(1) == 0
    assert bench.state().held == (Q0,)
    bench.poll()
    bench.rig.advance(60_000)
    assert bench.committed(1) == 0  # consumed too late: another member has it


def test_without_auto_commit_it_waits_for_the_commit() -> None:
    bench = Bench(clean_handover=True, auto_commit=False)
    bench.rig.publish(bench.a, "T", 1, 3)
    bench.poll(2)
    bench.join("c1", "c2")
    bench.poll()
    bench.rig.advance(1_000)
    assert bench.state().held == (Q0, Q1)
    assert bench.ask(Commit()) is None
    bench.rig.advance(100)
    assert bench.committed(1) == 2
    assert bench.state().held == (Q0,)


def test_with_hooks_the_application_commits_when_it_is_told() -> None:
    bench = Bench(clean_handover=True, auto_commit=False, hooks=True)
    bench.rig.advance(100)
    assert [hand.batch for hand in bench.rig.hands] == [Assigned((Q0, Q1))]
    bench.rig.put(Handled(bench.rig.hands.pop().ticket, None))
    bench.rig.publish(bench.a, "T", 1, 3)
    bench.poll(2)
    bench.join("c1", "c2")
    assert bench.rig.hands == []
    bench.poll()
    (hand,) = bench.rig.hands
    assert hand.batch == Revoked((Q1,))
    assert bench.ask(Commit({Q1: 2})) is None
    bench.rig.put(Handled(hand.ticket, None))
    bench.rig.advance(100)
    assert bench.committed(1) == 2
    assert bench.state().held == (Q0,)


def test_when_assigned_the_application_may_seek_before_anything_is_pulled() -> None:
    bench = Bench(hooks=True)
    bench.a.fill("T", 0, 5)
    bench.rig.advance(100)
    (hand,) = bench.rig.hands
    assert bench.pulls() == []
    assert bench.ask(Seek(Q0, 4)) is None
    bench.rig.put(Handled(hand.ticket, None))
    assert bench.poll() == [(0, 4)]
    assert bench.pulls(1) == [0]


def test_a_third_member_loses_nothing() -> None:
    """apache/rocketmq#2732: a pull under way when its queue goes away must not move the offset of the group.

    1. queue 1 is read up to 2, a pull from there is at the broker; 2. another member gets the queue; 3. the
    pull is answered; 4. polls and commit intervals go by; 5. the queue comes back: it starts where it was left.
    """
    bench = Bench()
    bench.rig.publish(bench.a, "T", 1, 2)
    assert bench.poll() == [(1, 0), (1, 1)]
    bench.poll()
    (held,) = [command for command in bench.a.held if command.ext["queueId"] == "1"]
    bench.join("c1", "c2")
    bench.a.fill("T", 1, 3)
    bench.a.held.remove(held)
    bench.rig.answer(bench.a, held, pulled(bench.a.logs["T", 1][2:], 5))
    assert bench.poll() == []
    bench.rig.advance(30_000)
    assert bench.ask(Commit()) is None
    assert bench.committed(1) == 2
    assert "is not held" in error(bench.ask(Commit({Q1: 5})))
    bench.join("c1")
    assert bench.poll() == [(1, 2), (1, 3), (1, 4)]


def test_messages_not_polled_yet_go_with_their_queue() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 1, 5)
    assert bench.poll(2) == [(1, 0), (1, 1)]
    bench.poll(1)
    bench.join("c1", "c2")
    assert bench.poll() == []
    assert bench.committed(1) == 2
    bench.join("c1")
    assert bench.poll() == [(1, 2), (1, 3), (1, 4)]


def test_an_offset_of_minus_one_is_never_pulled() -> None:
    """apache/rocketmq#10176: pulled from -1, a queue began at its first message again."""
    bench = Bench(start=False)
    bench.a.fill("T", 0, 5)
    bench.a.script[14] = lambda command: reply(offset=-1)
    bench.rig.start()
    bench.rig.advance(2_500)
    assert bench.pulls() == []
    bench.a.script[14] = lambda command: reply(offset=4)
    bench.rig.advance(1_000)
    assert bench.pulls() == [4, 5]


@pytest.mark.parametrize("code", [19, 20])
def test_an_answer_without_messages_moves_on_and_is_committed(code: int) -> None:
    bench = Bench()
    (pull,) = [command for command in bench.a.held if command.ext["queueId"] == "0"]
    bench.a.held.remove(pull)
    bench.rig.answer(bench.a, pull, pulled([], 7, code))
    bench.rig.advance(5_000)
    assert bench.committed() == 7


def test_a_queue_whose_begin_moved_keeps_what_waits() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 2)
    (pull,) = [command for command in bench.a.held if command.ext["queueId"] == "0"]
    bench.a.held.remove(pull)
    bench.rig.answer(bench.a, pull, pulled([], 50, 21))
    assert bench.pulls()[-1] == 50
    assert bench.poll() == [(0, 0), (0, 1)]
    assert [tell.level for tell in bench.rig.tells if "begins at offset 50" in tell.text] == [
        "WARNING"
    ]


def test_a_queue_that_lost_its_end_is_read_anew() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 9)
    bench.poll()
    (pull,) = [command for command in bench.a.held if command.ext["queueId"] == "0"]
    bench.a.held.remove(pull)
    del bench.a.logs["T", 0][4:]
    bench.rig.answer(bench.a, pull, pulled([], 4, 21))
    assert bench.committed() == 4
    bench.rig.publish(bench.a, "T", 0, 1)
    assert bench.poll() == [(0, 4)]


# -- assigned queues -------------------------------------------------------------------------------


def test_assigned_queues_are_held_without_a_group() -> None:
    bench = Bench(subscribe=False, clean_handover=True)
    bench.a.fill("T", 1, 3)
    assert bench.ask(Assignment()) == ()
    assert bench.ask(Assign((Q1,))) is None
    assert bench.ask(Assignment()) == (Q1,)
    assert bench.poll(2) == [(1, 0), (1, 1)]
    assert bench.ask(Commit()) is None
    assert bench.committed(1) == 2
    assert bench.ask(Assign((Q0,))) is None
    bench.poll()
    bench.rig.advance(0)
    assert bench.ask(Assignment()) == (Q0,)
    bench.rig.push(bench.a, Command(40, opaque=9, flag=2, ext={"consumerGroup": "g"}))
    bench.rig.advance(60_000)
    assert bench.ask(Assignment()) == (Q0,)
    assert bench.rig.to(bench.a, 38, 41, 42) == []
    bench.ask(Assign((Q1,)))
    assert bench.poll() == [(1, 2)]


def test_a_queue_can_be_sought_as_soon_as_it_is_assigned() -> None:
    bench = Bench(subscribe=False)
    bench.a.fill("T", 0, 5)
    bench.a.script[14] = lambda command: None
    bench.ns.script[105] = lambda command: None
    call = bench.rig.ask(Assign((Q0,)))
    assert call not in bench.rig.answers
    (question,) = bench.rig.to(bench.ns, 105)
    bench.rig.answer(bench.ns, question, bench.ns.route(question))
    assert bench.rig.answers[call] is None
    assert bench.pulls() == []
    assert bench.ask(Seek(Q0, 3)) is None
    assert bench.poll() == [(0, 3), (0, 4)]


def test_a_stop_ends_an_assignment_that_waits() -> None:
    bench = Bench(subscribe=False)
    bench.ns.script[105] = lambda command: None
    call = bench.rig.ask(Assign((Q0,)))
    bench.rig.ask(Stop())
    error(bench.rig.answers[call], ClosedError)


def test_assigned_queues_wait_for_the_route_of_their_topic() -> None:
    bench = Bench(subscribe=False, start=False)
    route = bench.ns.routes.pop("T")
    bench.rig.start()
    bench.ask(Assign((Q0,)))
    assert bench.ask(Assignment()) == ()
    bench.ns.routes["T"] = route
    bench.rig.advance(30_000)
    assert bench.ask(Assignment()) == (Q0,)
    assert bench.ask(Seek(Q0, Bound.END)) is None


def test_an_expression_for_assigned_queues() -> None:
    bench = Bench(subscribe=False)
    bench.ask(Assign((Q0,), "price > 3", ExpressionType.SQL92))
    (pull,) = bench.rig.to(bench.a, 11)
    assert {name: pull.ext[name] for name in ("subscription", "expressionType", "subVersion")} == {
        "subscription": "price > 3",
        "expressionType": "SQL92",
        "subVersion": str(START),
    }
    assert "condition is empty" in error(bench.ask(Assign((Q0,), "", ExpressionType.SQL92)))


# -- the rest --------------------------------------------------------------------------------------


def test_what_brokers_know() -> None:
    bench = Bench()
    bench.rig.publish(bench.a, "T", 0, 3)
    assert bench.ask(QueryConsumerOffset(Q0)) is None
    assert bench.ask(MaxOffset(Q0)) == 3
    assert bench.ask(OffsetForTimestamp(Q0, START)) == 1
    assert bench.ask(FetchQueues("T")) == (Q0, Q1)
    error(bench.ask(FetchQueues("Nothing")), RouteError)


def test_what_operators_are_told() -> None:
    """307, 221 and 309: the consumer polls, is as far as it committed, and has no listener."""
    bench = Bench(auto_commit=False)
    bench.rig.publish(bench.a, "T", 0, 3)
    bench.poll(2)
    bench.ask(Commit({Q0: 1}))
    link = {"consumerGroup": "g", "clientId": "c1"}
    requests = [
        Command(307, opaque=1, ext=link),
        Command(221, opaque=2, ext={"topic": "T", "group": "g"}),
        Command(309, opaque=3, ext=link | {"msgId": "x"}, body=bench.a.logs["T", 0][0]),
    ]
    for request in requests:
        bench.rig.push(bench.a, request)
    info, status, directly = (command for _, command in bench.rig.sent[-3:])
    assert b'"PROP_CONSUME_TYPE":"CONSUME_ACTIVELY"' in info.body
    assert b'"commitOffset":1' in info.body
    assert fastjson.read(ConsumerStatusBody, status.body).message_queue_table == {Q0: 1}
    assert (directly.code, directly.remark) == (1, "consumer group g polls: it has no listener")


def test_a_reset_by_an_operator_is_followed_and_committed() -> None:
    for auto_commit in (True, False):
        bench = Bench(auto_commit=auto_commit)
        bench.rig.publish(bench.a, "T", 0, 9)
        bench.poll(4)
        body = fastjson.write(ResetOffsetBody({Q0: 7}))
        ext = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
        bench.rig.push(bench.a, Command(220, opaque=5, flag=2, ext=ext, body=body))
        assert bench.committed() == 7
        assert bench.poll() == [(0, 7), (0, 8)]


def test_a_stop_does_not_consume_the_last_poll_and_waits_for_nobody() -> None:
    bench = Bench(clean_handover=True)
    bench.rig.publish(bench.a, "T", 0, 4)
    bench.poll(2)
    bench.poll(1)
    stop = bench.rig.ask(Stop())
    bench.rig.advance(100)
    assert bench.rig.answers[stop] is None
    assert bench.committed() == 2
    assert bench.a.members == []
    error(bench.ask(Poll(1, 0)), ClosedError)


def test_a_stop_ends_a_poll_that_waits() -> None:
    bench = Bench()
    poll = bench.rig.ask(Poll(1, 60_000))
    bench.rig.ask(Stop())
    error(bench.rig.answers[poll], ClosedError)
