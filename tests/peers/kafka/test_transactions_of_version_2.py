"""KIP-890 with Apache's own clients and tools, 4.3.1: each end of a transaction bumps the epoch, and nothing hangs."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.confluent import Confluent
from tests.clients.kafka_python import KafkaPython
from tests.clients.test_kills import Brokers
from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import QUICK_START, QUIET, Running, run_steelyard
from tests.peers.kafka.test_tools import TOOLS, tool
from tests.waiting import PATIENCE_S, until

from steelyard import PullConsumer
from steelyard.driver.blocking_links import KafkaLink, connect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.records import TRANSACTIONAL, Record, write_batch

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

PARTITIONS = 4
KILLS = {40: 1, 90: 2, 140: 1}
"""After how many transactions which broker is killed."""


class Transformer:
    """`Transformer.java` in a process; `events` are as it told them."""

    def __init__(self, bootstrap: str, name: str, count: int, version: str) -> None:
        self.events: list[dict[str, Any]] = []
        java = ["java", *QUICK_START, QUIET, "-cp", builds.java_classes(version)]
        self._process = subprocess.Popen(
            [*java, "Transformer", bootstrap, name, str(count)],
            stdout=subprocess.PIPE,
            env=java_environment(),
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def told(self, event: str) -> int:
        return sum(each["event"] == event for each in self.events)

    def wait(self, event: str, count: int = 1, patience_s: float = PATIENCE_S) -> None:
        until(lambda: self.told(event) >= count, f"{count} times {event}", patience_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def transformer(
    bootstrap: str, name: str, count: int, version: str = builds.SERVER
) -> Iterator[Transformer]:
    running = Transformer(bootstrap, name, count, version)
    try:
        yield running
    finally:
        running.kill()


def prepare(bootstrap: str, name: str, records: int) -> None:
    """The topics, and numbers in the source."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{name}-{each}", PARTITIONS, 1) for each in ("source", "target")]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(records):
        producer.produce(f"{name}-source", str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int) -> list[list[int]]:
    """The committed numbers of each partition, `count` in all and no more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ends: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ends) < PARTITIONS or sum(map(len, found)) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, found))} of {count} records"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            ends.add(message.partition() or 0)
        else:
            ends.discard(message.partition() or 0)
            found[message.partition() or 0].append(int(message.value() or b""))
    consumer.close()
    return found


def read_by_rocketmq(nameserver: str, topic: str) -> list[int]:
    """The numbers that RocketMQ's clients get, sorted."""
    found: list[int] = []
    with PullConsumer("readers", nameserver) as consumer:
        for queue in consumer.queues(topic):
            offset = consumer.min_offset(queue)
            while offset < consumer.max_offset(queue):
                pulled = consumer.pull(queue, offset, max_messages=32)
                found += [int(message.body) for message in pulled.messages]
                offset = pulled.next_begin_offset
    return sorted(found)


def described(bootstrap: str, name: str) -> dict[str, str]:
    """What kafka-transactions describe says of a transactional id."""
    server = ("--bootstrap-server", bootstrap)
    text = tool(f"{TOOLS}.TransactionsCommand", *server, "describe", "--transactional-id", name)
    head, row = (line.split() for line in text.splitlines()[-2:])
    return dict(zip(head, row, strict=False))  # the last column may be empty


