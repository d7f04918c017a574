"""What operators ask, with Kafka's own tools and AdminClients: the same outcomes at Apache's broker and at two of ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidReplicationAssignmentError, NoReassignmentInProgressError
from tests.peers.kafka.servers import Running
from tests.peers.kafka.test_logins import run_java
from tests.peers.kafka.test_tools import TOOLS, tool
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

CONFIGS = "kafka.admin.ConfigCommand"
NOBODY = 99
"""A node id that no broker has."""
PREFERRED = 0
"""The number of the election that kafka-python has no public name for."""


@pytest.fixture
def topic(cluster: Running, name: str) -> str:
    """A topic with two partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(PATIENCE_S)
    until(lambda: name in admin.list_topics(timeout=5).topics, name)
    return name


def at(cluster: Running) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap


def failing(program: str, *words: object) -> str:
    """What a tool prints that must fail."""
    done: subprocess.CompletedProcess[str] = run_java(program, *map(str, words))
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_kafka_leader_election(cluster: Running, topic: str) -> None:
    words = (*at(cluster), "--election-type", "preferred")
    program = f"{TOOLS}.LeaderElectionCommand"
    told = tool(program, *words, "--topic", topic, "--partition", 0)
    assert f"Valid replica already elected for partitions {topic}-0" in told
    assert tool(program, *words, "--all-topic-partitions") == ""
    told = failing(program, *words, "--topic", "never_made", "--partition", 0)
    assert "UnknownTopicOrPartition" in told


