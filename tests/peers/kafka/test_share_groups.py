"""Share groups (KIP-932) of Java's KafkaShareConsumer and Kafka's tools, on Apache Kafka and on Steelyard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.apache import free_port, java_environment
from tests.peers.kafka.servers import STEELYARD, Running
from tests.peers.kafka.share_members import ShareGroup
from tests.peers.kafka.test_tools import TOOLS, table, tool
from tests.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
RECORDS = 10_000
EARLIEST = "share.auto.offset.reset:earliest"
LOCK = "share.record.lock.duration.ms:15000"
"""The shortest time that Apache's brokers allow."""


def create(cluster: Running, topic: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(cluster: Running, topic: str, records: int, partitions: int = 2) -> None:
    """Numbered records, in turn to each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value=str(number), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def test_three_members_accept_each_record_once(cluster: Running, name: str, tmp_path: Path) -> None:
    create(cluster, name)
    with ShareGroup(cluster, name, tmp_path, max_records=100) as group:
        first = group.start("one", settings=EARLIEST)
        until(lambda: first.has("configured"), "the group is configured")
        others = [group.start(each) for each in ("two", "three")]
        produce(cluster, name, RECORDS // 2)
        group.until_all(RECORDS // 2)
        produce(cluster, name, RECORDS // 2)
        counts = group.until_all(RECORDS)
        assert set(counts.values()) == {1}
        assert {number for _, number in counts} == set(range(RECORDS // 2))
        for member in (first, *others):
            member.leave()
            assert not member.has("error")


def test_released_records_come_again_and_rejected_ones_do_not(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    create(cluster, name, 1)
    produce(cluster, name, 20, 1)
    with ShareGroup(cluster, name, tmp_path, mode="explicit", settings=EARLIEST) as group:
        one = group.start("one", verdict="odd")
        until(lambda: len(one.records) >= 20 + 10, "each second record again")
        one.tell("accept")
        counts = group.until_all(20)
        assert all(counts[f"{name}-0", odd] == 1 for odd in range(1, 20, 2))
        assert all(counts[f"{name}-0", even] >= 2 for even in range(0, 20, 2))
        one.tell("reject")
        until(lambda: any(e.get("verdict") == "reject" for e in one.events), "it rejects now")
        produce(cluster, name, 5, 1)
        counts = group.until_all(25)
        one.leave()
        two = group.start("two")
        produce(cluster, name, 1, 1)
        until(lambda: len(two.records) >= 1, "the last record")
        assert two.places()[-1] == (f"{name}-0", 25)
        assert not set(two.places()) & {(f"{name}-0", n) for n in range(20, 25)}


def test_a_record_that_nobody_accepts_is_given_up(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    """Five deliveries by default; then the group goes on behind it."""
    create(cluster, name, 1)
    produce(cluster, name, 1, 1)
    with ShareGroup(cluster, name, tmp_path, mode="explicit", settings=EARLIEST) as group:
        one = group.start("one", verdict="release")
        until(lambda: len(one.records) >= 5, "five deliveries")
        time.sleep(2)
        assert [record["delivery"] for record in one.records] == [1, 2, 3, 4, 5]
        produce(cluster, name, 1, 1)
        until(lambda: len(one.records) > 5, "the next record")
        assert one.records[5]["offset"] == 1


def test_a_record_limit_is_kept(cluster: Running, name: str, tmp_path: Path) -> None:
    create(cluster, name, 1)
    produce(cluster, name, 100, 1)
    options = {"settings": EARLIEST, "acquire_mode": "record_limit", "max_records": 7}
    with ShareGroup(cluster, name, tmp_path, **options) as group:
        group.start("one")
        group.start("two")
        assert set(group.until_all(100).values()) == {1}


def test_a_topic_that_is_deleted_stops_nobody(cluster: Running, name: str, tmp_path: Path) -> None:
    """A member waits for more bytes than there are, of two topics, while one of them is deleted."""
    gone = f"{name}-gone"
    for topic in (name, gone):
        create(cluster, topic)
    options = {"topics": f"{name},{gone}", "settings": EARLIEST, "min_bytes": 1_000_000}
    with ShareGroup(cluster, name, tmp_path, **options) as group:
        for topic in (name, gone):
            produce(cluster, topic, 10)
        member = group.start("one")
        group.until_all(20)
        until(lambda: len(member.taken) >= 20, "all are accepted")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_topics([gone])[gone].result(30)
        for _ in range(3):
            produce(cluster, name, 10)
        group.until_all(50)
        member.leave()


def test_what_a_killed_member_had_goes_to_others(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    create(cluster, name)
    with ShareGroup(cluster, name, tmp_path, settings=f"{EARLIEST};{LOCK}") as group:
        one = group.start("one", holds="first")
        produce(cluster, name, 200)
        until(lambda: one.has("stalled"), "it has records")
        two = group.start("two")
        produce(cluster, name, 200)
        until(lambda: len(two.places()) >= 100, "two reads what it can get")
        held = set(one.places())
        assert held
        assert not held & set(two.places()), "a record was given to two"
        one.kill()
        until(lambda: len({*two.places()}) >= 400, "two gets the rest")
        again = {(r["partition"], r["offset"]) for r in two.records if r["delivery"] >= 2}
        assert held <= again


def test_a_late_acceptance_of_what_others_have_finished_changes_nothing(
    cluster: Running, name: str, tmp_path: Path
) -> None:
    """1. One has records for longer than its lock. 2. Two accepts them. 3. So does one: no error."""
    create(cluster, name, 1)
    produce(cluster, name, 20, 1)
    options = {"mode": "explicit", "settings": f"{EARLIEST};{LOCK}"}
    with ShareGroup(cluster, name, tmp_path, **options) as group:
        one = group.start("one", holds="first")
        until(lambda: one.has("stalled"), "it has records")
        held = set(one.places())
        two = group.start("two")
        until(lambda: held <= set(two.taken), "two has accepted them")
        again = {(r["partition"], r["offset"]) for r in two.records if r["delivery"] >= 2}
        assert held <= again
        one.tell("accept")
        until(lambda: one.has("committed") or one.has("error"), "it is answered")
        assert not one.has("error")
        produce(cluster, name, 1, 1)
        until(lambda: (f"{name}-0", 20) in group.counts(), "the next record")
        assert {place for place in held if two.places().count(place) != 1} == set()


# -- tools -------------------------------------------------------------------------------------------


def test_the_console_share_consumer(cluster: Running, name: str) -> None:
    create(cluster, name)
    server = ("--bootstrap-server", cluster.bootstrap)
    group = ("--group", f"{name}g")
    configs = ("--entity-type", "groups", "--entity-name", f"{name}g")
    setting = ("--add-config", EARLIEST.replace(":", "="))
    tool("kafka.admin.ConfigCommand", *server, *configs, "--alter", *setting)
    told = tool("kafka.admin.ConfigCommand", *server, *configs, "--describe")
    assert EARLIEST.replace(":", "=") in told
    produce(cluster, name, 50)
    read = ("--topic", name, "--max-messages", 50, "--timeout-ms", 30_000)
    text = tool(f"{TOOLS}.consumer.ConsoleShareConsumer", *server, *group, *read)
    assert sorted(map(int, text.split())) == list(range(50))


def test_kafka_share_groups(cluster: Running, name: str, tmp_path: Path) -> None:
    """List, describe, reset-offsets, delete-offsets and delete."""
    create(cluster, name)
    produce(cluster, name, 100)
    server = ("--bootstrap-server", cluster.bootstrap)

    def run(*words: object) -> str:
        return tool(SHARE_GROUPS, *server, *words)

    with ShareGroup(cluster, name, tmp_path, settings=EARLIEST) as group:
        one = group.start("one")
        group.until_all(100)
        until(lambda: len(one.taken) >= 100, "all are accepted")
        named = ("--group", group.group)
        assert group.group in run("--list").split()
        (member,) = [
            line.split()
            for line in run("--describe", *named, "--members").splitlines()[1:]
            if line.strip()
        ][-1:]
        assert group.group in member
        assert "Stable" in run("--describe", *named, "--state")
        one.leave()
    until(lambda: "Empty" in run("--describe", *named, "--state"), "the group is empty")
    rows = table(run("--describe", *named, "--offsets"))
    assert {row["PARTITION"]: row["LAG"] for row in rows} == {"0": "0", "1": "0"}
    if cluster.kind == "steelyard":  # Apache's coordinator is told of a start with the next change
        assert {row["START-OFFSET"] for row in rows} == {"50"}
    reset = ("--reset-offsets", "--to-earliest", "--topic", name, "--execute")
    run(*reset, *named)
    rows = table(run("--describe", *named, "--offsets"))
    assert {row["START-OFFSET"] for row in rows} == {"0"}
    with ShareGroup(cluster, name, tmp_path) as again:
        two = again.start("two")
        assert set(again.until_all(100).values()) == {1}
        two.leave()
    until(lambda: "Empty" in run("--describe", *named, "--state"), "the group is empty")
    run("--delete-offsets", "--topic", name, *named)
    run("--delete", *named)
    assert group.group not in run("--list").split()


# -- a broker that is killed -------------------------------------------------------------------------


class KilledBroker:
    """One broker at fixed ports that is killed and started again on its data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(3)]
        self.cluster = Running("steelyard", f"127.0.0.1:{self.ports[2]}")
        self.start()

    def start(self) -> None:
        nameserver, broker, kafka = map(str, self.ports)
        with (self.folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(str(STEELYARD), "up", "--data", str(self.folder / "data"), "--json"),
                    *("--nameserver-port", nameserver, "--broker-port", broker),
                    *("--kafka-port", kafka),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env=java_environment(),
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "up.log").read_text()[-2000:]
        json.loads(line)

    def kill(self) -> None:
        """SIGKILL to the server and its children, at once. Their ports are free when all have ended."""
        children = psutil.Process(self.process.pid).children()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive


