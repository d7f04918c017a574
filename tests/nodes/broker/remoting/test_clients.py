"""Heartbeats, membership and notifications, locks, relays."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import BrokerConfig
from steelyard.groups.flapping import FLAPS_MIN
from steelyard.groups.remoting.flapping import name_of
from steelyard.ledger.events import MemberJoined
from steelyard.nodes.broker.remoting import clients
from steelyard.nodes.seam import Closed
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    ConsumerListBody,
    LockBatchBody,
    LockBatchResponseBody,
    ProducerInfo,
    ProducerTable,
    SubscriptionGroupConfig,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

HEARTBEAT = RequestCode.HEART_BEAT
RETRY = f"%RETRY%{GROUP}"


def members(rig: Rig, link: int, group: str = GROUP) -> tuple[str, ...]:
    answer = rig.ask(link, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if answer.code != ResponseCode.SUCCESS:
        assert answer.remark == f"no consumer for this group, {group}"
        return ()
    return fastjson.read(ConsumerListBody, answer.body).consumer_id_list


# -- membership and notifications --------------------------------------------------------------------


def test_every_member_hears_of_a_newcomer_and_so_does_he(rig: Rig) -> None:
    a, b = rig.connect(), rig.connect()
    assert members(rig, a) == ()
    rig.beat(a, "c-a", TOPIC)
    assert rig.notified() == [(a, GROUP)]
    rig.beat(b, "c-b", TOPIC)
    assert rig.notified() == [(a, GROUP), (b, GROUP)]
    rig.beat(b, "c-b", TOPIC)
    assert rig.notified() == []
    assert members(rig, b) == ("c-a", "c-b")


def test_those_that_are_left_hear_of_a_good_bye_and_of_a_broken_connection(rig: Rig) -> None:
    a, b, c = rig.connect(), rig.connect(), rig.connect()
    for link, client in ((a, "c-a"), (b, "c-b"), (c, "c-c")):
        rig.beat(link, client, TOPIC)
    rig.notified()
    rig.ask(b, RequestCode.UNREGISTER_CLIENT, {"clientID": "c-b", "consumerGroup": GROUP})
    assert rig.notified() == [(a, GROUP), (c, GROUP)]
    rig.event(Closed(a, "gone"))
    assert rig.notified() == [(c, GROUP)]
    rig.event(Closed(b, "gone"))
    assert rig.notified() == []
    assert members(rig, c) == ("c-c",)


def test_a_silent_client_is_hung_up_and_the_others_hear_of_it() -> None:
    rig = Rig(BrokerConfig(client_expiry_ms=30_000, client_scan_interval_ms=10_000))
    a, b = rig.connect(), rig.connect()
    rig.beat(a, "c-a", TOPIC)
    rig.beat(b, "c-b", TOPIC, producer="p")
    for _ in range(3):
        rig.advance(10_000)
        rig.beat(a, "c-a", TOPIC)
    rig.notified()
    rig.advance(10_000)
    assert rig.hung == [b]
    assert rig.notified() == [(a, GROUP)]
    assert members(rig, a) == ("c-a",)


def test_topics_that_change_are_news_expressions_are_not(rig: Rig) -> None:
    link = rig.connect()
    rig.beat(link, "c", TOPIC)
    rig.notified()
    rig.beat(link, "c", TOPIC, expression="red", version=2)
    assert rig.notified() == []
    rig.beat(link, "c", TOPIC, "TopicB", version=3)
    assert rig.notified() == [(link, GROUP)]


def test_a_group_may_ask_not_to_be_notified(rig: Rig) -> None:
    link = rig.connect()
    quiet = SubscriptionGroupConfig(GROUP, notify_consumer_ids_changed_enable=False)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=quiet)
    rig.beat(link, "c", TOPIC)
    assert rig.notified() == []


def test_broadcasters_are_not_notified(rig: Rig) -> None:
    link = rig.connect()
    rig.beat(link, "c", TOPIC, model="BROADCASTING")
    assert rig.notified() == []


def test_a_heartbeat_makes_the_retry_topic_as_wide_as_the_group_wants(rig: Rig) -> None:
    link = rig.connect()
    wide = SubscriptionGroupConfig("wide", retry_queue_nums=3)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=wide)
    rig.beat(link, "c", TOPIC)
    rig.beat(link, "c", TOPIC, group="wide")
    for topic, queues in ((RETRY, 1), ("%RETRY%wide", 3)):
        stats = rig.ask(link, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        assert stats.body.count(b"queueId") == queues


def test_a_client_that_came_back_counts_once(rig: Rig) -> None:
    old, new = rig.connect(), rig.connect()
    rig.beat(old, "c", TOPIC)
    rig.advance(1_000)
    rig.beat(new, "c", TOPIC)
    assert members(rig, new) == ("c",)
    rig.notified()
    rig.event(Closed(old, "gone"))
    assert rig.notified() == []
    assert members(rig, new) == ("c",)
    assert rig.told == []


def test_two_live_clients_with_one_id_are_reported_once(rig: Rig) -> None:
    a, b = rig.connect(), rig.connect()
    for _ in range(3):
        rig.beat(a, "same", TOPIC)
        rig.advance(5_000)
        rig.beat(b, "same", TOPIC)
        rig.advance(5_000)
    (tell,) = rig.told
    assert tell.level == "WARNING"
    assert "same" in tell.text
    assert "10.0.0.1:5000" in tell.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"clientID":""}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"a b"}]}',
        b'{"clientID":"c","producerDataSet":[{"groupName":""}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"ok"},{"groupName":"%s"}]}'
        % (b"g" * 121),
        b'{"clientID":"c","consumerDataSet":[{"groupName":"ok","subscriptionDataSet":'
        b'[{"topic":"t","subString":"||"}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"ok","subscriptionDataSet":'
        b'[{"topic":"t","subVersion":123456789012345678901234567890}]}]}',
    ],
)
def test_a_bad_heartbeat_changes_nothing(rig: Rig, body: bytes) -> None:
    link = rig.connect()
    answer = rig.ask(link, HEARTBEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert members(rig, link, "ok") == ()


def test_a_member_may_have_so_many_topics_and_no_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    link = rig.connect()
    rig.beat(link, "c", "t1", "t2")
    assert rig.beat(link, "c", "t1", "t2", "t3").code == ResponseCode.SYSTEM_ERROR
    assert members(rig, link) == ("c",)


# -- connections -----------------------------------------------------------------------------------


def test_connections_are_listed_as_rocketmq_lists_them(rig: Rig, golden: dict[str, str]) -> None:
    link = rig.connect("127.0.0.1:5000")
    none = rig.ask(link, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
    assert none.code == ResponseCode.CONSUMER_NOT_ONLINE
    none = rig.ask(link, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert none.code == ResponseCode.SYSTEM_ERROR
    expected = (
        golden["ConsumerConnection"]
        .encode()
        .replace(b'"PYTHON","version":479', b'"JAVA","version":409')
    )
    subscription = (
        b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG",'
        b'"subString":"TagA||TagB","subVersion":1700000000000,"tagsSet":["TagA","TagB"],"topic":"TopicA"}'
    )
    heartbeat = (
        b'{"clientID":"cid","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"%s",'
        b'"subscriptionDataSet":[%s]}]}' % (GROUP.encode(), subscription)
    )
    rig.ask(link, HEARTBEAT, body=heartbeat)
    found = rig.ask(link, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
    assert found.body == expected
    found = rig.ask(link, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    wanted = golden["ProducerConnection"].encode()
    assert found.body == wanted.replace(b'"PYTHON","version":479', b'"JAVA","version":409')
    rig.ask(link, RequestCode.UNREGISTER_CLIENT, {"clientID": "cid", "producerGroup": "p"})
    none = rig.ask(link, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert none.code == ResponseCode.SYSTEM_ERROR


# -- locks -----------------------------------------------------------------------------------------


def lock(rig: Rig, link: int, client: str, *queues: MessageQueue) -> tuple[MessageQueue, ...]:
    answer = rig.ask(link, RequestCode.LOCK_BATCH_MQ, body=LockBatchBody(GROUP, client, queues))
    return fastjson.read(LockBatchResponseBody, answer.body).lock_ok_mq_set


def test_a_queue_is_locked_by_one_client_until_it_lets_go_or_forgets(rig: Rig) -> None:
    link = rig.connect()
    one, two = (MessageQueue(TOPIC, "broker-a", n) for n in (0, 1))
    assert lock(rig, link, "a", one) == (one,)
    assert lock(rig, link, "b", one, two) == (two,)
    assert lock(rig, link, "a", one, two) == (one,)
    rig.ask(link, RequestCode.UNLOCK_BATCH_MQ, body=LockBatchBody(GROUP, "a", (one, two)))
    assert lock(rig, link, "b", one) == (one,)
    rig.advance(60_001)
    assert lock(rig, link, "a", one, two) == (one, two)


def test_an_unlock_ends_what_the_member_still_waits_for_on_the_queue(rig: Rig) -> None:
    """Otherwise the next message would go to the old owner as well, for nothing."""
    old, new = rig.connect(), rig.connect()
    rig.send(old)
    for link, client in ((old, "a"), (new, "b")):
        rig.beat(link, client, TOPIC)
    pulls = [rig.post(link, RequestCode.PULL_MESSAGE, pull_ext(1)) for link in (old, new)]
    other = rig.post(old, RequestCode.PULL_MESSAGE, pull_ext(0, queueId=1))
    queue = MessageQueue(TOPIC, "broker-a", 0)
    rig.ask(old, RequestCode.UNLOCK_BATCH_MQ, body=LockBatchBody(GROUP, "a", (queue,)))
    ended = rig.reply_to(old, pulls[0])
    assert ended is not None
    assert (ended.code, ended.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1")
    assert rig.reply_to(new, pulls[1]) is None
    assert rig.reply_to(old, other) is None


def test_a_client_that_says_good_bye_leaves_no_lock_behind_one_that_is_cut_off_does(
    rig: Rig,
) -> None:
    a, b, c = rig.connect(), rig.connect(), rig.connect()
    for link, client in ((a, "a"), (b, "b"), (c, "c")):
        rig.beat(link, client, TOPIC)
    queues = tuple(MessageQueue(TOPIC, "broker-a", n) for n in (0, 1))
    assert lock(rig, a, "a", queues[0]) == (queues[0],)
    assert lock(rig, b, "b", queues[1]) == (queues[1],)
    rig.event(Closed(b, "cut off"))
    assert lock(rig, c, "c", *queues) == ()
    rig.ask(a, RequestCode.UNREGISTER_CLIENT, {"clientID": "a", "consumerGroup": "other"})
    assert lock(rig, c, "c", *queues) == ()
    rig.ask(a, RequestCode.UNREGISTER_CLIENT, {"clientID": "a", "consumerGroup": GROUP})
    assert lock(rig, c, "c", *queues) == (queues[0],)


def test_a_client_that_is_there_on_another_connection_keeps_its_locks() -> None:
    rig = Rig(BrokerConfig(delayed_answers=False))
    old, new = rig.connect(), rig.connect()
    rig.beat(old, "a", TOPIC)
    rig.beat(new, "a", TOPIC)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    lock(rig, new, "a", queue)
    rig.ask(old, RequestCode.UNREGISTER_CLIENT, {"clientID": "a", "consumerGroup": GROUP})
    assert lock(rig, new, "b", queue) == ()


# -- members that come and go again and again --------------------------------------------------------


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("10.0.0.1@4711#83921", "10.0.0.1"),  # Java
        ("10.0.0.1@4711#83921@unit", "10.0.0.1"),
        ("10.0.0.1@4711", "10.0.0.1"),
        ("10.0.0.1@billing", "10.0.0.1@billing"),
        ("billing", "billing"),
    ],
)
def test_name_of_a_client_survives_its_restart(client_id: str, name: str) -> None:
    assert name_of(client_id) == name


def test_client_that_crashes_in_a_loop_is_told_of(rig: Rig) -> None:
    rig.beat(rig.connect(), "10.0.0.9@1", TOPIC)
    for process in range(FLAPS_MIN + 1):
        link = rig.connect()
        rig.beat(link, f"10.0.0.1@{process}#9", TOPIC)
        rig.advance(1_000)
        rig.event(Closed(link, "gone"))
    (told,) = [line.text for line in rig.told if line.level == "WARNING"]
    client = "a client at 10.0.0.1 (this time 10.0.0.1@3#9)"
    assert told.startswith(f"group {GROUP}: {client} has joined and gone 3 times")
    joins = [one for one in rig.ledger() if isinstance(one, MemberJoined)]
    assert [one.flaps for one in joins] == [0, 0, 1, 2, 3]


def test_producers_of_all_groups(rig: Rig) -> None:
    link = rig.connect("10.0.0.9:5000")
    rig.beat(link, "p1", producer="makers")
    body = rig.ask(link, RequestCode.GET_ALL_PRODUCER_INFO).body
    info = ProducerInfo("p1", "10.0.0.9:5000", "JAVA", 409, START)
    assert fastjson.read(ProducerTable, body) == ProducerTable({"makers": (info,)})
    assert b'"remoteIP":"10.0.0.9:5000"' in body
