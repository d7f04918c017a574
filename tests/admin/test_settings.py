"""Commands that show and change settings of topics and groups, and copy offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.waiting import until

from steelyard import Admin, PullConsumer, PushConsumer
from steelyard.admin import exits
from steelyard.errors import BrokerError
from steelyard.types import MessageQueue

Run = Callable[..., list[str]]
Refused = Callable[..., str]

TOPIC = "Settled"
CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture
def admin(nameservers: str) -> Iterator[Admin]:
    with Admin(nameservers) as admin:
        yield admin


def online(admin: Admin, group: str) -> bool:
    """Whether every broker sees a member."""
    with suppress(BrokerError):
        masters = admin.masters("DefaultCluster")
        return all(admin.members(group, address).connection_set for address in masters)
    return False


@pytest.fixture(autouse=True, scope="module")
def topic(nameservers: str) -> None:
    """Of two queues a broker, ordered."""
    with Admin(nameservers) as admin:
        admin.create_topic(TOPIC, queues=2, order=True)


# -- updateTopicPerm -------------------------------------------------------------------------------


def test_a_permission_is_changed_and_nothing_else(run: Run, admin: Admin) -> None:
    masters = admin.masters("DefaultCluster")
    lines = run("updateTopicPerm", "-t", TOPIC, "-p", "4", *CLUSTER)
    assert lines == [f"update topic perm from 6 to 4 in {each} success." for each in masters]
    first, second = masters
    assert run("updateTopicPerm", "-t", TOPIC, "-p", "6", "-b", first) == [
        f"update topic perm from 4 to 6 in {first} success.",
        f"TopicConfig [topicName={TOPIC}, readQueueNums=2, writeQueueNums=2, perm=RW-,"
        " topicFilterType=SINGLE_TAG, topicSysFlag=0, order=true].",
    ]
    assert run("updateTopicPerm", "-t", TOPIC, "-p", "6", "-b", first) == [
        "new perm equals to the old one!"
    ]
    assert [admin.topic_configs(each)[TOPIC].perm for each in masters] == [6, 4]
    document = json.loads("".join(run("updateTopicPerm", "-t", TOPIC, "-p6", *CLUSTER, "--json")))
    assert [(each["address"], each["perm_before"]) for each in document["brokers"]] == [
        (first, 6),
        (second, 4),
    ]
    assert {each["config"]["perm"] for each in document["brokers"]} == {6}


def test_permissions_that_cannot_be_changed(run: Run, refused: Refused, admin: Admin) -> None:
    first, second = admin.masters("DefaultCluster")
    perm = ("updateTopicPerm", "-p", "4")
    assert "perm is 5; it must be 2" in refused("updateTopicPerm", *CLUSTER, "-t", TOPIC, "-p", "5")
    said = refused(*perm, *CLUSTER, "-t", "NoSuch", code=exits.FAILED)
    assert "no route for topic NoSuch" in said
    said = refused(*perm, "-c", "Other", "-t", TOPIC, code=exits.FAILED)
    assert "knows no cluster Other; it knows: DefaultCluster" in said
    run("updateTopic", "-b", first, "-t", "OnlyFirst")
    said = refused(*perm, "-b", second, "-t", "OnlyFirst", code=exits.FAILED)
    assert f"topic OnlyFirst does not exist on {second}" in said
    assert "cannot connect" in refused(*perm, "-b", "127.0.0.1:1", "-t", TOPIC, code=3)


# -- getConsumerConfig, setConsumeMode -------------------------------------------------------------


def test_a_groups_settings_are_shown(run: Run, refused: Refused, admin: Admin) -> None:
    first, _ = admin.masters("DefaultCluster")
    run("updateSubGroup", "-b", first, "-g", "configured", "-r", "3", "-d", "true")
    assert run("getConsumerConfig", "-g", "configured") == [
        "=============================DefaultCluster:broker-a=============================",
        *(
            f"{name:<40}=  {value}"
            for name, value in {
                "groupName": "configured",
                "consumeEnable": "true",
                "consumeFromMinEnable": "false",
                "consumeBroadcastEnable": "true",
                "retryQueueNums": 1,
                "retryMaxTimes": 3,
                "brokerId": 0,
                "whichBrokerWhenConsumeSlowly": 1,
                "notifyConsumerIdsChangedEnable": "true",
            }.items()
        ),
    ]
    document = json.loads("".join(run("getConsumerConfig", "-g", "configured", "--json")))
    (broker,) = document["brokers"]
    assert (broker["cluster"], broker["broker_name"]) == ("DefaultCluster", "broker-a")
    assert broker["config"]["retry_max_times"] == 3
    assert "no broker knows group nobody" in refused(
        "getConsumerConfig", "-g", "nobody", code=exits.FAILED
    )


def test_groups_here_only_pull(refused: Refused, admin: Admin) -> None:
    where = ("-t", TOPIC, "-g", "configured")
    said = refused("setConsumeMode", *CLUSTER, *where, "-m", "POP", code=exits.FAILED)
    assert said.endswith(": this broker does not support consume modes; its groups pull")
    assert "popShareQueueNum is -1" in refused(
        "setConsumeMode", *CLUSTER, *where, "-m", "POP", "-q=-1"
    )


# -- cloneGroupOffset ------------------------------------------------------------------------------


def test_offsets_are_copied(run: Run, refused: Refused, nameservers: str, admin: Admin) -> None:
    queues = [MessageQueue(TOPIC, name, 1) for name in ("broker-a", "broker-b")]
    with PullConsumer("original", nameservers) as consumer:
        for number, queue in enumerate(queues, 1):
            consumer.commit(queue, number)
    clone = ("cloneGroupOffset", "-t", TOPIC)
    assert run(*clone, "-s", "original", "-d", "copy") == [
        f"clone group offset success. srcGroup[original], destGroup=[copy], topic[{TOPIC}]"
    ]
    with PullConsumer("copy", nameservers) as consumer:
        assert [consumer.committed(queue) for queue in queues] == [1, 2]
        assert consumer.committed(MessageQueue(TOPIC, "broker-a", 0)) is None
    document = json.loads("".join(run(*clone, "-s", "copy", "-d", "third", "--json")))
    assert [(row["broker_name"], row["queue_id"], row["offset"]) for row in document["queues"]] == [
        ("broker-a", 1, 1),
        ("broker-b", 1, 2),
    ]
    with PushConsumer("original", nameservers, lambda _: None).subscribe("TBW102"):
        until(lambda: online(admin, "original"), "a member")
        said = refused(*clone, "-s", "original", "-d", "fourth", code=exits.FAILED)
        assert f"no member of group original subscribes to topic {TOPIC}" in said
        run(*clone, "-s", "original", "-d", "fourth", "-o", "true")
    with PushConsumer("third", nameservers, lambda _: None).subscribe(TOPIC):
        until(lambda: online(admin, "third"), "a member")
        said = refused(*clone, "-s", "original", "-d", "third")
        assert "group third has members online, which would keep their own offsets" in said


def test_offsets_that_cannot_be_copied(refused: Refused) -> None:
    clone = ("cloneGroupOffset", "-d", "copied")
    assert "-s and -d are both copied" in refused(*clone, "-s", "copied", "-t", TOPIC)
    for offline in ("false", "true"):
        said = refused(*clone, "-s", "nobody", "-t", TOPIC, "-o", offline, code=exits.FAILED)
        assert f"group nobody has no offsets in topic {TOPIC}" in said
    said = refused(*clone, "-s", "original", "-t", "NoSuch", code=exits.FAILED)
    assert "no route for topic NoSuch" in said
