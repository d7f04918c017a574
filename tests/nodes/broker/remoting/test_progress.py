"""How far groups have come, and how fast."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.remoting.test_admin import CREATE, HEADER

from steelyard.nodes.broker import statistics
from steelyard.nodes.broker.remoting import progress
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    GroupList,
    OffsetWrapper,
    QueueTimeSpan,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]


def commit(rig: Rig, link: int, offset: int, group: str = GROUP) -> None:
    ext = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
    assert rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def test_committed_offsets_of_all_groups(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    for group, offset in (("g", 2), ("h", 3)):
        commit(rig, link, offset, group)
    asked = RequestCode.GET_ALL_CONSUMER_OFFSET
    assert rig.ask(link, asked).body == (
        b'{"offsetTable":{"%s@g":{0:2},"%s@h":{0:3}}}' % (TOPIC.encode(), TOPIC.encode())
    )
    monkeypatch.setattr(progress, "ALL_MAX", 1)
    assert b"@h" not in rig.ask(link, asked).body


def test_how_far_a_group_has_come(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    for _ in range(3):
        rig.send(link)
        rig.advance(10)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 2}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)

    def progress(**more: object) -> dict[MessageQueue, OffsetWrapper]:
        ext = {"consumerGroup": GROUP} | more
        body = rig.ask(link, RequestCode.GET_CONSUME_STATS, ext).body
        return fastjson.read(ConsumeStats, body).offset_table

    queue = [MessageQueue(TOPIC, "broker-a", number) for number in range(3)]
    untouched = OffsetWrapper(0, 0)
    offline = {
        queue[0]: OffsetWrapper(3, 2, START + 10, 2),
        queue[1]: untouched,
        queue[2]: untouched,
    }
    assert progress() == progress(topic=TOPIC) == offline
    assert progress(topic="nowhere") == {}
    rig.beat(link, "c", TOPIC, f"%RETRY%{GROUP}")
    assert progress() == {MessageQueue(f"%RETRY%{GROUP}", "broker-a", 0): untouched} | offline
    rig.beat(link, "c", "other")
    assert progress() == {}


def test_who_reads_a_topic(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    rig.beat(link, "c", TOPIC, group="online")
    commit = {"consumerGroup": "offline", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    body = rig.ask(link, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}).body
    assert fastjson.read(GroupList, body).group_list == ("offline", "online")


def test_all_groups(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER | {"readQueueNums": 1, "writeQueueNums": 1})
    for _ in range(3):
        rig.send(link)
    commit(rig, link, 1, "one")
    commit(rig, link, 3, "two")
    body = rig.ask(link, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body
    stats = {
        group: (ConsumeStats({QUEUES[0]: OffsetWrapper(3, offset, START, offset)}),)
        for group, offset in (("one", 1), ("two", 3))
    }
    assert fastjson.read(ConsumeStatsList, body) == ConsumeStatsList(
        ({"one": stats["one"]}, {"two": stats["two"]}), rig.config.address, 2
    )


def test_when_a_group_consumed_last(rig: Rig) -> None:
    link = rig.connect()
    spans = RequestCode.QUERY_CONSUME_TIME_SPAN
    ext = {"topic": TOPIC, "group": GROUP}
    assert rig.ask(link, spans, ext).code == ResponseCode.TOPIC_NOT_EXIST
    rig.ask(link, CREATE, HEADER | {"readQueueNums": 2, "writeQueueNums": 2})
    for _ in range(3):
        rig.send(link)
        rig.advance(10)

    def first_queue() -> QueueTimeSpan:
        body = rig.ask(link, spans, ext).body
        first, second = fastjson.read(ConsumeTimeSpans, body).consume_time_span_set
        assert second == QueueTimeSpan(QUEUES[1], -1, -1, -1)
        return first

    assert first_queue() == QueueTimeSpan(QUEUES[0], START, START + 20, START, 30)
    commit(rig, link, 2)
    assert first_queue() == QueueTimeSpan(QUEUES[0], START, START + 20, START + 10, 10)
    commit(rig, link, 3)
    assert first_queue() == QueueTimeSpan(QUEUES[0], START, START + 20, START + 20, 0)


def stats(rig: Rig, link: int, name: str, key: str) -> tuple[BrokerStatsItem, ...]:
    ext = {"statsName": name, "statsKey": key}
    body = rig.ask(link, RequestCode.VIEW_BROKER_STATS_DATA, ext).body
    data = fastjson.read(BrokerStatsData, body)
    return (data.stats_minute, data.stats_hour, data.stats_day)


def test_messages_put_in_the_last_minute_hour_and_day(rig: Rig) -> None:
    link = rig.connect()
    for _ in range(6):
        rig.send(link)
        rig.advance(20_000)
    assert stats(rig, link, "TOPIC_PUT_NUMS", TOPIC) == (
        BrokerStatsItem(3, 3 / 60),
        BrokerStatsItem(6, 6 / 3600),
        BrokerStatsItem(6, 6 / 86_400),
    )
    rig.advance(3_500_000)
    assert [item.sum for item in stats(rig, link, "TOPIC_PUT_NUMS", TOPIC)] == [0, 5, 6]


def test_messages_got_in_the_last_minute_hour_and_day(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    rig.beat(link, "c", TOPIC)
    key = f"{TOPIC}@{GROUP}"
    assert stats(rig, link, "GROUP_GET_NUMS", key) == (BrokerStatsItem(),) * 3
    for _ in range(6):
        rig.ask(link, RequestCode.PULL_MESSAGE, pull_ext())
        rig.advance(20_000)
        rig.beat(link, "c", TOPIC)
    assert [item.sum for item in stats(rig, link, "GROUP_GET_NUMS", key)] == [3, 6, 6]
    assert stats(rig, link, "GROUP_GET_NUMS", key)[0].tps == pytest.approx(3 / 60)
    ext = {"consumerGroup": GROUP, "topic": TOPIC}
    body = rig.ask(link, RequestCode.GET_CONSUME_STATS, ext).body
    assert fastjson.read(ConsumeStats, body).consume_tps == pytest.approx(3 / 60)
    rig.advance(2 * 3_600_000)
    link = rig.connect()
    assert [item.sum for item in stats(rig, link, "GROUP_GET_NUMS", key)] == [0, 0, 6]


def test_groups_that_are_counted_are_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "METERS_MAX", 1)
    link = rig.connect()
    rig.send(link)
    for group in ("one", "two"):
        rig.beat(link, "c", TOPIC, group=group)
        rig.ask(link, RequestCode.PULL_MESSAGE, pull_ext(consumerGroup=group))
    sums = [stats(rig, link, "GROUP_GET_NUMS", f"{TOPIC}@{g}")[0].sum for g in ("one", "two")]
    assert sums == [0, 1]


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_NUMS", "nowhere"), ("GROUP_GET_NUMS", "x"), ("OTHER", TOPIC)]
)
def test_figures_that_are_not_kept(rig: Rig, name: str, key: str) -> None:
    link = rig.connect()
    rig.send(link)
    ext = {"statsName": name, "statsKey": key}
    answer = rig.ask(link, RequestCode.VIEW_BROKER_STATS_DATA, ext)
    assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")
