"""Kafka's own command line tools, unmodified, and kcat."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable

import pytest
from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import QUICK_START, QUIET, Running
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


def tool(program: str, *words: object) -> str:
    """What a tool prints; AssertionError with its words when it fails."""
    java = ["java", *QUICK_START, QUIET, "-cp", f"{builds.jars('server', builds.SERVER)}/*"]
    return output([*java, program, *map(str, words)], java_environment())


def output(command: list[str], environment: dict[str, str], text: str = "") -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, env=environment
    )
    assert done.returncode == 0, f"{command[-8:]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def table(text: str) -> list[dict[str, str]]:
    """The rows of what a tool prints in columns."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = next(place for place, words in enumerate(lines) if "TOPIC" in words)
    return [dict(zip(lines[head], words, strict=False)) for words in lines[head + 1 :]]


def test_kafka_topics(cluster: Running, name: str) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    topic = (*server, "--topic", name)
    tool(TOPICS, *topic, "--create", "--partitions", 3, "--config", "max.message.bytes=70000")
    tool(TOPICS, *topic, "--alter", "--partitions", 5)
    until(lambda: "PartitionCount: 5" in tool(TOPICS, *topic, "--describe"), "five partitions")
    assert "max.message.bytes=70000" in tool(TOPICS, *topic, "--describe")
    assert name in tool(TOPICS, *server, "--list").split()
    tool(TOPICS, *topic, "--delete")
    until(lambda: name not in tool(TOPICS, *server, "--list").split(), f"{name} is gone")


def test_kafka_producer_perf_and_consumer_groups(cluster: Running, name: str) -> None:
    server, group = ("--bootstrap-server", cluster.bootstrap), ("--group", f"{name}g")
    tool(TOPICS, *server, "--create", "--topic", name, "--partitions", 3)
    words = ("--topic", name, "--num-records", 5000, "--record-size", 100, "--throughput", -1)
    props = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "linger.ms=5")
    assert "5000 records sent" in tool(f"{TOOLS}.ProducerPerformance", *words, *props)
    read = ("--topic", name, "--from-beginning", "--max-messages", 5000, "--timeout-ms", 30_000)
    text = tool(f"{TOOLS}.consumer.ConsoleConsumer", *server, *group, *read)
    assert [len(line) for line in text.splitlines()] == [100] * 5000
    offsets = tool(f"{TOOLS}.GetOffsetShell", *server, "--topic", name).split()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 5000

    assert f"{name}g" in tool(GROUPS, *server, "--list").split()
    rows = table(tool(GROUPS, *server, *group, "--describe"))
    assert {row["PARTITION"] for row in rows} == {"0", "1", "2"}
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 5000
    assert {row["LAG"] for row in rows} == {"0"}
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--topic", name)
    tool(GROUPS, *server, *group, *reset)
    rows = table(tool(GROUPS, *server, *group, "--describe"))
    assert sum(int(row["LAG"]) for row in rows) == 5000
    tool(GROUPS, *server, *group, "--delete")
    assert f"{name}g" not in tool(GROUPS, *server, "--list").split()


@pytest.fixture(scope="module")
def kcat() -> Callable[..., str]:
    """kcat on a cluster: its output for some words and lines."""

    def run(cluster: Running, *words: str, text: str = "") -> str:
        program, environment = builds.kcat()
        server = [program, "-b", cluster.bootstrap]
        return output([*server, *words], {**os.environ, **environment}, text)

    return run


def test_kcat(cluster: Running, kcat: Callable[..., str], name: str) -> None:
    lines = [f"key {number}:value {number}" for number in range(100)]
    kcat(cluster, "-P", "-t", name, "-K", ":", "-z", "snappy", text="\n".join(lines))
    told = json.loads(kcat(cluster, "-L", "-J", "-t", name))
    assert len(told["brokers"]) == cluster.brokers
    assert [topic["topic"] for topic in told["topics"]] == [name]
    form = ("-f", "%k:%s\n", "-e", "-q")
    assert kcat(cluster, "-C", "-t", name, *form).splitlines() == lines
    assert kcat(cluster, "-C", "-t", name, "-o", "-2", *form).splitlines() == lines[98:]
    early = ("-X", "auto.offset.reset=earliest")
    assert kcat(cluster, "-G", f"{name}g", *early, *form, name).splitlines() == lines
