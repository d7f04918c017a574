"""Settings of topics, with confluent-kafka: the same at Apache's broker and at two of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]
from tests.peers.apache import NEW, Peer
from tests.peers.kafka.servers import Running, run_steelyard
from tests.waiting import PATIENCE_S, until

from steelyard import Admin

pytestmark = pytest.mark.peer


@pytest.fixture
def admin(cluster: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, name: str, settings: dict[str, str]) -> None:
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(PATIENCE_S)
    until(lambda: name in admin.list_topics(timeout=5).topics, name)


def test_blanks_and_case_do_not_matter(admin: AdminClient, name: str) -> None:
    create(admin, name, {"preallocate": "False", "message.timestamp.type": " LogAppendTime "})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    configs = found.result(PATIENCE_S)
    assert configs["preallocate"].value == "false"
    assert configs["message.timestamp.type"].value == "LogAppendTime"


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "1_000"},
        {"preallocate": "yes"},
        {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_values_that_cannot_be(admin: AdminClient, name: str, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, name, settings)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_mqadmins_list_of_topics_leaves_kafkas_settings(
    peers: dict[str, Peer], name: str, tmp_path: Path
) -> None:
    """updateTopicList of RocketMQ 5.x names attributes to change; the others, Kafka's settings among them, stay."""
    wanted = {
        "topicName": name,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 4,
        "attributes": {"+message.type": "FIFO"},
    }
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([wanted]))
    with run_steelyard(tmp_path / "up") as running, Admin(running.nameserver) as ours:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        create(admin, name, {"retention.ms": "86400000"})
        (leader,) = ours.route(name).broker_datas
        broker = leader.broker_addrs[0]
        before = ours.topic_configs(broker)[name].attributes
        assert before["retention.ms"] == "86400000"
        text = peers[NEW].mqadmin(
            "updateTopicList", "-n", running.nameserver, "-b", broker, "-f", file
        )
        assert "success" in text
        config = ours.topic_configs(broker)[name]
    assert config.perm == 4
    assert config.attributes == before
