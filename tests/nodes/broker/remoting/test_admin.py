"""Operators' requests: topics, groups, the broker itself."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import START, TOPIC

from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    GroupConfigList,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

CREATE, DELETE = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER
HEADER: dict[str, object] = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 3,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "true",
}


def topics(rig: Rig, link: int) -> dict[str, TopicConfig]:
    body = rig.ask(link, RequestCode.GET_ALL_TOPIC_CONFIG).body
    return fastjson.read(TopicConfigTable, body).topic_config_table


def test_a_topic_is_made_changed_kept_over_a_restart_and_deleted(rig: Rig) -> None:
    link = rig.connect()
    assert rig.ask(link, CREATE, HEADER).code == 0
    assert topics(rig, link)[TOPIC] == TopicConfig(TOPIC, 3, 2, 6, order=True)
    rig.ask(link, CREATE, HEADER | {"perm": 4, "order": "false"})
    rig.restart()
    link = rig.connect()
    assert topics(rig, link)[TOPIC] == TopicConfig(TOPIC, 3, 2, 4)
    assert rig.ask(link, DELETE, {"topic": TOPIC}).code == 0
    assert rig.ask(link, DELETE, {"topic": TOPIC}).code == 0
    rig.restart()
    assert TOPIC not in topics(rig, rig.connect())


def test_a_topic_is_deleted_where_the_disk_is_full(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"x" * 1_000)
    rig.disk.room_bytes = 0
    assert rig.ask(link, DELETE, {"topic": TOPIC}).code == 0
    rig.restart()
    assert TOPIC not in topics(rig, rig.connect())
    assert rig.store.log(TOPIC, 0) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "no way"}, ResponseCode.SYSTEM_ERROR),
        ({"readQueueNums": 0}, ResponseCode.SYSTEM_ERROR),
        ({"writeQueueNums": -1}, ResponseCode.SYSTEM_ERROR),
        ({"readQueueNums": 16_385}, ResponseCode.SYSTEM_ERROR),
        ({"perm": 8}, ResponseCode.SYSTEM_ERROR),
        ({"order": "perhaps"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_bad_topics_are_refused(rig: Rig, changes: dict[str, object], code: ResponseCode) -> None:
    link = rig.connect()
    before = topics(rig, link)
    answer = rig.ask(link, CREATE, HEADER | changes)
    assert answer.code == code
    assert answer.remark
    assert topics(rig, link) == before


def test_a_deleted_topic_takes_its_messages_and_offsets_along(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    assert rig.ask(link, DELETE, {"topic": "TBW102"}).code == ResponseCode.INVALID_PARAMETER
    rig.ask(link, DELETE, {"topic": TOPIC})
    rig.send(link, b"new")
    assert [view.body for view in rig.messages(TOPIC)] == [b"new"]
    query = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, query).ext == {"offset": "0"}


def test_one_topics_configuration(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    reply = rig.ask(link, RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC, "lo": "true"})
    assert fastjson.read(TopicConfig, reply.body) == TopicConfig(TOPIC, 3, 2, 6, order=True)
    reply = rig.ask(link, RequestCode.GET_TOPIC_CONFIG, {"topic": "nowhere"})
    assert (reply.code, reply.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic in this broker. topic: nowhere",
    )


def test_the_reach_of_a_topics_queues(rig: Rig) -> None:
    link = rig.connect()
    stats = RequestCode.GET_TOPIC_STATS_INFO
    assert rig.ask(link, stats, {"topic": TOPIC}).code == ResponseCode.TOPIC_NOT_EXIST
    rig.ask(link, CREATE, HEADER)
    rig.send(link, queue_id=1)
    rig.advance(7)
    rig.send(link, queue_id=1)
    body = rig.ask(link, stats, {"topic": TOPIC}).body
    queue = [MessageQueue(TOPIC, "broker-a", number) for number in range(3)]
    nothing = TopicOffset(0, 0, 0)
    assert fastjson.read(TopicStatsTable, body).offset_table == {
        queue[0]: nothing,
        queue[1]: TopicOffset(0, 2, START + 7),
        queue[2]: nothing,
    }


def test_groups_are_configured_kept_and_forgotten(rig: Rig) -> None:
    link = rig.connect()
    config = SubscriptionGroupConfig("g", retry_max_times=3)
    update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert rig.ask(link, update, body=config).code == 0
    bad = SubscriptionGroupConfig("g g")
    assert rig.ask(link, update, body=bad).code == ResponseCode.SYSTEM_ERROR
    huge = b'{"groupName":"h","brokerId":123456789012345678901}'
    assert rig.ask(link, update, body=huge).code == ResponseCode.SYSTEM_ERROR
    rig.restart()
    link = rig.connect()

    def groups() -> dict[str, SubscriptionGroupConfig]:
        body = rig.ask(link, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        return fastjson.read(SubscriptionGroupTable, body).subscription_group_table

    assert groups() == {"g": config}
    rig.send(link)
    commit = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    query = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": "false"}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    for clean, code in (("false", 0), ("true", ResponseCode.QUERY_NOT_FOUND)):
        ext = {"groupName": "g", "cleanOffset": clean}
        assert rig.ask(link, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext).code == 0
        known = {} if clean == "true" else {"g": SubscriptionGroupConfig("g")}
        assert groups() == known, "a group with offsets is there"
        assert rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, query).code == code


@pytest.mark.parametrize("name", ["cleanOffset", "removeOffset"])
def test_5x_and_49_ask_by_different_names_for_a_groups_offsets_to_go(rig: Rig, name: str) -> None:
    link = rig.connect()
    rig.send(link)
    commit = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    assert (
        rig.ask(link, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", name: "true"}).code
        == 0
    )
    query = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": "false"}
    answer = rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, query)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


def test_settings_are_told_as_properties(rig: Rig) -> None:
    lines = rig.ask(rig.connect(), RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "flushDiskType=ASYNC_FLUSH" in lines


def test_several_topics_and_groups_at_once(rig: Rig) -> None:
    link = rig.connect()
    some = (TopicConfig("T1", 1, 1), TopicConfig("T2", 2, 2))
    update = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    assert rig.ask(link, update, body=TopicConfigList(some)).code == 0
    assert [topics(rig, link)[name] for name in ("T1", "T2")] == list(some)
    mixed = TopicConfigList((TopicConfig("T3"), TopicConfig("TBW102")))
    assert rig.ask(link, update, body=mixed).code == ResponseCode.INVALID_PARAMETER
    assert "T3" not in topics(rig, link)
    groups = GroupConfigList(tuple(SubscriptionGroupConfig(name) for name in ("g", "h")))
    update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert rig.ask(link, update, body=groups).code == 0
    body = rig.ask(link, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert list(fastjson.read(SubscriptionGroupTable, body).subscription_group_table) == ["g", "h"]


def test_a_list_with_a_bad_name_changes_nothing(rig: Rig) -> None:
    link = rig.connect()
    update = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    mixed = TopicConfigList((TopicConfig("T1"), TopicConfig("no way")))
    assert rig.ask(link, update, body=mixed).code == ResponseCode.SYSTEM_ERROR
    assert "T1" not in topics(rig, link)
    update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    groups = GroupConfigList((SubscriptionGroupConfig("g"), SubscriptionGroupConfig("no way")))
    assert rig.ask(link, update, body=groups).code == ResponseCode.SYSTEM_ERROR
    body = rig.ask(link, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert not fastjson.read(SubscriptionGroupTable, body).subscription_group_table


def test_attributes_of_a_list_are_changes_of_those_that_a_topic_has(rig: Rig) -> None:
    link = rig.connect()

    def change(**attributes: str) -> Command:
        body = TopicConfigList((TopicConfig("T", 1, 1, attributes=attributes),))
        return rig.ask(link, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    assert change(**{"+cleanup.policy": "COMPACTION", "+message.type": "NORMAL"}).code == 0
    assert topics(rig, link)["T"].attributes == {"cleanup.policy": "compact"}
    assert change().code == 0
    assert topics(rig, link)["T"].attributes == {"cleanup.policy": "compact"}
    for wrong in ({"cleanup.policy": "DELETE"}, {"+cleanup.policy": "NEVER"}, {"": ""}):
        assert change(**wrong).code == ResponseCode.SYSTEM_ERROR
    assert change(**{"-cleanup.policy": ""}).code == 0
    assert topics(rig, link)["T"].attributes == {"cleanup.policy": "delete"}


def test_groups_that_nobody_has_configured_are_listed(rig: Rig) -> None:
    link = rig.connect()
    rig.ask(link, CREATE, HEADER)
    rig.beat(link, "c", TOPIC, group="joined")
    commit = {"consumerGroup": "committed", "topic": TOPIC, "queueId": 0, "commitOffset": 0}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    configured = SubscriptionGroupConfig("joined", retry_max_times=3)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=configured)
    body = rig.ask(link, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    assert fastjson.read(SubscriptionGroupTable, body).subscription_group_table == {
        "committed": SubscriptionGroupConfig("committed"),
        "joined": configured,
    }


def test_there_are_no_unused_topics_to_be_cleaned(rig: Rig) -> None:
    assert rig.ask(rig.connect(), RequestCode.CLEAN_UNUSED_TOPIC).code == 0


def test_topics_of_the_system(rig: Rig) -> None:
    body = rig.ask(rig.connect(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body
    names = fastjson.read(TopicList, body).topic_list
    assert {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(names)
    assert names == tuple(sorted(names))


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "__transaction_state", "SCHEDULE_TOPIC_XXXX"]
)
def test_topics_of_the_system_are_neither_changed_nor_deleted(rig: Rig, topic: str) -> None:
    """Groups of Kafka clients would lose their coordinators. The Kafka listener refuses it as well."""
    link = rig.connect()
    for reply in (
        rig.ask(link, CREATE, {**HEADER, "topic": topic}),
        rig.ask(link, DELETE, {"topic": topic}),
    ):
        assert (reply.code, reply.remark) == (
            ResponseCode.INVALID_PARAMETER,
            f"The topic[{topic}] is conflict with system topic.",
        )
