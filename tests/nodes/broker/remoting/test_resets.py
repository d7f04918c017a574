"""222 and 314: an operator sends a group to another place, or where another group is."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import START, TOPIC

from steelyard.nodes.seam import Received
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    CommittedOffsetTable,
    ConsumerData,
    HeartbeatData,
    ResetOffsetBody,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
PUSHED = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
HEADER = {"topic": TOPIC, "group": GROUP, "timestamp": START + 20, "isForce": "true"}
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]


def commit(rig: Rig, link: int, queue_id: int, offset: int) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "commitOffset": offset}
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(rig: Rig, link: int, queue_id: int) -> str:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}
    return rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"]


@pytest.fixture
def link(rig: Rig) -> int:
    """Queue 0 has messages at START, +10, +20, +30, +40, queue 1 one at +50; 2 and 3 are empty. The group read 3 and 0."""
    link = rig.connect()
    for _ in range(5):
        rig.send(link)
        rig.advance(10)
    rig.send(link, queue_id=1)
    commit(rig, link, 0, 3)
    commit(rig, link, 1, 0)
    return link


def pushed(rig: Rig, link: int) -> list[Command]:
    return [message for to, message in rig.sent if to == link and message.code == PUSHED]


@pytest.mark.parametrize(
    ("changes", "offsets"),
    [
        ({}, [2, 0, 0, 0]),
        ({"timestamp": START + 21}, [3, 0, 0, 0]),
        ({"timestamp": START + 40}, [4, 0, 0, 0]),
        ({"timestamp": START + 40, "isForce": "false"}, [3, 0, 0, 0]),
        ({"timestamp": START + 60}, [5, 1, 0, 0]),
        ({"timestamp": START + 60, "isForce": "false"}, [3, 0, 0, 0]),
        ({"timestamp": -1}, [5, 1, 0, 0]),
        ({"timestamp": 0}, [0, 0, 0, 0]),
    ],
)
def test_members_are_told_where_to_go_on(
    rig: Rig, link: int, changes: dict[str, object], offsets: list[int]
) -> None:
    one, two = rig.connect(), rig.connect()
    rig.beat(one, "c1", TOPIC)
    rig.beat(two, "c2", TOPIC)
    header = HEADER | changes
    answer = rig.ask(link, RESET, header)
    table = dict(zip(QUEUES, offsets, strict=True))
    assert answer.code == 0
    assert fastjson.read(ResetOffsetBody, answer.body).offset_table == table
    ext = {
        "topic": TOPIC,
        "group": GROUP,
        "timestamp": str(header["timestamp"]),
        "isForce": "false",
        "queueId": "-1",
    }
    order = Command(PUSHED, 0, ONEWAY_FLAG, ext, fastjson.write(ResetOffsetBody(table)))
    assert pushed(rig, one) == pushed(rig, two) == [order]
    assert committed(rig, link, 0) == "3", "members commit it themselves"


def test_a_member_written_in_c_reads_its_own_body(rig: Rig, link: int) -> None:
    body = fastjson.write(HeartbeatData("c", consumer_data_set=(ConsumerData(GROUP),)))
    beat = Command(RequestCode.HEART_BEAT, 1, body=body, language="CPP")
    rig.event(Received(link, beat))
    rig.ask(link, RESET, HEADER | {"queueId": 0, "offset": 1})
    (order,) = pushed(rig, link)
    assert json.loads(order.body) == {
        "offsetTable": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0, "offset": 1}]
    }


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        (
            {},
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: {START + 20}",
        ),
        ({"group": "new"}, ResponseCode.SYSTEM_ERROR, "THe consumer group <new> not exist"),
        (
            {"topic": "nowhere"},
            ResponseCode.SYSTEM_ERROR,
            "[reset-offset] reset offset failed, no topic in this broker. topic=nowhere",
        ),
        (
            {"queueId": 4},
            ResponseCode.SYSTEM_ERROR,
            f"queue 4 of topic {TOPIC} is not on this broker: 0 to 3 are",
        ),
        (
            {"queueId": 0, "offset": 6},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 6 not in consume queue range [0-5]",
        ),
    ],
)
def test_what_is_refused(
    rig: Rig, link: int, changes: dict[str, object], code: int, remark: str
) -> None:
    answer = rig.ask(link, RESET, HEADER | changes)
    assert (answer.code, answer.remark) == (code, remark)
    assert committed(rig, link, 0) == "3"


@pytest.mark.parametrize(
    ("changes", "offset"),
    [
        ({"offset": 5}, 5),
        ({"offset": 0}, 0),
        ({"offset": -1}, 2),
        ({}, 2),
        ({"isForce": "false", "timestamp": START + 40}, 4),
    ],
)
def test_one_queue_of_a_group_without_members_is_moved_by_the_broker(
    rig: Rig, link: int, changes: dict[str, object], offset: int
) -> None:
    answer = rig.ask(link, RESET, HEADER | {"queueId": 0} | changes)
    assert fastjson.read(ResetOffsetBody, answer.body).offset_table == {QUEUES[0]: offset}
    assert committed(rig, link, 0) == str(offset)
    assert committed(rig, link, 1) == "0"


def test_one_queue_of_members_is_moved_by_them(rig: Rig, link: int) -> None:
    rig.beat(link, "c", TOPIC)
    rig.ask(link, RESET, HEADER | {"queueId": 0, "offset": 1})
    (order,) = pushed(rig, link)
    assert fastjson.read(ResetOffsetBody, order.body).offset_table == {QUEUES[0]: 1}
    assert committed(rig, link, 0) == "3"


def test_a_group_that_only_has_members_is_reset_too(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    rig.beat(link, "c", TOPIC)
    answer = rig.ask(link, RESET, HEADER | {"timestamp": -1, "isForce": "false"})
    expected = dict(zip(QUEUES, (1, 0, 0, 0), strict=True))
    assert fastjson.read(ResetOffsetBody, answer.body).offset_table == expected


def test_answers_are_not_orders(rig: Rig, link: int) -> None:
    """What a member says to 220 is nobody's answer."""
    rig.beat(link, "c", TOPIC)
    rig.ask(link, RESET, HEADER)
    answer = replace(pushed(rig, link)[0], flag=RESPONSE_FLAG)
    assert rig.event(Received(link, answer)) == []


