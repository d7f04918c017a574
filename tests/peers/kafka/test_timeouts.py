"""Members that fall silent, of every client, lose their partitions; those that wake up come back."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.members import ALL, Client, Group
from tests.peers.kafka.servers import HEARTBEAT_MS, QUICK_START, QUIET, SESSION_MS, Running
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

SILENCE_S = 135.0
"""Longer than RocketMQ's connections may be silent, and shorter than Kafka's."""


@pytest.mark.parametrize("client", ALL, ids=str)
def test_silent_members_are_expelled(
    cluster: Running, client: Client, name: str, tmp_path: Path
) -> None:
    """1. Four share four partitions. 2. One is killed, one is frozen, the application of one stalls. 3. The fourth gets all, not before a
    session has passed. 4. Those that wake up join again. 5. No record is lost."""
    with Group(cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        group.send(partitions)
        for member in ("killed", "frozen", "stalled", "sound"):
            group.join(client, member)
        group.wait_shared(partitions)
        group.wait_read()
        began = time.monotonic()
        group.wait_heard(partitions)  # sessions begin again with what the coordinator hears
        group.members["frozen"].freeze()
        if client.leaves_when_stalled:
            group.members["stalled"].stall()
        else:
            group.leave("stalled")
        group.kill("killed")
        group.wait_shared(partitions, "sound")
        assert time.monotonic() - began >= (SESSION_MS - 2 * HEARTBEAT_MS) / 1000
        group.send(partitions)
        group.members["frozen"].thaw()
        if client.leaves_when_stalled:
            group.members["stalled"].go()
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()


def test_connections_may_be_silent_for_minutes(cluster: Running, name: str, tmp_path: Path) -> None:
    """1. A member of librdkafka stalls. 2. The JoinGroup of another one waits for it. 3. Java's producer has nothing to send.
    4. After two minutes all go on: the members were told no error, and the producer has the connections that it had."""
    errors: list[KafkaError] = []
    java = ["java", *QUICK_START, QUIET, "-cp", f"{builds.jars('server', builds.SERVER)}/*"]
    settings: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": name,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 45_000,
        "max.poll.interval.ms": 300_000,
        "error_cb": errors.append,
        "log_level": 0,
    }
    stalled, waiting = Consumer(settings), Consumer(settings)
    with Group(cluster, name, tmp_path) as group:
        group.send(group.create_topic(name, 2), 1)  # so that both have a leader
        places = [TopicPartition(name, partition) for partition in (0, 1)]

        def stored() -> int:
            return sum(waiting.get_watermark_offsets(place)[1] for place in places)

        producer = subprocess.Popen(
            [
                *(*java, "org.apache.kafka.tools.ConsoleProducer", "--sync", "--topic", name),
                *("--bootstrap-server", cluster.bootstrap, "--command-property", "retries=0"),
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=java_environment(),
        )
        running = psutil.Process(producer.pid)
        assert producer.stdin is not None
        try:
            producer.stdin.write(b"before\n")
            producer.stdin.flush()
            until(lambda: stored() == 3, "the first record of Java")
            connections = {each.laddr for each in running.net_connections("tcp")}
            stalled.subscribe([name])
            until(lambda: stalled.poll(0.1) is None and len(stalled.assignment()) == 2)
            waiting.subscribe([name])
            end = time.monotonic() + SILENCE_S
            until(lambda: waiting.poll(1) is None and time.monotonic() > end, seconds=2 * SILENCE_S)
            assert {each.laddr for each in running.net_connections("tcp")} == connections
            producer.stdin.write(b"after\n")
            producer.stdin.close()
            assert producer.wait(PATIENCE_S) == 0
            assert stored() == 4
        finally:
            producer.kill()
            producer.wait()

        def both_have_one() -> bool:
            for member in (stalled, waiting):
                member.poll(0.1)
            return len(stalled.assignment()) == len(waiting.assignment()) == 1

        until(both_have_one, "each has one of the partitions")
        for member in (stalled, waiting):
            member.close()
        assert errors == []
