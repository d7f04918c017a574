"""What operators ask of a consumer through its brokers, and tell it."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, Rig, record
from tests.nodes.consumer.remoting.test_ordered import OrderedGroup

from steelyard.nodes.consumer.remoting.contract import (
    ConsumeDirectly,
    DescribeThreads,
    Pause,
    Resume,
)
from steelyard.nodes.seam import Handled, Verdict
from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, LogLine, MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStatusInfo,
    ProcessQueueInfo,
    ResetOffsetBody,
)
from steelyard.wire.remoting.command import Command

HERE = MessageQueue("T", "a", 0)


def asked(
    group: Group, code: int, body: bytes = b"", flag: int = 0, /, **ext: str
) -> list[Command]:
    """What the consumer answers to a request of broker a."""
    before = len(group.rig.sent)
    group.rig.push(group.a, Command(code=code, opaque=77, flag=flag, ext=ext, body=body))
    return replies(group.rig, before)


def replies(rig: Rig, before: int = 0) -> list[Command]:
    return [c for _, c in rig.sent[before:] if c.flag & 1 and c.opaque == 77]


# -- 307 -----------------------------------------------------------------------------------------------


def running_info(group: Group, **ext: str) -> ConsumerRunningInfo:
    (answer,) = asked(group, 307, consumerGroup="g", clientId="c1", **ext)
    assert answer.code == 0
    return fastjson.read(ConsumerRunningInfo, answer.body)


def test_running_info_tells_settings_queues_and_rates() -> None:
    group = Group(1, clean_handover=False)
    rig = group.start()
    started = rig.now
    rig.publish(group.a, "T", 0, 4)
    rig.advance(2_000)
    rig.handled(rig.hands[0])
    rig.handled(rig.hands[0], ok=False)
    info = running_info(group)
    assert (
        info.properties.items()
        >= {
            "consumerGroup": "g",
            "messageModel": "CLUSTERING",
            "consumeThreadMax": "20",
            "pullThresholdForTopic": "-1",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(started),
            "PROP_NAMESERVER_ADDR": "ns:9876;",
            "PROP_THREADPOOL_CORE_SIZE": "20",
        }.items()
    )
    assert [s.topic for s in info.subscription_set] == ["%RETRY%g", "T"]
    assert info.mq_table[HERE] == ProcessQueueInfo(
        commit_offset=2,
        cached_msg_min_offset=2,
        cached_msg_max_offset=3,
        cached_msg_count=2,
        locked=True,
        last_pull_timestamp=started,
        last_consume_timestamp=rig.now,
    )
    assert info.mq_table[MessageQueue("T", "b", 0)].cached_msg_count == 0
    assert info.status_table["T"] == ConsumeStatusInfo(
        pull_rt=0.0,
        pull_tps=2.0,
        consume_rt=2_000.0,
        consume_ok_tps=0.5,
        consume_failed_tps=0.5,
        consume_failed_msgs=1,
    )
    assert info.jstack is None
    assert group.state().statistics["T"].consumed_per_second == 0.5


def test_running_info_of_an_ordered_consumer_tells_its_lock_and_the_batch_at_the_listener() -> None:
    group = OrderedGroup(consume_batch=2)
    rig = group.start()
    rig.publish(group.a, "T", 0, 5)
    rig.advance(1_000)
    info = running_info(group)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    queue = info.mq_table[HERE]
    assert queue.locked
    assert 0 < queue.last_lock_timestamp <= rig.now
    assert (queue.cached_msg_count, queue.transaction_msg_count) == (3, 2)
    assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset) == (2, 4)
    assert (queue.transaction_msg_min_offset, queue.transaction_msg_max_offset) == (0, 1)


def test_where_the_threads_are_is_asked_of_the_application() -> None:
    group = Group(1)
    rig = group.start()
    assert asked(group, 307, consumerGroup="g", clientId="c1", jstackEnable="true") == []
    (hand,) = rig.hands
    assert hand.batch == DescribeThreads()
    rig.put(Handled(hand.ticket, "main: sleeping"))
    (answer,) = replies(rig)
    assert fastjson.read(ConsumerRunningInfo, answer.body).jstack == "main: sleeping"


@pytest.mark.parametrize("code", [307, 309])
def test_another_group_is_not_here(code: int) -> None:
    group = Group(1)
    group.start()
    (answer,) = asked(group, code, consumerGroup="h", clientId="c1")
    assert (answer.code, answer.remark) == (1, "The Consumer Group <h> not exist in this consumer")


@pytest.mark.parametrize("code", [220, 221, 307, 309])
def test_a_request_without_its_header_is_answered_in_words(code: int) -> None:
    group = Group(1)
    group.start()
    (answer,) = asked(group, code)
    assert answer.code == 1
    assert "header" in answer.remark


# -- 309 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "result", "remark"),
    [
        (ConsumeStatus.CONSUME_SUCCESS, "CR_SUCCESS", None),
        (ConsumeStatus.RECONSUME_LATER, "CR_LATER", None),
        (ConsumeOrderlyStatus.SUCCESS, "CR_SUCCESS", None),
        (ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, "CR_LATER", None),
        ("ValueError: no", "CR_THROW_EXCEPTION", "ValueError: no"),
    ],
)
def test_a_message_is_consumed_on_demand(said: Verdict, result: str, remark: str | None) -> None:
    group = Group(1)
    rig = group.start()
    body = record("%RETRY%g", 3, 5, properties=b"RETRY_TOPIC\x01T\x02")
    ext = {"consumerGroup": "g", "clientId": "c1", "msgId": "X", "brokerName": "a"}
    assert asked(group, 309, body, **ext) == []
    (hand,) = rig.hands
    assert isinstance(hand.batch, ConsumeDirectly)
    assert hand.batch.queue == MessageQueue("T", "a", 3)
    assert hand.batch.message.topic == "T"
    rig.advance(30)
    rig.put(Handled(hand.ticket, said))
    (answer,) = replies(rig)
    assert fastjson.read(ConsumeMessageDirectlyResult, answer.body) == ConsumeMessageDirectlyResult(
        order=False, consume_result=result, remark=remark, spent_time_mills=30
    )


def test_only_so_many_wait_for_the_application() -> None:
    group = Group(1)
    rig = group.start()
    ext = {"consumerGroup": "g", "clientId": "c1"}
    for _ in range(64):
        assert asked(group, 309, record("T", 0, 1), **ext) == []
    (answer,) = asked(group, 309, record("T", 0, 1), **ext)
    assert answer.code == 2
    for hand in rig.hands:
        rig.put(Handled(hand.ticket, ConsumeStatus.CONSUME_SUCCESS))
    assert len(replies(rig)) == 65
    assert asked(group, 309, record("T", 0, 1), **ext) == []


@pytest.mark.parametrize("body", [b"", b"nonsense", record("T", 0, 1) * 2])
def test_a_body_that_is_not_one_message_is_refused(body: bytes) -> None:
    group = Group(1)
    rig = group.start()
    (answer,) = asked(group, 309, body, consumerGroup="g", clientId="c1")
    assert answer.code == 1
    assert not rig.hands


# -- 220, 221 ------------------------------------------------------------------------------------------


def reset(group: Group, table: dict[MessageQueue, int], name: str = "g") -> list[Command]:
    body = fastjson.write(ResetOffsetBody(table))
    ext = {"group": name, "topic": "T", "timestamp": "1", "isForce": "true"}
    return asked(group, 220, body, 2, **ext)


def test_a_reset_starts_held_queues_anew_and_commits() -> None:
    group = Group(1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    old = list(rig.hands)
    assert reset(group, {HERE: 1, MessageQueue("T", "c", 0): 5, MessageQueue("U", "a", 0): 7}) == []
    assert group.a.offsets["T", 0] == 1
    fresh = [hand for hand in rig.hands if hand not in old]
    for hand in old:
        rig.handled(hand)
    assert group.offset("a", 0) == 1, "verdicts on what was handed before count for nothing"
    for hand in fresh:
        rig.handled(hand)
    assert group.offset("a", 0) == 3
    assert not [c for _, c in rig.sent if c.flag & 1]


def test_a_reset_of_another_group_changes_nothing() -> None:
    group = Group(1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    rig.handle_all()
    reset(group, {HERE: 1}, "h")
    assert group.offset("a", 0) == 3


def test_a_reset_of_an_ordered_queue_waits_for_the_batch_at_the_listener() -> None:
    group = OrderedGroup()
    rig = group.start()
    rig.publish(group.a, "T", 0, 2)
    reset(group, {HERE: 0})
    assert len(rig.hands) == 1
    group.verdict(rig.hands[0])
    assert group.consume_all() == [0, 1]
    assert group.offset("a", 0) == 2


def test_a_broken_reset_is_told_to_people() -> None:
    group = Group(1)
    rig = group.start()
    ext = {"group": "g", "topic": "T", "timestamp": "1", "isForce": "true"}
    assert asked(group, 220, b'{"offsetTable":[]}', 2, **ext) == []
    assert rig.tells[-1] == LogLine("WARNING", rig.tells[-1].text)
    assert "220" in rig.tells[-1].text


def test_the_status_of_a_topic_is_its_offsets() -> None:
    group = Group(1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 3)
    rig.handle_all()
    (answer,) = asked(group, 221, topic="T", group="g")
    table = {HERE: 3, MessageQueue("T", "b", 0): 0}
    assert fastjson.read(ConsumerStatusBody, answer.body) == ConsumerStatusBody(table)
    (answer,) = asked(group, 221, topic="T", group="h")
    assert fastjson.read(ConsumerStatusBody, answer.body) == ConsumerStatusBody()


# -- pause ---------------------------------------------------------------------------------------------


def test_a_paused_consumer_consumes_what_it_has_and_pulls_no_more() -> None:
    group = Group(1)
    rig = group.start()
    assert rig.answers[rig.ask(Pause())] is None
    assert group.state().paused
    rig.publish(group.a, "T", 0, 1)  # the pull that is held at the broker brings it
    assert rig.handle_all() == [0]
    before = len(group.pulls(group.a))
    rig.advance(300_000)
    rig.publish(group.a, "T", 0, 1)
    assert len(group.pulls(group.a)) == before
    assert not rig.hands
    assert rig.answers[rig.ask(Resume())] is None
    assert not group.state().paused
    assert rig.handle_all() == [1]
    assert group.a.offsets["T", 0] == 1


def test_a_paused_member_still_takes_and_gives_queues() -> None:
    group = Group()
    rig = group.start()
    rig.ask(Pause())
    group.a.members.append("c2")
    group.b.members.append("c2")
    rig.push(group.a, Command(code=40, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(2_000)
    assert {queue.broker_name for queue in group.state().held} == {"a"}


def test_the_limits_of_a_topic_are_divided_by_its_queues() -> None:
    group = Group(2, topic_messages_max=100, pull_batch=10, handed_max=1)
    rig = group.start()
    for broker in (group.a, group.b):
        for number in range(2):
            rig.publish(broker, "T", number, 200)
    rig.advance(0)
    info = running_info(group)
    assert {q.cached_msg_count for q in info.mq_table.values()} == {30}, "25, and one pull more"
    assert info.properties["pullThresholdForTopic"] == "100"