@contextmanager
def killed_broker(folder: Path) -> Iterator[KilledBroker]:
    broker = KilledBroker(folder)
    try:
        yield broker
    finally:
        broker.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process group")
def test_a_broker_that_is_killed_keeps_what_it_answered(name: str, tmp_path: Path) -> None:
    """1. Three members read while records come. 2. The broker is killed twice. 3. All are accepted.

    A record whose acceptance was answered never comes again; one whose answer was lost may.
    """
    with killed_broker(tmp_path) as broker:
        create(broker.cluster, name)
        options = {"max_records": 50}
        with ShareGroup(broker.cluster, name, tmp_path, **options) as group:
            first = group.start("one", settings=EARLIEST)
            until(lambda: first.has("configured"), "the group is configured")
            group.start("two")
            group.start("three")
            for kill in range(2):
                produce(broker.cluster, name, RECORDS // 2)
                group.until_all(kill * RECORDS // 2 + 500, "they read")
                broker.kill()
                taken = [place for member in group.members for place in member.taken]
                seen = [len(member.records) for member in group.members]
                broker.start()
                group.until_all((kill + 1) * RECORDS // 2)
                later = {
                    place
                    for member, before in zip(group.members, seen, strict=True)
                    for place in member.places()[before:]
                }
                assert not later & set(taken), "an answered acceptance was forgotten"
            assert len(group.counts()) == RECORDS