def test_kafka_reassign_partitions(cluster: Running, topic: str, tmp_path: Path) -> None:
    """To where the partition is; to a broker that is not there; and nothing can be cancelled."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    leader = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0].leader
    plan = tmp_path / "plan.json"
    words = (*at(cluster), "--reassignment-json-file", plan)
    program = f"{TOOLS}.reassign.ReassignPartitionsCommand"

    def wish(node_id: int) -> None:
        partitions = [{"topic": topic, "partition": 0, "replicas": [node_id]}]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    wish(leader)
    assert "Successfully started partition reassignment" in tool(program, *words, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in tool(program, *words, "--verify")
    assert "None of the specified partition reassignments" in tool(program, *words, "--cancel")
    assert "No partition reassignments found" in tool(program, *at(cluster), "--list")
    wish(NOBODY)
    assert str(NOBODY) in failing(program, *words, "--execute")


def test_kafka_metadata_quorum(cluster: Running) -> None:
    program = f"{TOOLS}.MetadataQuorumCommand"
    told = tool(program, *at(cluster), "describe", "--status")
    assert "LeaderId:               1" in told
    rows = tool(program, *at(cluster), "describe", "--replication").splitlines()[1:]
    assert [row.split()[0] for row in rows] == [str(each + 1) for each in range(cluster.brokers)]
    assert sum("Leader" in row for row in rows) == 1
    unknown = ("unregister", *at(cluster), "--id", NOBODY)
    assert "not currently registered" in failing(f"{TOOLS}.ClusterTool", *unknown)


def test_kafka_features(cluster: Running) -> None:
    program = f"{TOOLS}.FeatureCommand"
    (line,) = (
        each
        for each in tool(program, *at(cluster), "describe").splitlines()
        if "group.version" in each
    )
    assert "FinalizedVersionLevel: 1" in line
    same = ("upgrade", "--feature", "group.version=1")
    assert "group.version was upgraded to 1" in tool(program, *at(cluster), *same)
    told = failing(program, *at(cluster), "upgrade", "--feature", "never.heard.of=1")
    assert "does not support this feature" in told
    too_much = ("upgrade", "--feature", "group.version=7")
    assert "only supports versions" in failing(program, *at(cluster), *too_much)


def test_kafka_client_metrics_and_delegation_tokens(cluster: Running, tmp_path: Path) -> None:
    metrics = f"{TOOLS}.ClientMetricsCommand"
    assert tool(metrics, *at(cluster), "--list").split() == []
    assert tool(metrics, *at(cluster), "--describe").split() == []
    (tmp_path / "empty").touch()
    words = (*at(cluster), "--describe", "--command-config", tmp_path / "empty")
    told = failing(f"{TOOLS}.DelegationTokenCommand", *words)
    assert "Delegation Token requests are not allowed on PLAINTEXT" in told


def test_kafka_log_dirs(cluster: Running, topic: str) -> None:
    told = tool(f"{TOOLS}.LogDirsCommand", *at(cluster), "--describe", "--topic-list", topic)
    found = json.loads(told.splitlines()[-1])
    places = {
        part["partition"]
        for broker in found["brokers"]
        for folder in broker["logDirs"]
        for part in folder["partitions"]
    }
    assert places == {f"{topic}-0", f"{topic}-1"}


@pytest.fixture
def sort(cluster: Running) -> Iterator[str]:
    """The retention of all brokers, which is as before afterwards."""
    setting = "log.retention.ms"
    yield setting
    words = ("--entity-type", "brokers", "--entity-default", "--delete-config", setting)
    tool(CONFIGS, *at(cluster), "--alter", *words)


def test_kafka_configs_of_brokers(cluster: Running, sort: str) -> None:
    brokers = (*at(cluster), "--entity-type", "brokers")
    tool(CONFIGS, *brokers, "--entity-default", "--alter", "--add-config", f"{sort}=86400001")
    line = f"{sort}=86400001 sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG:"
    until(
        lambda: line in tool(CONFIGS, *brokers, "--entity-default", "--describe"), "the new value"
    )
    everything = tool(CONFIGS, *brokers, "--entity-name", 1, "--describe", "--all")
    assert f"  {sort}=86400001 " in everything
    assert "  node.id=1 sensitive=false synonyms={" in everything
    change = ("--alter", "--add-config", "node.id=2")
    told = failing(CONFIGS, *brokers, "--entity-name", 1, *change)
    assert "Cannot update these configs dynamically" in told
    change = ("--alter", "--add-config", f"{sort}=much")
    assert "Not a number" in failing(CONFIGS, *brokers, "--entity-default", *change)


def test_kafka_configs_of_groups(cluster: Running, name: str) -> None:
    group = (*at(cluster), "--entity-type", "groups", "--entity-name", name)
    setting = "consumer.session.timeout.ms"
    tool(CONFIGS, *group, "--alter", "--add-config", f"{setting}=7000")
    line = f"{setting}=7000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{setting}=7000"
    until(lambda: line in tool(CONFIGS, *group, "--describe"), "the new value")
    told = failing(CONFIGS, *group, "--alter", "--add-config", "consumer.nonsense=1")
    assert "Unknown group config name" in told
    tool(CONFIGS, *group, "--alter", "--delete-config", setting)
    until(lambda: line not in tool(CONFIGS, *group, "--describe"), "the value is gone")


def test_kafka_configs_of_quotas(cluster: Running, name: str) -> None:
    user = (*at(cluster), "--entity-type", "users", "--entity-name", name)
    tool(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=1000,consumer_byte_rate=5")
    described = f"Quota configs for user-principal '{name}' are"
    until(lambda: described in tool(CONFIGS, *user, "--describe"), "the quotas")
    told = tool(CONFIGS, *user, "--describe")
    assert "producer_byte_rate=1000.0" in told
    assert "consumer_byte_rate=5.0" in told
    both = (*user, "--entity-type", "clients", "--entity-default")
    tool(CONFIGS, *both, "--alter", "--add-config", "consumer_byte_rate=7")
    shown = f"Quota configs for user-principal '{name}', the default client-id are"
    until(lambda: shown in tool(CONFIGS, *both, "--describe"), "the quota of both")
    failing(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=0")
    for entity, keys in (
        (user, "producer_byte_rate,consumer_byte_rate"),
        (both, "consumer_byte_rate"),
    ):
        tool(CONFIGS, *entity, "--alter", "--delete-config", keys)
    until(lambda: described not in tool(CONFIGS, *user, "--describe"), "the quotas are gone")


def test_confluents_admin_client(cluster: Running, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(
        PATIENCE_S
    )
    (error,) = found.values()
    assert error.name() == "ELECTION_NOT_NEEDED"
    topics = TopicCollection([topic])
    assert len(admin.describe_topics(topics)[topic].result(PATIENCE_S).partitions) == 2
    resource = ConfigResource(ResourceType.BROKER, "1")
    setting = "message.max.bytes"

    def value() -> tuple[str, bool]:
        entry = admin.describe_configs([resource])[resource].result(PATIENCE_S)[setting]
        return entry.value, entry.is_read_only

    before = value()
    assert before[1] is False

    def change(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(setting, "2000000", incremental_operation=operation)
        wished = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([wished])[wished].result(PATIENCE_S)

    change(AlterConfigOpType.SET)
    until(lambda: value() == ("2000000", False), "the new value")
    change(AlterConfigOpType.DELETE)
    until(lambda: value() == before, "the value from before")


def test_kafka_pythons_admin_client(cluster: Running, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        assert admin.describe_features()["group.version"]["finalized"] == (1, 1)
        assert admin.update_features({"group.version": 1}) == {"group.version": "OK"}
        (quorum,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert len(quorum["current_voters"]) == cluster.brokers
        page = admin.describe_topic_partitions([topic], response_partition_limit=1)
        assert page["topics"][0]["partitions"][0]["partition_index"] == 0
        assert page["next_cursor"]["partition_index"] == 1
        found = admin.elect_leaders(PREFERRED, {topic: [0]}, raise_errors=False)
        assert found.replica_election_results[0].partition_result[0].error_code == 84
        partition = PythonPartition(topic, 0)
        moved = admin.alter_partition_reassignments({partition: [NOBODY]})
        assert moved == {partition: InvalidReplicationAssignmentError}
        cancelled = admin.alter_partition_reassignments({partition: None})
        assert cancelled == {partition: NoReassignmentInProgressError}
        assert admin.list_partition_reassignments() == {}
        assert topic in admin.list_config_resources()["topic"]
    finally:
        admin.close()
