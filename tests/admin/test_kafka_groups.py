"""What the command line tells of Kafka groups: why they rebalance, whom they wait for, how far they have come."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.admin.conftest import Run
from tests.api.conftest import Servers
from tests.api.kafka import KafkaServers
from tests.waiting import PATIENCE_S, until

from steelyard import Admin, PullConsumer, PushConsumer, RouteError
from steelyard.admin.main import main
from steelyard.groups.doctor import Ailment
from steelyard.groups.kafka.report import KafkaGroup
from steelyard.types import TopicPartition
from steelyard.wire.kafka.frame import ReplyDecoder, Request, encode, read_reply
from steelyard.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

_serial = count(1)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """Their members join and beat only when a test says so: no answer waits for another."""
    servers = KafkaServers(tmp_path_factory.mktemp("brokers"), delayed_answers=False)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def nameservers(servers: KafkaServers) -> str:
    return servers.nameservers


@pytest.fixture
def topic(servers: KafkaServers) -> str:
    """Two partitions, one on each broker, with three messages in the first."""
    topic = servers.topic(f"orders{next(_serial)}", 2)
    servers.fill(topic, range(3), partitions=1)
    return topic


def coordinator(servers: KafkaServers, group: str) -> tuple[str, int]:
    """The broker that coordinates a group."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})
    (asked,) = admin.describe_consumer_groups([group]).values()
    node = asked.result(60).coordinator
    return node.host, node.port


