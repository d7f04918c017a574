"""A whole member: start, rebalances, brokers that go and come, stop."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, queues, reply, rng

from steelyard.allocate import circle
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.node import ConsumerNode, Stop
from steelyard.types import LogLine, MessageQueue, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import HeartbeatData
from steelyard.wire.remoting.command import Command, is_oneway

EVERY = queues("T", "a", 0, 1) + queues("T", "b", 0, 1)
NOTIFICATION = Command(code=40, flag=2, ext={"consumerGroup": "g"})


def test_the_calls_of_a_starting_member_come_in_the_order_of_the_java_client() -> None:
    """Facts b.3: 105 per topic → 34 to every broker → 38 → 41 per broker → 14 per queue (→ 30) → 11."""
    group = Group(count=1)
    group.a.offsets["T", 0] = 7
    rig = group.start()
    sent = [(address[0], command.code) for address, command in rig.sent]
    assert sent == [
        ("n", 105),  # T
        ("n", 105),  # %RETRY%g, which does not exist yet
        ("a", 34),
        ("b", 34),
        ("n", 105),  # %RETRY%g again, which the heartbeat may have made
        sent[5],
        ("a", 41),
        ("b", 41),
        ("a", 14),
        ("b", 14),
        ("a", 11),
        ("b", 30),
        ("b", 11),
    ]
    assert sent[5][1] == 38
    assert [command.ext["topic"] for command in group.ns.asked] == ["T", "%RETRY%g", "%RETRY%g"]
    assert [c.ext["queueOffset"] for c in group.pulls(group.a)] == ["7"]
    assert [c.ext["queueOffset"] for c in group.pulls(group.b)] == ["0"]


def test_a_heartbeat_says_what_is_subscribed() -> None:
    group = Group(subscriptions=(Subscription("T", "x||y"),))
    rig = group.start()
    data = fastjson.read(HeartbeatData, rig.to(group.a, 34)[0].body)
    (consumer,) = data.consumer_data_set
    assert (data.client_id, consumer.group_name) == ("c1", "g")
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    by_topic = {s.topic: s for s in consumer.subscription_data_set}
    assert by_topic.keys() == {"T", "%RETRY%g"}
    assert by_topic["T"].tags_set == ("x", "y")
    version = by_topic["T"].sub_version
    assert version == rig.now
    assert {c.ext["subVersion"] for c in group.pulls(group.a)} == {str(version)}


def test_a_member_alone_holds_everything_and_describes_itself() -> None:
    group = Group()
    group.start()
    state = group.state()
    assert state.client_id == "c1"
    assert state.members == {"T": ("c1",)}
    assert state.held == EVERY
    assert state.offsets == dict.fromkeys(EVERY, 0)


def test_the_retry_topic_of_a_new_group_joins_seconds_after_the_first_heartbeat() -> None:
    """The broker makes it at the heartbeat; the route poll of 30 s alone would delay the first retries."""
    group = Group()
    rig = group.start()
    group.ns.add("%RETRY%g", group.a, queues=1)
    rig.advance(3_000)
    assert MessageQueue("%RETRY%g", "a", 0) in group.state().held


def test_a_notification_brings_a_rebalance_at_once() -> None:
    group = Group()
    rig = group.start()
    rig.advance(5_000)
    group.a.members.append("c2")
    group.b.members.append("c2")
    rig.push(group.a, NOTIFICATION)
    rig.advance(0)
    assert group.state().held == queues("T", "a", 0, 1)
    assert [group.b.owner("T", number) for number in (0, 1)] == [None, None]
    assert group.state().members == {"T": ("c1", "c2")}
    assert any("gave up 2" in tell.text for tell in rig.tells)


def test_notifications_in_a_row_bring_fewer_and_fewer_rebalances() -> None:
    """At once, after 20 ms, 40 ms and so on; timers are as exact as the notifications here."""
    group = Group()
    rig = group.start()
    rig.advance(5_000)
    before = group.a.count(38) + group.b.count(38)
    for _ in range(19):
        rig.push(group.a, NOTIFICATION)
        rig.advance(50)
    assert group.a.count(38) + group.b.count(38) == before + 6
    rig.advance(5_000)
    assert group.a.count(38) + group.b.count(38) == before + 7


def test_a_notification_of_another_group_means_nothing() -> None:
    group = Group()
    rig = group.start()
    rig.advance(5_000)
    before = group.a.count(38) + group.b.count(38)
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "other"}))
    rig.push(group.a, Command(code=40, flag=2))
    rig.advance(100)
    assert group.a.count(38) + group.b.count(38) == before


def test_a_lost_notification_is_made_good_by_the_timer() -> None:
    group = Group()
    rig = group.start()
    group.a.members.append("c2")
    group.b.members.append("c2")
    rig.advance(19_999)
    assert group.state().held == EVERY
    rig.advance(1)
    assert group.state().held == queues("T", "a", 0, 1)


@pytest.mark.parametrize("wrong", [reply(1, "no consumer for this group"), reply(body=b"{}"), None])
def test_a_missing_member_list_is_asked_for_again_after_a_second(wrong: Command | None) -> None:
    group = Group()
    group.a.script[38] = group.b.script[38] = lambda command: wrong
    rig = group.start()
    assert group.state().held == ()
    group.a.script[38] = group.b.script[38] = lambda command: reply(
        body=b'{"consumerIdList":["c1"]}'
    )
    rig.advance(999)
    assert group.state().held == ()
    rig.advance(1 if wrong is not None else 3_000)
    assert group.state().held == EVERY


def test_a_topic_that_does_not_exist_yet_is_joined_a_second_after_it_does() -> None:
    group = Group()
    group.ns.routes.clear()
    rig = group.start()
    rig.advance(3_500)
    group.ns.add("T", group.a, queues=2)
    rig.advance(2_000)
    assert group.state().held == queues("T", "a", 0, 1)


def test_a_member_that_no_broker_lists_gives_up_and_says_again_who_it_is() -> None:
    group = Group()
    rig = group.start()
    rig.advance(10_000)
    group.a.members = ["c2"]
    group.b.members = ["c2"]
    rig.push(group.b, NOTIFICATION)
    rig.advance(0)
    assert group.state().held == ()
    assert group.a.members == group.b.members == ["c2", "c1"]
    rig.advance(1_000)
    assert group.state().held == queues("T", "a", 0, 1)


def test_a_client_id_that_two_clients_use_is_told_once() -> None:
    group = Group()
    group.a.script[38] = group.b.script[38] = lambda command: reply(
        body=b'{"consumerIdList":["c1","c2","c1"]}'
    )
    rig = group.start()
    rig.advance(60_000)
    told = [tell.text for tell in rig.tells if tell.level == "WARNING"]
    assert told == [
        "group g has another client with the id c1: both read the same queues and leave others"
        " unread; give each its own client_id"
    ]


def test_a_new_broker_gets_a_heartbeat_and_its_queues_are_taken() -> None:
    group = Group()
    group.ns.add("T", group.a, queues=2)
    rig = group.start()
    assert group.state().held == queues("T", "a", 0, 1)
    group.ns.add("T", group.a, group.b, queues=2)
    rig.advance(30_000)
    assert group.b.members == ["c1"]
    assert group.state().held == EVERY
    assert group.b.codes()[0] == 34


def test_a_broker_that_leaves_the_routes_is_left_and_taken_again_when_it_returns() -> None:
    group = Group()
    rig = group.start()
    rig.publish(group.b, "T", 0, 3)
    assert sorted(rig.handle_all()) == [0, 1, 2]
    rig.advance(6_000)
    group.ns.add("T", group.a, queues=2)
    rig.crash(group.b)
    rig.advance(1_500)
    assert group.state().held == queues("T", "a", 0, 1)
    group.b.up = True
    group.ns.add("T", group.a, group.b, queues=2)
    rig.advance(4_000)
    assert group.state().held == EVERY
    assert group.b.members == ["c1"]
    assert group.offset("b", 0) == 3


def test_after_a_quick_restart_of_a_broker_the_heartbeat_comes_first() -> None:
    group = Group()
    rig = group.start()
    rig.crash(group.b)
    group.b.up = True
    group.b.asked.clear()
    rig.advance(3_000)
    codes = group.b.codes()
    assert codes[0] == 34
    assert codes.count(34) == 1
    assert group.state().held == EVERY
    assert len(group.b.held) == 2
    assert any(c.code == 38 for _, c in rig.sent[-20:])


def test_heartbeats_keep_coming() -> None:
    group = Group()
    rig = group.start()
    rig.advance(90_000)
    assert (group.a.count(34), group.b.count(34)) == (4, 4)


def test_a_refused_heartbeat_is_told() -> None:
    group = Group()
    group.b.script[34] = lambda command: reply(1, "go away")
    rig = group.start()
    assert LogLine("WARNING", "heartbeat refused by b:1: code 1: go away") in rig.tells


def test_the_next_nameserver_is_asked_when_one_is_silent() -> None:
    group = Group(nameservers=("dead:1", "ns:9876", "dead:2"))
    rig = group.start()
    rig.advance(1_000)
    assert group.state().held == EVERY


def test_without_a_nameserver_it_waits() -> None:
    group = Group()
    group.ns.up = False
    rig = group.start()
    assert group.state().held == ()
    rig.advance(2_500)
    group.ns.up = True
    rig.advance(2_000)
    assert group.state().held == EVERY


def test_stop_waits_for_the_listener_then_commits_and_says_good_bye() -> None:
    group = Group()
    rig = group.start()
    rig.publish(group.a, "T", 0, 40)
    first = rig.hands[0]
    rig.handled(first)
    stop = rig.ask(Stop())
    assert stop not in rig.answers
    with_listener = len(rig.hands)
    rig.advance(1_000)
    seen = rig.handle_all()
    assert len(seen) == with_listener, "nothing new is handed while stopping"
    assert rig.answers[stop] is None
    assert group.a.offsets["T", 0] == 1 + with_listener
    codes = group.a.codes()
    assert codes[-1] == 35
    assert max(i for i, code in enumerate(codes) if code == 15) < codes.index(35)
    (goodbye,) = rig.to(group.b, 35)
    assert goodbye.ext == {"clientID": "c1", "consumerGroup": "g"}
    assert group.a.members == group.b.members == []
    rig.sent.clear()
    rig.advance(100_000)
    assert rig.sent == []


def test_stop_does_not_wait_for_ever() -> None:
    group = Group(stop_timeout_ms=2_000)
    rig = group.start()
    rig.publish(group.a, "T", 0, 2)
    stop = rig.ask(Stop())
    rig.advance(1_999)
    assert stop not in rig.answers
    rig.advance(1)
    assert rig.answers[stop] is None
    assert group.a.offsets["T", 0] == 0
    rig.handle_all()
    assert group.a.offsets["T", 0] == 0


def test_stop_while_pulls_are_held_and_answers_are_late() -> None:
    group = Group()
    rig = group.start()
    held = list(group.a.held)
    stop = rig.ask(Stop())
    assert rig.answers[stop] is None
    for command in held:
        rig.answer(group.a, command, reply(19, nextBeginOffset=0, minOffset=0, maxOffset=0))
    assert not rig.hands
    assert isinstance(rig.answers[rig.ask(Stop())], ClosedError)
    assert group.state().held == ()


def test_stop_when_a_broker_is_dead() -> None:
    group = Group()
    rig = group.start()
    group.b.script[35] = lambda command: None
    stop = rig.ask(Stop())
    rig.advance(3_000)
    assert rig.answers[stop] is None


def test_stop_right_after_the_start() -> None:
    group = Group()
    group.ns.script[105] = lambda command: None
    group.rig.start()
    stop = group.rig.ask(Stop())
    assert group.rig.answers[stop] is None
    group.rig.advance(60_000)
    assert group.a.asked == []


def test_another_strategy_by_name_and_by_hand() -> None:
    named = Group(strategy="AVG_BY_CIRCLE")
    given = Group()
    given.rig.node = ConsumerNode(given.config, rng(), circle.allocate)
    for group in (named, given):
        rig = group.start()
        group.a.members.append("c2")
        group.b.members.append("c2")
        rig.advance(20_000)
        assert group.state().held == queues("T", "a", 0) + queues("T", "b", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": ""},
        {"client_id": ""},
        {"subscriptions": ()},
        {"subscriptions": (Subscription("T", "||"),)},
        {"strategy": "BEST"},
    ],
)
def test_wrong_settings_are_told_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Group(**wrong)  # type: ignore[arg-type]


def test_what_brokers_ask_of_others_is_refused_politely() -> None:
    group = Group()
    rig = group.start()
    rig.sent.clear()
    rig.push(group.a, Command(code=326, opaque=78))
    rig.push(group.a, Command(code=39, opaque=79, flag=2))
    assert [(c.code, c.opaque, c.flag) for _, c in rig.sent] == [(3, 78, 1)]


def test_commits_go_out_every_five_seconds_and_only_when_there_is_news() -> None:
    group = Group()
    rig = group.start()
    rig.advance(5_000)
    assert group.commits(group.a) == [0]
    rig.advance(20_000)
    assert group.commits(group.a) == [0]
    rig.publish(group.a, "T", 0, 3)
    rig.handle_all()
    rig.advance(5_000)
    assert group.commits(group.a) == [0, 3]
    assert all(is_oneway(command) for command in rig.to(group.a, 15))


def test_config_defaults_are_rocketmqs() -> None:
    config = ConsumerConfig()
    expected = {
        "rebalance_interval_ms": 20_000,
        "heartbeat_interval_ms": 30_000,
        "commit_interval_ms": 5_000,
        "pull_batch": 32,
    }
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_ruined_route_answer_does_not_stop_it() -> None:
    group = Group()
    rig = group.start()
    group.ns.script[105] = lambda command: reply(body=b'{"queueDatas":7}')
    rig.advance(30_000)
    assert group.state().held == EVERY
    assert any("ns:9876" in tell.text for tell in rig.tells)
