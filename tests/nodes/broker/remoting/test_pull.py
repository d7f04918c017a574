"""Pulls: the order of the checks, the codes by offset, long polls and what ends them, tag filters."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.seam import Closed
from steelyard.wire.remoting.bodies import (
    Body,
    ConsumerData,
    GroupConfigList,
    HeartbeatData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

PULL = RequestCode.PULL_MESSAGE
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
TOPIC_EXT = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}
NO_MORE = SubscriptionGroupConfig(GROUP, consume_enable=False)


def bodies(answer: Command | None) -> list[bytes]:
    assert answer is not None
    return [view.body for view in decode_records(answer.body)]


@pytest.fixture
def link(rig: Rig) -> int:
    """A member of the group that reads the topic, which has messages 0..9 in queue 0."""
    link = rig.connect()
    for number in range(10):
        rig.send(link, b"%d" % number, i=f"TAGS\x01{'even' if number % 2 == 0 else 'odd'}")
    assert rig.beat(link, "c1", TOPIC).code == 0
    rig.sent.clear()
    return link


@pytest.mark.parametrize("code", [PULL, RequestCode.LITE_PULL_MESSAGE])
def test_messages_come_from_the_offset_on(rig: Rig, link: int, code: RequestCode) -> None:
    answer = rig.ask(link, code, pull_ext(3, maxMsgNums=4))
    assert bodies(answer) == [b"3", b"4", b"5", b"6"]
    assert answer.remark == "FOUND"
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "7",
        "minOffset": "0",
        "maxOffset": "10",
    }


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (10, ResponseCode.PULL_NOT_FOUND, "10"),
        (11, ResponseCode.PULL_OFFSET_MOVED, "10"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "0"),
    ],
)
def test_offsets_without_a_message(
    rig: Rig, link: int, offset: int, code: ResponseCode, next_offset: str
) -> None:
    answer = rig.ask(link, PULL, pull_ext(offset, sysFlag=0))
    assert (answer.code, answer.ext["nextBeginOffset"]) == (code, next_offset)


def test_an_empty_queue_has_nothing_at_0_and_is_moved_to_0_from_elsewhere(
    rig: Rig, link: int
) -> None:
    for offset, code in ((0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)):
        answer = rig.ask(link, PULL, pull_ext(offset, queueId=1, sysFlag=0))
        assert (answer.code, answer.ext["nextBeginOffset"]) == (code, "0")


def test_an_offset_that_was_deleted_is_moved_to_the_first_that_is_left() -> None:
    rig = Rig(BrokerConfig(store=StoreConfig(segment_bytes=1_000, retention_ms=60_000)))
    link = rig.connect()
    for _ in range(20):
        rig.send(link, bytes(100))
    rig.advance(700_000)
    answer = rig.ask(link, PULL, pull_ext(0, sysFlag=SUBSCRIPTION))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
    assert answer.ext["nextBeginOffset"] == answer.ext["minOffset"] == "20"


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "illegal"),
        ({"consumerGroup": "other"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info not exist"),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "subscription not"),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR, "queueOffset"),
        (
            {"sysFlag": 6, "expressionType": "SQL92", "subscription": "a >"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: SQL92: ",
        ),
        ({"sysFlag": 6, "subscription": " || "}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no tag"),
    ],
)
def test_what_is_refused_with_which_code(
    rig: Rig, link: int, changes: dict[str, object], code: ResponseCode, remark: str
) -> None:
    answer = rig.ask(link, PULL, pull_ext() | changes)
    assert answer.code == code
    assert remark in answer.remark


def test_an_unreadable_topic_and_a_group_that_may_not_consume_are_refused(
    rig: Rig, link: int
) -> None:
    rig.ask(
        link,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=SubscriptionGroupConfig(GROUP, consume_enable=False),
    )
    assert rig.ask(link, PULL, pull_ext(topic="nowhere")).code == ResponseCode.NO_PERMISSION
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC_EXT | {"perm": 2})
    answer = rig.ask(link, PULL, pull_ext(consumerGroup="other"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert TOPIC in answer.remark


def test_broadcasting_may_be_forbidden(rig: Rig, link: int) -> None:
    group = SubscriptionGroupConfig("b", consume_broadcast_enable=False)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
    rig.beat(link, "c1", TOPIC, group="b", model="BROADCASTING")
    assert rig.ask(link, PULL, pull_ext(consumerGroup="b")).code == ResponseCode.NO_PERMISSION


def test_limits_by_count_and_by_bytes(rig: Rig, link: int) -> None:
    assert len(bodies(rig.ask(link, PULL, pull_ext(maxMsgNums=0)))) == 1
    assert len(bodies(rig.ask(link, PULL, pull_ext(maxMsgBytes=1)))) == 1
    size = len(rig.ask(link, PULL, pull_ext(maxMsgNums=1)).body)
    assert len(bodies(rig.ask(link, PULL, pull_ext(maxMsgBytes=size * 3 + 1)))) == 3


# -- long polls ------------------------------------------------------------------------------------


def test_a_pull_at_the_end_waits_and_is_woken_by_a_message(rig: Rig, link: int) -> None:
    opaque = rig.post(link, PULL, pull_ext(10))
    other = rig.post(link, PULL, pull_ext(0, queueId=1))
    assert rig.reply_to(link, opaque) is None
    rig.advance(3_000)
    rig.send(link, b"new")
    answer = rig.reply_to(link, opaque)
    assert bodies(answer) == [b"new"]
    assert rig.reply_to(link, other) is None


def test_a_pull_that_waited_long_enough_is_told_so_and_only_once(rig: Rig, link: int) -> None:
    opaque = rig.post(link, PULL, pull_ext(10, suspendTimeoutMillis=2_000))
    rig.advance(1_999)
    assert rig.reply_to(link, opaque) is None
    rig.advance(1 + 50)
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "10")
    rig.send(link)
    assert rig.reply_to(link, opaque) is answer


def test_pulls_with_different_patience_end_in_time(rig: Rig, link: int) -> None:
    waits = (9_000, 1_000, 5_000, 1_000)
    opaques = [rig.post(link, PULL, pull_ext(10, suspendTimeoutMillis=ms)) for ms in waits]
    ended: dict[int, int] = {}
    while rig.now < START + 10_000:
        rig.advance(50)
        for opaque, wait in zip(opaques, waits, strict=True):
            if rig.reply_to(link, opaque) and opaque not in ended:
                ended[opaque] = rig.now - START
                assert 0 <= ended[opaque] - wait <= 50
    assert len(ended) == len(waits)


def test_nobody_waits_longer_than_the_broker_allows() -> None:
    rig = Rig(BrokerConfig(hold_max_ms=1_000))
    link = rig.connect()
    rig.send(link)
    opaque = rig.post(link, PULL, pull_ext(1, sysFlag=6, suspendTimeoutMillis=10**12))
    rig.advance(1_050)
    assert rig.reply_to(link, opaque)


@pytest.mark.parametrize("changes", [{"sysFlag": 0}, {"suspendTimeoutMillis": 0}])
def test_a_pull_that_does_not_want_to_wait_does_not(
    rig: Rig, link: int, changes: dict[str, object]
) -> None:
    assert rig.ask(link, PULL, pull_ext(10, **changes)).code == ResponseCode.PULL_NOT_FOUND


def test_more_pulls_than_may_wait_are_told_that_the_broker_is_busy() -> None:
    rig = Rig(BrokerConfig(hold_waiting_max=2))
    link = rig.connect()
    rig.send(link)
    for _ in range(2):
        rig.post(link, PULL, pull_ext(1, sysFlag=6))
    assert rig.ask(link, PULL, pull_ext(1, sysFlag=6)).code == ResponseCode.SYSTEM_BUSY
    rig.send(link)
    rig.post(link, PULL, pull_ext(2, sysFlag=6))


def test_a_closed_connection_waits_no_longer(rig: Rig, link: int) -> None:
    other = rig.connect()
    rig.post(other, PULL, pull_ext(10, sysFlag=6))
    rig.event(Closed(other, "gone"))
    rig.sent.clear()
    rig.send(link)
    assert [to for to, _ in rig.sent] == [link]


def test_a_deleted_topic_ends_the_wait(rig: Rig, link: int) -> None:
    opaque = rig.post(link, PULL, pull_ext(10))
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("change", "ext", "body", "code"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, NO_MORE, ResponseCode.NO_PERMISSION),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {},
            GroupConfigList((NO_MORE,)),
            ResponseCode.NO_PERMISSION,
        ),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"perm": 2}, b"", ResponseCode.NO_PERMISSION),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"readQueueNums": 3},
            b"",
            ResponseCode.INVALID_PARAMETER,
        ),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"writeQueueNums": 8}, b"", None),
    ],
)
def test_a_pull_that_is_not_allowed_any_more_waits_no_longer(
    rig: Rig,
    link: int,
    change: RequestCode,
    ext: dict[str, object],
    body: bytes | Body,
    code: ResponseCode | None,
) -> None:
    opaque = rig.post(link, PULL, pull_ext(0, queueId=3))
    assert rig.ask(link, change, TOPIC_EXT | ext, body).code == 0
    answer = rig.reply_to(link, opaque)
    assert (answer and answer.code) == code


def test_a_failing_disk_is_the_pullers_error_not_the_producers(rig: Rig, link: int) -> None:
    from steelyard.errors import StorageError

    opaque = rig.post(link, PULL, pull_ext(10))
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    healthy = type(log).read

    def broken(*_: object) -> object:
        raise StorageError("cannot read")

    try:
        type(log).read = broken  # type: ignore[method-assign, assignment]
        assert rig.send(link).code == ResponseCode.SUCCESS
    finally:
        type(log).read = healthy  # type: ignore[method-assign]
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


# -- filters ---------------------------------------------------------------------------------------


def test_the_heartbeats_expression_filters(rig: Rig, link: int) -> None:
    rig.beat(link, "c1", TOPIC, expression="odd || nothing", version=2)
    answer = rig.ask(link, PULL, pull_ext(1, maxMsgNums=3))
    assert bodies(answer) == [b"1", b"3", b"5"]
    assert answer.ext["nextBeginOffset"] == "6"


def test_the_pulls_own_expression_filters(rig: Rig, link: int) -> None:
    ext = pull_ext(consumerGroup="unknown", sysFlag=SUBSCRIPTION, subscription="even")
    assert bodies(rig.ask(link, PULL, ext)) == [b"0", b"2", b"4", b"6", b"8"]
    for expression in ("*", ""):
        assert len(bodies(rig.ask(link, PULL, ext | {"subscription": expression}))) == 10


def test_where_no_message_passes_the_reader_is_sent_past_them(rig: Rig, link: int) -> None:
    ext = pull_ext(sysFlag=SUBSCRIPTION | SUSPEND, subscription="never")
    answer = rig.ask(link, PULL, ext)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "10"


def test_a_waiting_pull_sleeps_through_messages_for_others(rig: Rig, link: int) -> None:
    opaque = rig.post(link, PULL, pull_ext(10, sysFlag=6, subscription="red"))
    rig.send(link, i="TAGS\x01blue")
    assert rig.reply_to(link, opaque) is None
    rig.send(link, b"mine", i="TAGS\x01red")
    assert bodies(rig.reply_to(link, opaque)) == [b"mine"]
    opaque = rig.post(link, PULL, pull_ext(12, sysFlag=6, subscription="red"))
    rig.send(link, i="TAGS\x01blue")
    rig.advance(16_000)
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "13")


@pytest.mark.parametrize(("expression", "kind"), [("new", "TAG"), ("TAGS = 'new'", "SQL92")])
def test_a_member_with_a_new_expression_repeats_its_waiting_pull_from_where_it_began(
    rig: Rig, link: int, expression: str, kind: str
) -> None:
    rig.beat(link, "c1", TOPIC, expression="old", version=2)
    pull = rig.post(link, PULL, pull_ext(10, subVersion=2))
    rig.send(link, b"for the new", i="TAGS\x01new")  # the client has changed its mind already
    assert rig.reply_to(link, pull) is None
    new = SubscriptionData(TOPIC, expression, sub_version=3, expression_type=kind)
    consumer = ConsumerData(GROUP, subscription_data_set=(new,))
    rig.ask(link, RequestCode.HEART_BEAT, body=HeartbeatData("c1", (), (consumer,)))
    answer = rig.reply_to(link, pull)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "10"
    assert bodies(rig.ask(link, PULL, pull_ext(10, subVersion=3))) == [b"for the new"]


def test_a_waiting_pull_goes_on_after_a_heartbeat_with_the_same_expression(
    rig: Rig, link: int
) -> None:
    pull = rig.post(link, PULL, pull_ext(10))
    for version in (2, 3):
        rig.beat(link, "c1", TOPIC, version=version)
    assert rig.reply_to(link, pull) is None


def test_a_waiting_pull_with_an_expression_of_its_own_keeps_it(rig: Rig, link: int) -> None:
    rig.beat(link, "c1", TOPIC, expression="old", version=2)
    ext = pull_ext(10, sysFlag=SUSPEND | SUBSCRIPTION, subscription="own", subVersion=2)
    pull = rig.post(link, PULL, ext)
    rig.beat(link, "c1", TOPIC, expression="new", version=3)
    rig.send(link, b"for the new", i="TAGS\x01new")
    assert rig.reply_to(link, pull) is None
    rig.send(link, b"mine", i="TAGS\x01own")
    assert bodies(rig.reply_to(link, pull)) == [b"mine"]


def test_members_with_different_topics_each_get_theirs(rig: Rig, link: int) -> None:
    other = rig.connect()
    rig.send(other, b"x", topic="TopicB")
    rig.beat(other, "c2", "TopicB")
    rig.beat(link, "c1", TOPIC)
    assert rig.ask(link, PULL, pull_ext()).code == 0
    assert rig.ask(other, PULL, pull_ext(topic="TopicB")).code == 0


# -- commits along the way ---------------------------------------------------------------------------


def test_a_pull_may_bring_a_commit(rig: Rig, link: int) -> None:
    rig.ask(link, PULL, pull_ext(5, sysFlag=COMMIT, commitOffset=4))
    rig.ask(link, PULL, pull_ext(5, sysFlag=0, commitOffset=3))
    query = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, query).ext == {"offset": "4"}