class Member:
    """A Kafka client that does what the test says and nothing else: it sends no heartbeat on its own."""

    def __init__(self, servers: KafkaServers, group: str, client_id: str) -> None:
        self.group = group
        self.client_id = client_id
        self.member_id = ""
        self.epoch = 0
        self._socket = socket.create_connection(coordinator(servers, group), 30)
        self._decoder = ReplyDecoder()
        self._sent: list[tuple[Api, int]] = []

    def send(self, api: Api, version: int, message: ApiMessage) -> None:
        self._sent.append((api, version))
        request = Request(api, version, len(self._sent), self.client_id, message)
        self._socket.sendall(encode(request))

    def reply(self) -> Any:
        """The answer to the last request."""
        replies: list[Any] = []
        while not replies:
            data = self._socket.recv(65_536)
            assert data, "the broker hung up"
            replies = self._decoder.feed(data)
        (reply,) = replies
        message: Any = read_reply(*self._sent[-1], reply)
        assert getattr(message, "error_code", 0) == 0, message
        return message

    def ask(self, api: Api, version: int, message: ApiMessage) -> Any:
        self.send(api, version, message)
        return self.reply()

    # -- classic -----------------------------------------------------------------------------------

    def join(self, topic: str) -> None:
        """Sends JoinGroup; `joined` waits for the answer."""
        metadata = write_subscription(ConsumerProtocolSubscription((topic,)))
        protocols = (JoinGroupRequestProtocol("range", metadata),)
        request = JoinGroupRequest(
            self.group, 30_000, 60_000, self.member_id, None, "consumer", protocols
        )
        self.send(JOIN_GROUP, 3, request)

    def joined(self) -> int:
        """The generation it is in."""
        answer = self.reply()
        self.member_id = answer.member_id
        generation: int = answer.generation_id
        return generation

    def sync(self, generation: int, topic: str, shares: dict[str, tuple[int, ...]]) -> None:
        assignments = tuple(
            SyncGroupRequestAssignment(
                member_id,
                write_assignment(ConsumerProtocolAssignment((TopicPartitions(topic, share),))),
            )
            for member_id, share in shares.items()
        )
        request = SyncGroupRequest(self.group, generation, self.member_id, assignments=assignments)
        self.ask(SYNC_GROUP, 1, request)

    def commit(self, generation: int, topic: str, partition: int, offset: int) -> None:
        rows = (OffsetCommitRequestPartition(partition, offset),)
        topics = (OffsetCommitRequestTopic(topic, partitions=rows),)
        request = OffsetCommitRequest(self.group, generation, self.member_id, topics=topics)
        self.ask(OFFSET_COMMIT, 2, request)

    def leave(self) -> None:
        self.ask(LEAVE_GROUP, 1, LeaveGroupRequest(self.group, self.member_id))

    # -- the new protocol --------------------------------------------------------------------------

    def beat(self, topic: str) -> None:
        """A heartbeat of a member that gives up nothing."""
        names = (topic,) if not self.epoch else None
        owned = () if not self.epoch else None
        request = ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=60_000 if not self.epoch else -1,
            subscribed_topic_names=names,
            topic_partitions=owned,
        )
        answer = self.ask(CONSUMER_GROUP_HEARTBEAT, 0, request)
        self.member_id, self.epoch = answer.member_id, answer.member_epoch

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def member(servers: KafkaServers) -> Iterator[Callable[[str, str], Member]]:
    made: list[Member] = []

    def make(group: str, client_id: str) -> Member:
        made.append(Member(servers, group, client_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


def wait_for(run: Run, group: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The report of a group when it is as it should be."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        report: dict[str, Any] = json.loads("\n".join(run("kafkaGroup", "-g", group, "--json")))
        if holds(report):
            return report
        assert time.monotonic() < deadline, report


def test_who_does_not_rejoin_is_named(
    servers: KafkaServers, run: Run, topic: str, member: Callable[[str, str], Member]
) -> None:
    """1. One member has everything. 2. Another joins: the group waits for the first, which says nothing. 3. It rejoins."""
    first, second = member("slow", "dawdler"), member("slow", "hasty")
    first.join(topic)
    generation = first.joined()
    first.sync(generation, topic, {first.member_id: (0, 1)})
    first.commit(generation, topic, 0, 1)
    assert run("kafkaGroup", "-g", "slow")[0].startswith(
        "group slow: Stable, classic, generation 1, range, coordinated by broker-"
    )
    assert "it waits for no member" in run("kafkaGroup", "-g", "slow")
    second.join(topic)
    report = wait_for(run, "slow", lambda report: bool(report["awaited"]))
    assert report["state"] == "PreparingRebalance"
    (awaited,) = report["awaited"]
    assert awaited["member_id"] == first.member_id
    assert (awaited["client_id"], awaited["what"]) == ("dawdler", "JoinGroup")
    assert report["began_at"] <= awaited["since"] < awaited["until"]
    assert [each["trigger"] for each in report["rebalances"]] == ["joined", "joined"]
    lines = run("kafkaGroup", "-g", "slow")
    at = lines.index("it waits for:")
    assert lines[at + 1].startswith(f"  {first.member_id} (dawdler/127.0.0.1): JoinGroup, for ")
    assert ", will be removed in " in lines[at + 1]
    assert "rebalancing for " in lines[1]
    why = lines[lines.index("recent rebalances and their causes, latest last:") + 2]
    assert re.search(r"generation 1  hasty-\S+ \(/127.0.0.1\) joined", why)
    assert "joined: " not in why
    first.join(topic)
    generation = first.joined()
    assert second.joined() == generation == 2
    first.sync(generation, topic, {first.member_id: (0,), second.member_id: (1,)})
    second.sync(generation, topic, {})
    report = wait_for(run, "slow", lambda report: report["state"] == "Stable")
    assert report["awaited"] == []
    assert report["began_at"] is None
    assert {one["client_id"]: one["partitions"] for one in report["members"]} == {
        "dawdler": [[topic, 0]],
        "hasty": [[topic, 1]],
    }


def test_who_does_not_give_up_partitions_is_named(
    run: Run, topic: str, member: Callable[[str, str], Member]
) -> None:
    """The same with the new protocol: the first has been told to give up one partition and has not."""
    first, second = member("new", "holder"), member("new", "waiter")
    first.beat(topic)
    second.beat(topic)
    first.beat(topic)
    report = wait_for(run, "new", lambda report: bool(report["awaited"]))
    assert (report["kind"], report["state"]) == ("consumer", "Reconciling")
    (awaited,) = report["awaited"]
    assert (awaited["member_id"], awaited["client_id"]) == (first.member_id, "holder")
    assert awaited["what"] in (f"to give up {topic}-0", f"to give up {topic}-1")
    assert awaited["since"] == report["began_at"] < awaited["until"]
    lines = run("kafkaGroup", "-g", "new")
    assert "Reconciling, consumer, epoch" in lines[0]
    assert f"(holder/127.0.0.1): {awaited['what']}, for " in lines[lines.index("it waits for:") + 1]


def test_progress_covers_kafka_groups(
    servers: KafkaServers, run: Run, topic: str, member: Callable[[str, str], Member]
) -> None:
    """Partitions are on both brokers, whichever coordinates; the columns are mqadmin's."""
    one = member("progress", "reader")
    one.join(topic)
    generation = one.joined()
    one.sync(generation, topic, {one.member_id: (0, 1)})
    one.commit(generation, topic, 0, 1)
    one.commit(generation, topic, 1, 0)
    with Admin(servers.nameservers) as admin:
        report = admin.kafka_group("progress")
        progress = admin.consumer_progress("progress")
        assert KafkaGroup("progress", "classic", "Stable", 1, report.coordinator) in (
            admin.kafka_groups()
        )
        with pytest.raises(RouteError, match="no broker coordinates a Kafka group nobody"):
            admin.kafka_group("nobody")
        with pytest.raises(RouteError, match="no broker knows group nobody"):
            admin.consumer_progress("nobody")
        with pytest.raises(RouteError, match="no broker knows group progress"):
            admin.consumer_progress("progress", "another")
    assert report.members[0].partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    rows = [(row.partition, row.offset, row.end_offset, row.lag) for row in report.offsets]
    assert rows == [(0, 1, 3, 2), (1, 0, 0, 0)]
    assert len({row.broker_name for row in report.offsets}) == 2
    assert sorted((row.broker_offset, row.consumer_offset) for row in progress.queues) == [
        (0, 0),
        (3, 1),
    ]
    assert {row.client_id for row in progress.queues} == {"reader"}
    lines = run("consumerProgress", "-g", "progress")
    assert lines[0].split("  ")[0].strip() == "#Topic"
    assert lines[-1] == "Diff Total: 2"
    (listed,) = (line for line in run("consumerProgress") if line.startswith("progress "))
    assert listed.split() == ["progress", "1", "KAFKA", "PULL", "CLASSIC", "0", "2"]
    (listed,) = (line for line in run("kafkaGroups") if line.startswith("progress "))
    assert listed.split() == ["progress", "classic", "Stable", "1", report.coordinator]


def test_how_old_the_oldest_message_is_that_a_kafka_group_has_not_consumed(
    servers: KafkaServers, run: Run, member: Callable[[str, str], Member]
) -> None:
    """The truth is the producer's clock, from before it sent a message to when it was acknowledged. The broker that has
    the messages is not the one that coordinates the group."""
    group = "late"
    host, port = coordinator(servers, group)
    topic = servers.topic(f"orders{next(_serial)}", 2)
    kafka = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})
    metadata = kafka.list_topics(topic, timeout=60)
    address = f"{host}:{port}"
    coordinates = next(b.id for b in metadata.brokers.values() if f"{b.host}:{b.port}" == address)
    (far,) = (
        number
        for number, partition in metadata.topics[topic].partitions.items()
        if partition.leader != coordinates
    )
    sent = []
    pause = threading.Event()
    producer = Producer({"bootstrap.servers": servers.bootstrap})
    for number in range(4):
        before = time.time()
        producer.produce(topic, str(number), partition=far)
        assert producer.flush(60) == 0
        sent.append((before, time.time()))
        pause.wait(0.2)  # so that it matters which message was meant
    one = member(group, "reader")
    one.join(topic)
    generation = one.joined()
    one.sync(generation, topic, {one.member_id: (0, 1)})
    one.commit(generation, topic, 1 - far, 0)
    for offset in (1, 2, 4):
        one.commit(generation, topic, far, offset)
        asked = time.time()
        report = wait_for(run, group, lambda report: True)
        (row,) = (row for row in report["offsets"] if row["partition"] == far)
        (empty,) = (row for row in report["offsets"] if row["partition"] != far)
        assert (empty["lag"], empty["lag_seconds"]) == (0, 0)
        assert row["lag"] == 4 - offset
        if offset == 4:
            assert row["lag_seconds"] == report["lag_seconds"] == 0
            continue
        before, after = sent[offset]
        clock = 0.001  # the broker's clock has milliseconds
        assert asked - after - clock <= row["lag_seconds"] <= time.time() - before + clock
        assert report["lag_seconds"] == row["lag_seconds"]
        document = json.loads("\n".join(run("consumerProgress", "-g", group, "--json")))
        assert asked - after - clock <= document["lag_seconds"] <= time.time() - before + clock
        shown = run("consumerProgress", "-g", group, "--seconds")
        ages = sorted(float(line.split()[-1]) for line in shown if line.startswith(topic))
        assert ages[0] == 0
        assert document["lag_seconds"] - 0.1 <= ages[1] <= time.time() - before + 0.1


def test_the_doctor_looks_at_kafka_groups(
    servers: KafkaServers,
    topic: str,
    member: Callable[[str, str], Member],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1. One member reads both partitions. 2. The plan of the next generation gives it nothing. 3. All have left."""

    def doctor() -> tuple[int, str]:
        capsys.readouterr()
        code = main(["admin", "doctor", "-n", servers.nameservers, "-g", "ill"])
        return code, capsys.readouterr().out

    reader, idler = member("ill", "reader"), member("ill", "idler")
    reader.join(topic)
    generation = reader.joined()
    reader.sync(generation, topic, {reader.member_id: (0, 1)})
    reader.commit(generation, topic, 0, 1)
    assert doctor() == (0, "group ill: nothing is wrong\n")
    idler.join(topic)
    reader.join(topic)
    generation = reader.joined()
    assert idler.joined() == generation
    reader.sync(generation, topic, {reader.member_id: (0, 1), idler.member_id: ()})
    idler.sync(generation, topic, {})
    code, said = doctor()
    assert (code, said.splitlines()[0]) == (
        1,
        "1. idler read no partition; the group has 2 members for 2 partitions",
    )
    with Admin(servers.nameservers) as admin:
        assert [one.ailment for one in admin.diagnose("ill")] == [Ailment.MEMBER_IDLE]
    for one in (reader, idler):
        one.leave()
    code, said = doctor()
    assert (code, said.splitlines()[0]) == (1, "1. no member of group ill is online")


def test_an_unknown_group_is_one_line(
    servers: KafkaServers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["admin", "kafkaGroup", "-n", servers.nameservers, "-g", "nobody"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "steelyard: no broker coordinates a Kafka group nobody\n"


def test_a_group_of_the_other_protocol_is_said_to_be_one(
    servers: KafkaServers,
    topic: str,
    member: Callable[[str, str], Member],
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = member("theirs", "reader")
    reader.join(topic)
    reader.sync(reader.joined(), topic, {reader.member_id: (0, 1)})
    for command in ("consumerConnection", "consumerStatus"):
        assert main(["admin", command, "-n", servers.nameservers, "-g", "theirs"]) == 1
        assert capsys.readouterr().err == (
            "steelyard: theirs is a Kafka group; use `steelyard admin kafkaGroup -g theirs`\n"
        )
    reader.leave()
    with PushConsumer("ours", servers.nameservers, lambda _: None).subscribe(topic):
        asked = ["admin", "kafkaGroup", "-n", servers.nameservers, "-g", "ours"]

        def said() -> str:
            assert main(asked) == 1
            return capsys.readouterr().err

        wanted = (
            "steelyard: ours is a RocketMQ group; use `steelyard admin consumerProgress -g ours`\n"
        )
        until(lambda: said() == wanted)


def test_what_a_rocketmq_group_lacks_is_said_as_it_is(
    servers: KafkaServers, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its member keeps its offsets itself. The advice was to use the command that was used."""

    def said() -> str:
        asked = ["admin", "consumerProgress", "-n", servers.nameservers, "-g", "onlooker"]
        assert main(asked) == 1
        return capsys.readouterr().err

    with PullConsumer("onlooker", servers.nameservers) as consumer:
        for queue in consumer.queues(topic):
            consumer.max_offset(queue)
        until(lambda: said() == "steelyard: group onlooker has not consumed anything yet\n")


def test_commands_of_rocketmq_do_not_touch_a_kafka_group(
    servers: KafkaServers,
    topic: str,
    member: Callable[[str, str], Member],
    run: Run,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They would report success, and leave the group as it is or make another of its name."""
    member("kept", "reader").join(topic)
    one = ("-b", "broker-a", "-q", "0", "-o", "0")
    for command, *options, instead in (
        ("deleteSubGroup", "-c", "DefaultCluster", "--delete"),
        ("resetOffsetByTime", "-t", topic, "-s", "now", "--reset-offsets"),
        ("resetOffsetByTime", "-t", topic, *one, "--reset-offsets"),
    ):
        assert main(["admin", command, "-n", servers.nameservers, "-g", "kept", *options]) == 1
        assert capsys.readouterr().err == (
            f"steelyard: kept is a Kafka group; use `kafka-consumer-groups.sh {instead}`\n"
        )
    with PushConsumer("kept", servers.nameservers, lambda _: None).subscribe(topic):
        run("resetOffsetByTime", "-g", "kept", "-t", topic, "-s", "now")
    run("deleteSubGroup", "-c", "DefaultCluster", "-g", "kept")


def test_brokers_without_a_kafka_door_have_no_such_group(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with Admin(servers.nameservers) as admin:
        assert admin.kafka_groups() == ()
        with pytest.raises(RouteError, match="no broker coordinates"):
            admin.kafka_group("nobody")
    servers.stop()
