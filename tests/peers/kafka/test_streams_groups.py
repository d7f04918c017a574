"""Kafka Streams with group.protocol=streams (KIP-1071), unmodified, on Apache Kafka, the control, and on ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from tests.clients.test_kills import Brokers
from tests.peers.apache import free_port, java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import HEARTBEAT_MS, QUICK_START, SESSION_MS, Running
from tests.peers.kafka.streams_apps import WordCount, all_tasks
from tests.peers.kafka.test_tools import TOOLS, tool
from tests.waiting import until

pytestmark = pytest.mark.peer

GROUPS = f"{TOOLS}.streams.StreamsGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def rows(text: str) -> list[list[str]]:
    """The lines of a table that a tool prints, without its head, in words."""
    return [line.split() for line in text.splitlines() if line.strip()][1:]


def test_instances_come_go_and_die(cluster: Running, name: str, tmp_path: Path) -> None:
    """1. One instance. 2. Two more join. 3. One is killed. 4. One leaves. The counts are exactly those of the input."""
    with WordCount(cluster, name, tmp_path, processing_guarantee="exactly_once_v2") as app:
        app.send()
        app.start("one")
        app.wait_counted()
        app.wait_shared(all_tasks(4), "one")
        app.start("two")
        app.start("three")
        app.wait_shared(all_tasks(4), "one", "two", "three")
        app.send()
        app.wait_counted()
        app.send()
        app.kill("one")
        app.send()
        app.wait_shared(all_tasks(4), "two", "three")
        app.wait_counted()
        app.leave("two")
        app.send()
        app.wait_counted()
        assert app.tasks() == {"three": all_tasks(4)}


def test_threads_standbys_and_endpoints(cluster: Running, name: str, tmp_path: Path) -> None:
    """With the standbys that the group's setting asks for, and what instances know of each other for interactive queries.

    Apache's coordinator tells an endpoint once for each thread, of which the client 4.3.1 keeps the last."""
    threads = 2 if cluster.kind == "steelyard" else 1
    setting = "streams.num.standby.replicas=1"
    words = ("--entity-type", "groups", "--entity-name", name, "--alter", "--add-config", setting)
    tool(CONFIGS, "--bootstrap-server", cluster.bootstrap, *words)
    places = {each: f"127.0.0.1:{free_port()}" for each in ("one", "two")}
    with WordCount(cluster, name, tmp_path, num_stream_threads=threads) as app:
        app.send()
        for each, place in places.items():
            app.start(each, application_server=place)
        stateful = {task for task in all_tasks(4) if task.startswith("1_")}

        def are_there() -> bool:
            active, standby = app.tasks(), app.tasks("standby")
            return (
                active["one"] | active["two"] == all_tasks(4)
                and not active["one"] & active["two"]
                and standby["one"] == active["two"] & stateful
                and standby["two"] == active["one"] & stateful
            )

        until(are_there, app)
        app.wait_counted()

        def know_each_other() -> bool:
            wanted = {
                place: {f"{app.source}-{task[2:]}" for task in app.tasks()[each] if task[0] == "0"}
                for each, place in places.items()
            }
            for each in places:
                told = app.asked(each, "endpoints")["endpoints"]
                found = {place: set(partitions) for place, partitions in told.items()}
                if found.keys() != wanted.keys() or not all(
                    wanted[place] <= found[place] for place in wanted
                ):
                    return False
            return True

        until(know_each_other, app)