def verify(cluster: Running, name: str) -> None:
    """Each number that was consumed is in the target once, and the offsets say the same."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = ConsumerGroupTopicPartitions(f"{name}-group")
    (listed,) = admin.list_consumer_group_offsets([asked]).values()
    offsets = {each.partition: each.offset for each in listed.result(30).topic_partitions}
    consumed = [max(offsets.get(number, 0), 0) for number in range(PARTITIONS)]
    found = read(cluster.bootstrap, f"{name}-target", sum(consumed))
    assert [len(numbers) for numbers in found] == consumed
    for partition, numbers in enumerate(found):
        assert numbers == [partition + PARTITIONS * place for place in range(len(numbers))]
    if cluster.nameserver:
        everything = sorted(number for numbers in found for number in numbers)
        assert read_by_rocketmq(cluster.nameserver, f"{name}-target") == everything


@pytest.mark.parametrize(
    ("version", "bumps"), [(builds.SERVER, True), (builds.NEW, True), (builds.OLD, False)]
)
def test_each_end_bumps_the_epoch(cluster: Running, version: str, bumps: bool, name: str) -> None:
    """Of a client that knows version 2; one of 3.9 keeps its epoch, in the same cluster."""
    prepare(cluster.bootstrap, name, 400)
    with transformer(cluster.bootstrap, name, 30, version) as running:
        running.wait("done")
        assert running.told("failed") == 0
        found = described(cluster.bootstrap, f"{name}-id")
        assert found["ProducerEpoch"] == ("30" if bumps else "0")
        assert found["TransactionState"] == "CompleteAbort"
        listed = tool(
            f"{TOOLS}.TransactionsCommand", "--bootstrap-server", cluster.bootstrap, "list"
        )
        (row,) = [line.split() for line in listed.splitlines() if f"{name}-id" in line.split()]
        assert row[2:] == [found["ProducerId"], "CompleteAbort"]
        verify(cluster, name)


def test_200_transactions_while_brokers_are_killed(tmp_path: Path, name: str) -> None:
    """Both brokers get SIGKILL in turn, under a client of version 2; then another one takes over its id."""
    brokers = Brokers(tmp_path)
    bootstrap = brokers.running.bootstrap
    prepare(bootstrap, name, 1_600)
    with transformer(bootstrap, name, 200) as running:
        for count, node_id in KILLS.items():
            running.wait("ended", count, 120)
            brokers.kill(node_id)
            time.sleep(0.5)
            brokers.start(node_id)
        running.wait("done", patience_s=200)
        assert running.told("fenced") == 0
        print(f"{running.told('ended')} ended, {running.told('failed')} failed")
        verify(brokers.running, name)
        ends = running.told("ended") + running.told("failed")
        assert int(described(bootstrap, f"{name}-id")["ProducerEpoch"]) >= ends - 1
    brokers.stop()


def test_a_second_producer_fences_one_that_still_writes(cluster: Running, name: str) -> None:
    prepare(cluster.bootstrap, name, 4_000)
    with transformer(cluster.bootstrap, name, 10_000) as first:
        first.wait("ended", 10)
        with transformer(cluster.bootstrap, name, 30) as second:
            second.wait("done")
            first.wait("fenced")
            assert second.told("failed") == 0
            verify(cluster, name)


def test_clients_of_both_versions_use_one_id(cluster: Running, name: str) -> None:
    """Java 4.3, Java 3.9, librdkafka and kafka-python in turn; each fences the one before."""
    prepare(cluster.bootstrap, name, 400)
    epochs = [-1]
    for version in (builds.SERVER, builds.OLD, builds.SERVER):
        with transformer(cluster.bootstrap, name, 6, version) as running:
            running.wait("done")
        epochs.append(int(described(cluster.bootstrap, f"{name}-id")["ProducerEpoch"]))
        for kind in (Confluent, KafkaPython):
            library = kind(cluster.bootstrap)
            transaction = library.transaction(f"{name}-id")
            for _ in range(2):
                transaction.begin()
                transaction.send(f"{name}-target", [b"-1"])
                transaction.abort()
            epochs.append(int(described(cluster.bootstrap, f"{name}-id")["ProducerEpoch"]))
            transaction.close()
            library.close()
        verify(cluster, name)
    assert epochs == sorted(set(epochs))
    # 6 ends of version 2 after the first epoch; the others take one epoch each.
    assert epochs[1] == 6


def test_the_features_are_changed_with_kafka_features(tmp_path: Path, name: str) -> None:
    """Level 1 and the client keeps its epoch, level 2 again and it does not; restarts keep the level."""
    with run_steelyard(tmp_path, brokers=2) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        features = f"{TOOLS}.FeatureCommand"

        def level() -> str:
            text = tool(features, *server, "describe")
            (line,) = [each for each in text.splitlines() if "transaction.version" in each]
            words = line.split()
            return " ".join(
                words[place + 1] for place, word in enumerate(words) if word.endswith(":")
            )

        assert level() == "transaction.version 0 2 2 0"
        prepare(cluster.bootstrap, name, 1_000)
        ended = 0
        for change, expected in ((None, 6), ("downgrade", 7), ("upgrade", 14)):
            if change is not None:
                to = 1 if change == "downgrade" else 2
                tool(features, *server, change, "--feature", f"transaction.version={to}")
                assert level().startswith(f"transaction.version 0 2 {to} ")
            with transformer(cluster.bootstrap, name, 6) as running:
                running.wait("done")
            ended += 6
            found = described(cluster.bootstrap, f"{name}-id")
            assert int(found["ProducerEpoch"]) == expected, change
            verify(cluster, name)
        with pytest.raises(AssertionError, match="only supports versions 0-2"):
            tool(features, *server, "upgrade", "--feature", "transaction.version=3")
        tool(features, *server, "disable", "--feature", "transaction.version")
        assert level().startswith("transaction.version 0 2 0 ")
    with run_steelyard(tmp_path, brokers=2) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        assert level().startswith("transaction.version 0 2 0 ")


def test_hanging_transactions_are_found_and_aborted(tmp_path: Path, name: str) -> None:
    """kafka-transactions list, find-hanging and abort; such a transaction needs a broker that does not verify."""
    options = ("--kafka-set", "transaction.partition.verification.enable=false")
    with run_steelyard(tmp_path, *options) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        command = f"{TOOLS}.TransactionsCommand"
        prepare(cluster.bootstrap, name, 4)
        topic = f"{name}-target"
        hours_ago = int(time.time() * 1000) - 5 * 3_600_000
        batch = write_batch(
            [Record(0, hours_ago, None, b"7")],
            producer_id=77,
            producer_epoch=3,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        )
        part = TopicProduceData(topic, partition_data=[PartitionProduceData(1, batch)])
        link = KafkaLink(cluster.bootstrap, connect(cluster.bootstrap, 10_000), "late")
        request = ProduceRequest("late", -1, 1_000, [part])
        answer = link.call(PRODUCE, 11, request, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        link.close()

        def hanging() -> list[list[str]]:
            text = tool(command, *server, "find-hanging", "--topic", topic, "--partition", 1)
            return [line.split() for line in text.splitlines()[1:] if line.strip()]

        ((found_topic, partition, producer_id, epoch, _, start, *_),) = hanging()
        assert (found_topic, partition, producer_id, epoch) == (topic, "1", "77", "3")
        where = ("--topic", topic, "--partition", 1, "--start-offset", start)
        tool(command, *server, "abort", *where)
        assert hanging() == []