CLONE = RequestCode.CLONE_GROUP_OFFSET
OTHER = "other-topic"


def clone(rig: Rig, link: int, **more: object) -> Command:
    return rig.ask(link, CLONE, {"srcGroup": GROUP, "destGroup": "copy", **more})


def copied(rig: Rig, link: int) -> dict[str, dict[int, int]]:
    """What the copy has committed: offsets by queue, by topic."""
    body = rig.ask(link, RequestCode.GET_ALL_CONSUMER_OFFSET).body
    table = fastjson.read(CommittedOffsetTable, body).offset_table
    return {key.removesuffix("@copy"): offsets for key, offsets in table.items() if "@copy" in key}


@pytest.fixture
def reading(rig: Rig, link: int) -> int:
    """The group has committed offsets of another topic as well."""
    rig.send(link, topic=OTHER)
    ext = {"consumerGroup": GROUP, "topic": OTHER, "queueId": 0, "commitOffset": 1}
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
    return link


@pytest.mark.parametrize(
    ("more", "topics"),
    [
        ({"topic": TOPIC}, {TOPIC}),
        ({"topic": ""}, {TOPIC, OTHER}),
        ({}, {TOPIC, OTHER}),
        ({"topic": "nowhere"}, set()),
    ],
)
def test_a_group_gets_the_offsets_of_another(
    rig: Rig, reading: int, more: dict[str, object], topics: set[str]
) -> None:
    assert clone(rig, reading, **more).code == ResponseCode.SUCCESS
    whole = {TOPIC: {0: 3, 1: 0}, OTHER: {0: 1}}
    assert copied(rig, reading) == {topic: whole[topic] for topic in topics}


@pytest.mark.parametrize(("offline", "topics"), [("false", {OTHER}), ("true", {TOPIC, OTHER})])
def test_what_the_other_groups_members_do_not_read_is_not_copied(
    rig: Rig, reading: int, offline: str, topics: set[str]
) -> None:
    rig.beat(rig.connect(), "c1", OTHER)
    assert clone(rig, reading, offline=offline).code == ResponseCode.SUCCESS
    assert copied(rig, reading).keys() == topics


def test_a_copy_that_cannot_be(rig: Rig, reading: int) -> None:
    assert clone(rig, reading, srcGroup="nobody").code == ResponseCode.SUCCESS
    assert clone(rig, reading, destGroup="a@b").code == ResponseCode.SYSTEM_ERROR
    assert rig.ask(reading, CLONE, {"srcGroup": GROUP}).code == ResponseCode.SYSTEM_ERROR
    assert copied(rig, reading) == {}