def test_repartition_topics_with_other_partitions(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    with WordCount(cluster, name, tmp_path, partitions=3, repartitions=5) as app:
        app.send()
        app.start("one")
        app.wait_counted()
        (tasks,) = app.tasks().values()
        assert tasks == {f"0_{number}" for number in range(3)} | {
            f"1_{number}" for number in range(5)
        }
        described = tool(
            CONFIGS,
            *("--bootstrap-server", cluster.bootstrap, "--describe", "--entity-type", "topics"),
            *("--entity-name", f"{name}-counts-changelog"),
        )
        assert "cleanup.policy=compact" in described


def test_the_tool(cluster: Running, name: str, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    group = (*server, "--group", name)
    with WordCount(cluster, name, tmp_path, partitions=2) as app:
        app.send()
        app.start("one")
        app.wait_counted()
        assert [name, "Stable"] in rows(tool(GROUPS, *server, "--list", "--state"))
        (state,) = rows(tool(GROUPS, *group, "--describe", "--state"))
        assert (state[0], *state[-2:]) == (name, "Stable", "1")
        (member,) = rows(tool(GROUPS, *group, "--describe", "--members"))
        assert member[0] == name
        assert "0:[0,1];" in "".join(member)

        def lags() -> dict[str, list[str]]:
            return {
                f"{row[1]}-{row[2]}": row[3:]
                for row in rows(tool(GROUPS, *group, "--describe", "--offsets"))
            }

        until(lambda: {row[-1] for row in lags().values()} == {"0"}, "all is committed")
        assert {each for each in lags() if each.startswith(app.source)} == {
            f"{app.source}-0",
            f"{app.source}-1",
        }
        app.leave("one")
        tool(
            GROUPS,
            *group,
            "--reset-offsets",
            "--to-earliest",
            "--execute",
            "--input-topic",
            app.source,
        )
        asked = [ConsumerGroupTopicPartitions(name)]
        (committed,) = app.admin.list_consumer_group_offsets(asked).values()
        offsets = {
            each.offset for each in committed.result().topic_partitions if each.topic == app.source
        }
        assert offsets == {0}
        tool(GROUPS, *group, "--delete")
        assert name not in tool(GROUPS, *server, "--list").split()


def coordinator_records(cluster: Running, group: str) -> list[dict[str, str]]:
    """The records about a streams group in __consumer_offsets, as Kafka's own coordinator reads them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{group}-records"})
    topic = consumer.list_topics("__consumer_offsets", timeout=30).topics["__consumer_offsets"]
    lines: list[str] = []
    for number in topic.partitions:
        place = TopicPartition(topic.topic, number)
        place.offset, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        while place.offset < end and (message := consumer.poll(5)) is not None:
            key, value, offset = message.key(), message.value(), message.offset()
            assert offset is not None
            place.offset = offset + 1
            if key is not None and int.from_bytes(key[:2], "big") in (17, 19, 20, 21, 22, 23):
                lines.append(f"{key.hex()} {value.hex() if value is not None else '-'}")
    consumer.close()
    done = subprocess.run(
        ["java", *QUICK_START, "-cp", builds.record_classes(), "Records"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        env=java_environment(),
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return [each for each in told if f"groupId='{group}'" in each["key"]]


def test_kafkas_coordinator_reads_the_records(cluster: Running, name: str, tmp_path: Path) -> None:
    with WordCount(cluster, name, tmp_path, partitions=2) as app:
        app.send()
        app.start("one")
        app.wait_counted()
        latest = {each["type"]: each["value"] for each in coordinator_records(cluster, name)}
        assert latest.keys() == {
            "StreamsGroupMetadataKey",
            "StreamsGroupMemberMetadataKey",
            "StreamsGroupTopologyKey",
            "StreamsGroupTargetAssignmentMemberKey",
            "StreamsGroupTargetAssignmentMetadataKey",
            "StreamsGroupCurrentMemberAssignmentKey",
        }
        assert "validatedTopologyEpoch=0" in latest["StreamsGroupMetadataKey"]
        assert "key='num.standby.replicas', value='0'" in latest["StreamsGroupMetadataKey"]
        for kind in ("Topology", "TargetAssignmentMember", "CurrentMemberAssignment"):
            assert "subtopologyId='1'" in latest[f"StreamsGroup{kind}Key"]
        assert "state=1" in latest["StreamsGroupCurrentMemberAssignmentKey"]
        assert f"{name}-counts-changelog" in latest["StreamsGroupTopologyKey"]
        app.leave("one")
        after = {each["type"]: each["value"] for each in coordinator_records(cluster, name)}
        assert after["StreamsGroupCurrentMemberAssignmentKey"] == ""
        assert after["StreamsGroupTopologyKey"] == latest["StreamsGroupTopologyKey"]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(
        tmp_path,
        *("--kafka-set", f"group.streams.session.timeout.ms={SESSION_MS}"),
        *("--kafka-set", f"group.streams.heartbeat.interval.ms={HEARTBEAT_MS}"),
    )
    yield brokers
    brokers.stop()


def test_killed_brokers_lose_and_repeat_nothing(
    brokers: Brokers, name: str, tmp_path: Path
) -> None:
    """1. Two instances count. 2. Each broker is killed in turn, and started again, while lines come in. 3. An instance is
    killed while a broker is away. The counts are exactly those of the input."""
    guarantee = "exactly_once_v2"
    with WordCount(brokers.running, name, tmp_path, processing_guarantee=guarantee) as app:
        app.send()
        app.start("one")
        app.start("two")
        app.wait_counted()
        for killed in (1, 2):
            app.send()
            brokers.kill(killed)
            brokers.start(killed)
            app.send()
            app.wait_counted()
        app.wait_shared(all_tasks(4), "one", "two")
        app.send()
        brokers.kill(2)
        app.kill("one")
        brokers.start(2)
        app.send()
        app.wait_counted()
        assert app.tasks() == {"two": all_tasks(4)}
