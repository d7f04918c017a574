"""Apache's rocketmq-exporter, a server for Prometheus that asks brokers as tools do: its figures of our topics and groups.

It is in no registry. Build it from https://github.com/apache/rocketmq-exporter with `mvn -DskipTests package`, and name
the jar in ROCKETMQ_EXPORTER_JAR: `target/rocketmq-exporter-0.0.3-SNAPSHOT-exec.jar`.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.peers import apache
from tests.peers.conftest import Running
from tests.waiting import until

from steelyard import ConsumeFrom, LitePullConsumer, Message, Producer

pytestmark = pytest.mark.peer

JAR = os.environ.get("ROCKETMQ_EXPORTER_JAR", "")
OFTEN = "*/2 * * * * ?"
TASKS = (
    *("collectTopicOffset", "collectConsumerOffset", "collectBrokerStats", "collectProducer"),
    *("collectBrokerStatsTopic", "collectBrokerRuntimeStats"),
)
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Metrics:
    """What it serves now: the sum of the samples of a name that have these labels, and how many there are."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        self._samples = [
            (name, dict(LABEL.findall(labels)), float(value))
            for name, labels, value in SAMPLE.findall(text)
        ]

    def of(self, name: str, **labels: str) -> tuple[int, float]:
        found = [
            value
            for each, own, value in self._samples
            if each == name and labels.items() <= own.items()
        ]
        return len(found), sum(found)


@contextmanager
def exporter(nameserver: str, folder: Path) -> Iterator[str]:
    """The URL of its metrics, once it serves them."""
    port, grpc_port = apache.free_port(), apache.free_port()
    options = [f"--task.{task}.cron={OFTEN}" for task in TASKS]
    options += [f"--rocketmq.config.namesrvAddr={nameserver}"]
    options += [f"--server.port={port}", f"--grpc.server.port={grpc_port}"]
    with (folder / "exporter.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", f"-Duser.home={folder}", "-jar", JAR, *options],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=apache.java_environment(),
        )
    url = f"http://127.0.0.1:{port}/metrics"

    def serves() -> bool:
        assert process.poll() is None, (folder / "exporter.log").read_text()[-2_000:]
        try:
            return Metrics(url).of("rocketmq_brokeruntime_commitlog_maxoffset")[0] > 0
        except OSError:
            return False

    try:
        until(serves, "metrics of the exporter", 300)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not JAR, reason="ROCKETMQ_EXPORTER_JAR does not name Apache's exporter")
@pytest.mark.timeout(600)
def test_its_figures_of_a_topic_and_a_group(cluster: Running, name: str, tmp_path: Path) -> None:
    """1. A topic has ten messages, of which a group has consumed six. 2. The rest is consumed, too."""
    topic, group = f"{name}t", f"{name}g"
    with (
        Producer(
            f"{name}p", cluster.nameserver, send_timeout_ms=apache.SEND_TIMEOUT_MS
        ) as producer,
        exporter(cluster.nameserver, tmp_path) as url,
    ):
        producer.send(topic, b"0")
        queue = producer.queues(topic)[0]
        sent = producer.send_batch(
            [Message(topic, b"%d" % number) for number in range(9)], queue=queue
        )
        consumer = LitePullConsumer(
            group, cluster.nameserver, consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False
        ).subscribe(topic)
        with consumer:
            taken = 0
            while taken < 10:
                taken += len(consumer.poll(500))
            consumer.commit()
            consumer.commit({sent.queue: sent.queue_offset + 5})
            until(
                lambda: Metrics(url).of("rocketmq_group_diff", group=group, topic=topic) == (1, 4),
                "four messages behind",
            )
            own = {"topic": topic, "group": group}
            # Each is a task of its own in the exporter, and in each of its rounds.
            until(lambda: Metrics(url).of("rocketmq_producer_offset", topic=topic)[1] == 10)
            until(lambda: Metrics(url).of("rocketmq_consumer_offset", **own)[1] == 6)
            until(lambda: Metrics(url).of("rocketmq_group_get_latency_by_storetime", **own)[1] > 0)
            consumer.commit()
            until(
                lambda: Metrics(url).of("rocketmq_group_diff", group=group, topic=topic) == (1, 0),
                "nothing behind",
            )
        brokers, _ = Metrics(url).of("rocketmq_brokeruntime_putmessage_times_total")
        assert brokers == len(cluster.brokers)
