"""A pull consumer through the seam, against scripted nameservers and brokers."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import (
    START,
    Broker,
    Nameserver,
    Rig,
    inner_batch,
    pulled,
    queues,
    record,
    reply,
    rng,
)

from steelyard.config import ConsumerConfig
from steelyard.errors import BrokerError, ClosedError, ConfigError, RemotingError, RouteError
from steelyard.nodes.consumer.remoting.contract import QueuesChanged, Stop
from steelyard.nodes.consumer.remoting.puller import Balanced, PullerNode
from steelyard.nodes.consumer.remoting.questions import (
    CommitOffset,
    FetchQueues,
    MaxOffset,
    MinOffset,
    OffsetForTimestamp,
    Pull,
    PullResult,
    PullStatus,
    QueryConsumerOffset,
    SendBack,
)
from steelyard.nodes.seam import Handled
from steelyard.types import ExpressionType, MessageQueue, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import HeartbeatData
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

QUEUE = MessageQueue("T", "a", 0)


class Bench:
    """A pull consumer of group g, one nameserver, the brokers a and b with two queues of T each."""

    def __init__(self, *topics: str, **settings: object) -> None:
        self.a, self.b, self.ns = Broker("a", "a:1"), Broker("b", "b:1"), Nameserver()
        self.ns.add("T", self.a, self.b, queues=2)
        values = {
            "nameservers": ("ns:9876",),
            "group": "g",
            "client_id": "c1",
            "subscriptions": tuple(Subscription(topic) for topic in topics),
        } | settings
        config = ConsumerConfig(**values)  # type: ignore[arg-type]
        self.rig = Rig(PullerNode(config, rng()), self.ns, self.a, self.b).start()
        self.rig.advance(0)

    def ask(self, call: object) -> object:
        """The answer to a call, which must be there at once."""
        return self.rig.answers[self.rig.ask(call)]


def silent(command: Command) -> None:
    """No answer at all."""


# -- pulls -----------------------------------------------------------------------------------------


def test_a_pull_carries_its_subscription_and_brings_messages() -> None:
    bench = Bench()
    bench.a.fill("T", 0, 3, b"TAGS\x01x\x02")
    result = bench.ask(Pull(QUEUE, 1, "x || y", messages_max=16))
    assert isinstance(result, PullResult)
    assert [message.queue_offset for message in result.messages] == [1, 2]
    assert result == PullResult(PullStatus.FOUND, 3, 0, 3, result.messages)
    (pull,) = bench.rig.to(bench.a, 11)
    assert pull.ext == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "1",
        "maxMsgNums": "16",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "x || y",
        "subVersion": "0",
        "expressionType": "TAG",
        "bname": "a",
    }


def test_a_pull_by_a_condition_may_be_held() -> None:
    bench = Bench()
    call = bench.rig.ask(
        Pull(QUEUE, 0, "price > 10", ExpressionType.SQL92, hold_ms=20_000, messages_max=1)
    )
    (pull,) = bench.rig.to(bench.a, 11)
    assert {
        name: pull.ext[name] for name in ("sysFlag", "subscription", "subVersion", "expressionType")
    } == {
        "sysFlag": "6",
        "subscription": "price > 10",
        "subVersion": str(START),
        "expressionType": "SQL92",
    }
    assert call not in bench.rig.answers
    bench.rig.publish(bench.a, "T", 0, 2)
    result = bench.rig.answers[call]
    assert isinstance(result, PullResult)
    assert (result.status, result.next_begin_offset) == (PullStatus.FOUND, 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (19, PullStatus.NO_NEW_MSG),
        (20, PullStatus.NO_MATCHED_MSG),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_what_a_pull_comes_to_without_messages(code: int, status: PullStatus) -> None:
    bench = Bench()
    bench.a.script[11] = lambda command: pulled([], 50, code)
    assert bench.ask(Pull(QUEUE, 5)) == PullResult(status, 50, 0, 50)


def test_a_tag_with_the_hash_code_of_another_is_not_wanted() -> None:
    bench = Bench()
    both = [
        record("T", 0, 0, properties=b"TAGS\x01Aa\x02"),
        record("T", 0, 1, properties=b"TAGS\x01BB\x02"),
    ]
    bench.a.script[11] = lambda command: pulled(both, 2)
    result = bench.ask(Pull(QUEUE, 0, "BB"))
    assert isinstance(result, PullResult)
    assert [message.tags for message in result.messages] == ["BB"]
    bench.a.script[11] = lambda command: pulled(both[:1], 1)
    assert bench.ask(Pull(QUEUE, 0, "BB")) == PullResult(PullStatus.NO_MATCHED_MSG, 1, 0, 1)


def test_a_batch_that_is_stored_as_one_comes_as_its_messages() -> None:
    bench = Bench()
    bench.a.script[11] = lambda command: pulled([inner_batch("T", 0, 4, "x", "y", "x")], 7)
    result = bench.ask(Pull(QUEUE, 5, "x || y"))
    assert isinstance(result, PullResult)
    assert [(message.queue_offset, message.tags) for message in result.messages] == [
        (5, "y"),
        (6, "x"),
    ]


def test_a_refusal_is_the_callers() -> None:
    bench = Bench()
    bench.a.script[11] = lambda command: reply(16, "no permission")
    error = bench.ask(Pull(QUEUE, 0))
    assert isinstance(error, BrokerError)
    assert (error.code, error.remark, error.address) == (16, "no permission", "a:1")


def test_a_pull_that_is_not_answered_ends_by_itself() -> None:
    bench = Bench()
    bench.a.script[11] = silent
    first = bench.rig.ask(Pull(QUEUE, 0, hold_ms=20_000))
    second = bench.rig.ask(Pull(QUEUE, 0, timeout_ms=100))
    bench.rig.advance(100)
    assert isinstance(bench.rig.answers[second], RemotingError)
    bench.rig.advance(29_899)
    assert first not in bench.rig.answers
    bench.rig.advance(1)
    assert isinstance(bench.rig.answers[first], RemotingError)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Pull(QUEUE, -1), "offset is -1"),
        (Pull(QUEUE, 0, messages_max=0), "max_messages is 0"),
        (Pull(QUEUE, 0, hold_ms=-5), "hold_ms is -5"),
        (Pull(QUEUE, 0, "||"), "no tag"),
        (Pull(QUEUE, 0, " ", ExpressionType.SQL92), "condition is empty"),
        (CommitOffset(QUEUE, -1), "offset is -1"),
        (FetchQueues(""), "name is empty"),
        (Balanced("T"), "not registered"),
    ],
)
def test_calls_that_make_no_sense(call: object, text: str) -> None:
    bench = Bench()
    error = bench.ask(call)
    assert isinstance(error, ConfigError)
    assert text in str(error)
    assert not bench.rig.sent


# -- offsets and the rest --------------------------------------------------------------------------


def test_a_strategy_by_locks_is_refused() -> None:
    with pytest.raises(ConfigError, match="EVEN distributes queues by locks"):
        Bench("T", strategy="EVEN")


def test_offsets_of_a_queue_and_a_group() -> None:
    bench = Bench()
    bench.a.fill("T", 0, 7)
    assert bench.ask(QueryConsumerOffset(QUEUE)) is None
    assert bench.ask(CommitOffset(QUEUE, 4)) is None
    assert bench.ask(QueryConsumerOffset(QUEUE)) == 4
    assert bench.ask(MinOffset(QUEUE)) == 0
    assert bench.ask(MaxOffset(QUEUE)) == 7
    assert bench.ask(OffsetForTimestamp(QUEUE, START)) == 1
    (search,) = bench.rig.to(bench.a, 29)
    assert search.ext == {"topic": "T", "queueId": "0", "timestamp": str(START), "bname": "a"}


def test_a_group_whose_offset_is_less_than_zero_has_none() -> None:
    bench = Bench()
    bench.a.script[14] = lambda command: reply(offset=-1)
    assert bench.ask(QueryConsumerOffset(QUEUE)) is None


def test_a_message_goes_back_to_its_broker() -> None:
    bench = Bench(retry_max=3)
    (message,) = decode_records(record("T", 0, 8), "a")
    assert bench.ask(SendBack(message, delay_level=5)) is None
    (back,) = bench.rig.to(bench.a, 36)
    assert back.ext == {
        "offset": "8000",
        "group": "g",
        "delayLevel": "5",
        "originMsgId": message.message_id,
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "3",
    }


def test_queues_are_asked_for_anew_each_time() -> None:
    bench = Bench()
    assert bench.ask(FetchQueues("T")) == queues("T", "a", 0, 1) + queues("T", "b", 0, 1)
    bench.ns.add("T", bench.a, queues=3)
    assert bench.ask(FetchQueues("T")) == queues("T", "a", 0, 1, 2)
    assert isinstance(bench.ask(FetchQueues("Nothing")), RouteError)


def test_a_broker_that_the_route_does_not_name_is_looked_for_once() -> None:
    bench = Bench()
    assert bench.ask(MaxOffset(QUEUE)) == 0
    asked = bench.ns.count(105)
    error = bench.ask(MaxOffset(MessageQueue("T", "c", 0)))
    assert isinstance(error, RouteError)
    assert "broker" in str(error)
    assert bench.ns.count(105) == asked + 1


def test_calls_for_one_unknown_route_share_one_question() -> None:
    bench = Bench()
    bench.ns.up = False
    first = bench.ask(MaxOffset(QUEUE))
    assert isinstance(first, RemotingError)
    bench.ns.up = True
    bench.ns.script[105] = silent
    calls = [bench.rig.ask(MaxOffset(QUEUE)), bench.rig.ask(MinOffset(QUEUE))]
    (question,) = bench.rig.to(bench.ns, 105)
    bench.rig.answer(bench.ns, question, bench.ns.route(question))
    assert [bench.rig.answers[call] for call in calls] == [0, 0]


def test_a_broker_that_dies_ends_what_it_was_asked() -> None:
    bench = Bench()
    call = bench.rig.ask(Pull(QUEUE, 0, hold_ms=10_000))
    bench.rig.crash(bench.a)
    assert isinstance(bench.rig.answers[call], RemotingError)


# -- the group -------------------------------------------------------------------------------------


def test_brokers_are_told_of_a_client_that_pulls() -> None:
    bench = Bench("T")
    (heartbeat,) = bench.rig.to(bench.a, 34)
    (data,) = fastjson.read(HeartbeatData, heartbeat.body).consumer_data_set
    assert (data.group_name, data.consume_type, data.message_model) == (
        "g",
        "CONSUME_ACTIVELY",
        "CLUSTERING",
    )
    assert [item.topic for item in data.subscription_data_set] == ["T"]
    bench.rig.advance(30_000)
    assert bench.a.count(34) == bench.b.count(34) == 2


def test_without_topics_a_broker_gets_to_know_the_client_when_it_is_asked() -> None:
    bench = Bench()
    assert bench.a.codes() == bench.b.codes() == bench.ns.codes() == []
    bench.ask(MaxOffset(QUEUE))
    assert bench.a.codes() == [34, 30]


def test_the_share_follows_the_group() -> None:
    bench = Bench("T", queue_changes=True)
    every = queues("T", "a", 0, 1) + queues("T", "b", 0, 1)
    assert bench.ask(Balanced("T")) == every
    assert [hand.batch for hand in bench.rig.hands] == [QueuesChanged("T", every, every)]
    bench.rig.put(Handled(bench.rig.hands[0].ticket, None))
    for broker in (bench.a, bench.b):
        broker.members.append("c2")
    bench.rig.push(bench.a, Command(40, opaque=9, flag=2, ext={"consumerGroup": "g"}))
    bench.rig.advance(1_000)
    assert bench.ask(Balanced("T")) == every[:2]
    assert bench.rig.hands[-1].batch == QueuesChanged("T", every, every[:2])
    bench.rig.advance(60_000)
    assert len(bench.rig.hands) == 2


def test_a_share_is_told_only_once_it_is_known() -> None:
    bench = Bench("T", "Later")
    bench.ns.routes.clear()
    fresh = Bench("T")
    fresh.ns.routes.clear()
    assert fresh.ask(Balanced("T")) == queues("T", "a", 0, 1) + queues("T", "b", 0, 1)
    assert bench.ask(Balanced("Later")) == ()


def test_a_call_before_the_first_rebalance_waits_for_it() -> None:
    a, ns = Broker("a", "a:1"), Nameserver()
    ns.add("T", a, queues=1)
    ns.script[105] = silent
    config = ConsumerConfig(
        nameservers=("ns:9876",), group="g", client_id="c1", subscriptions=(Subscription("T"),)
    )
    rig = Rig(PullerNode(config, rng()), ns, a).start()
    call = rig.ask(Balanced("T"))
    assert call not in rig.answers
    ns.script[105] = ns.route
    rig.answer(ns, rig.to(ns, 105)[0], ns.route(rig.to(ns, 105)[0]))
    rig.advance(0)
    assert rig.answers[call] == (QUEUE,)


def test_a_broker_that_forgot_the_member_is_told_again() -> None:
    bench = Bench("T")
    bench.a.members.clear()
    bench.b.members.clear()
    bench.a.members.append("c2")
    bench.b.members.append("c2")
    bench.rig.advance(21_000)
    assert bench.a.members == ["c2", "c1"]


def test_requests_of_brokers_that_are_not_for_it() -> None:
    bench = Bench("T")
    asked = bench.a.count(38)
    link = bench.rig.link_to(bench.a)
    bench.rig.push(bench.a, Command(40, opaque=9, flag=2, ext={"consumerGroup": "other"}))
    bench.rig.push(bench.a, Command(40, opaque=9, flag=2))
    bench.rig.push(bench.a, Command(307, opaque=10))
    assert bench.a.count(38) == asked
    assert [tell.level for tell in bench.rig.tells if "without a group" in tell.text] == ["WARNING"]
    assert (bench.rig.links[link], bench.rig.sent[-1][1].code) == ("a:1", 3)


def test_a_stop_ends_what_is_open_and_says_good_bye() -> None:
    bench = Bench("T")
    call = bench.rig.ask(Pull(QUEUE, 0, hold_ms=10_000))
    (pull,) = bench.rig.to(bench.a, 11)
    stop = bench.rig.ask(Stop())
    assert isinstance(bench.rig.answers[call], ClosedError)
    assert bench.rig.answers[stop] is None
    assert bench.a.members == bench.b.members == []
    bench.rig.answer(bench.a, pull, pulled([], 0, 19))
    before = len(bench.rig.sent)
    bench.rig.advance(120_000)
    assert len(bench.rig.sent) == before
    assert isinstance(bench.ask(MaxOffset(QUEUE)), ClosedError)
