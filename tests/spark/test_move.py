"""`steelyard pipeline move` between two clusters of ours in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.kafka import KafkaServers
from tests.moves import PARTITIONS, commit, committed, contents, produce, read, send

from steelyard import Admin, Producer, PullConsumer
from steelyard.errors import RemotingError
from steelyard.spark import pipeline
from steelyard.spark.move import kafka_writer, rocketmq_writer
from steelyard.spark.move.contract import OffsetRange
from steelyard.spark.move.journal import ChunkSending, Journal, QueueBegun
from steelyard.spark.move.kafka import KafkaSide
from steelyard.spark.move.mapping import Mapping, OffsetRun, runs
from steelyard.spark.move.rocketmq import placed

_serial = count(1)
MESSAGES = 120


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("source"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """One broker, which gets the queues of two."""
    made = KafkaServers(tmp_path_factory.mktemp("target"), brokers=1)
    yield made
    made.stop()


@pytest.fixture
def topic() -> str:
    return f"Moved{next(_serial)}"


class Command:
    """`steelyard pipeline move` for one topic."""

    def __init__(
        self, protocol: str, addresses: tuple[str, str], topic: str, state: Path, capsys: Any
    ) -> None:
        self.arguments = ["move", protocol, "--from", addresses[0], "--to", addresses[1]]
        self.arguments += ["-t", topic, "--state", str(state), "--to-option"]
        self.arguments += ["retryTimeoutMs=20000"]
        self._capsys = capsys

    def __call__(self, *more: str, code: int = 0) -> dict[str, Any]:
        """What it prints as JSON."""
        assert pipeline.main([*self.arguments, "--json", *more]) == code
        printed: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        assert printed["matches"] == (code == 0)
        return printed

    def says(self, *more: str, code: int = 0) -> str:
        """What it prints for people: the output, or the error line."""
        assert pipeline.main([*self.arguments, *more]) == code
        written = self._capsys.readouterr()
        if code == 2:
            assert written.err.count("\n") == 1, written.err
        return str(written.err if code == 2 else written.out)


# -- RocketMQ --------------------------------------------------------------------------------------


@pytest.fixture
def rocketmq(
    source: KafkaServers, target: KafkaServers, topic: str, tmp_path: Path, capsys: Any
) -> Command:
    addresses = source.nameservers, target.nameservers
    return Command("rocketmq", addresses, topic, tmp_path / "state", capsys)


def test_rocketmq(
    source: KafkaServers, target: KafkaServers, topic: str, rocketmq: Command
) -> None:
    """Queues of two brokers become queues of one; groups continue where they were; then more comes."""
    send(source.nameservers, topic, range(MESSAGES))
    sent = contents(source.nameservers, topic)
    queues = sorted(sent)
    group = f"{topic}g"
    with PullConsumer(group, source.nameservers) as consumer:
        for queue, offset in zip(queues, (0, 7, 30), strict=False):
            consumer.commit(queue, offset)
    told = rocketmq.says("--dry-run", "-g", "nobody", code=2)
    assert "group 'nobody' has no committed offsets" in told
    assert "would be created" in rocketmq.says("--dry-run", "--all-groups")

    printed = rocketmq("-g", group)
    assert [(one["moved"], one["read_back"]) for one in printed["queues"]] == [(30, 30)] * 4
    assert [one["outcome"] for one in printed["offsets"]] == ["committed"] * 3
    arrived = contents(target.nameservers, topic)
    assert [arrived[queue] for queue in sorted(arrived)] == [sent[queue] for queue in queues]
    with PullConsumer(group, target.nameservers) as consumer:
        offsets = [consumer.committed(queue) for queue in sorted(arrived)]
    assert offsets == [0, 7, 30, None]

    send(source.nameservers, topic, range(MESSAGES, 2 * MESSAGES))
    assert [one["moved"] for one in rocketmq()["queues"]] == [30] * 4
    text = rocketmq.says()
    assert "0 messages moved now, 240 in all; all 4 queues match" in text
    assert sum(map(len, contents(target.nameservers, topic).values())) == 240


def test_offsets_of_a_group_at_work_are_kept(
    source: KafkaServers, target: KafkaServers, topic: str, rocketmq: Command
) -> None:
    """What the move committed follows the source; what the group did at the target stays."""
    send(source.nameservers, topic, range(40))
    group = f"{topic}g"

    def commit(nameservers: str, offset: int) -> None:
        with PullConsumer(group, nameservers) as consumer:
            consumer.commit(min(consumer.queues(topic)), offset)

    def outcome(*more: str) -> tuple[str, int | None]:
        (row,) = rocketmq("--all-groups", *more)["offsets"]
        with PullConsumer(group, target.nameservers) as consumer:
            return row["outcome"], consumer.committed(min(consumer.queues(topic)))

    commit(source.nameservers, 3)
    assert outcome() == ("committed", 3)
    commit(source.nameservers, 5)
    assert outcome() == ("committed", 5)
    commit(target.nameservers, 8)
    assert outcome() == ("kept: it is at 8 there", 8)
    assert outcome("--overwrite-offsets") == ("committed", 5)


def test_an_answer_that_is_lost(
    source: KafkaServers,
    target: KafkaServers,
    topic: str,
    rocketmq: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests whose answer never comes are stored, or are not; neither way is anything lost or there twice."""
    monkeypatch.setattr(rocketmq_writer, "SETTLE_S", 0.2)
    monkeypatch.setattr(rocketmq_writer, "LOOK_S", 0.05)
    send(source.nameservers, topic, range(MESSAGES))
    store = rocketmq_writer.RocketMQAppender._store
    turn = count()
    lock = threading.Lock()

    def lossy(writer: Any, messages: Any, at: int) -> None:
        with lock:
            number = next(turn)
        if number % 40 == 10:
            raise RemotingError("the request is lost")
        store(writer, messages, at)
        if number % 40 == 30:
            raise RemotingError("the answer is lost")

    monkeypatch.setattr(rocketmq_writer.RocketMQAppender, "_store", lossy)
    printed = rocketmq()
    assert next(turn) > 31  # both were lost, at least once
    assert [one["count"] for one in printed["queues"]] == [30] * 4
    with Admin(target.nameservers) as admin:
        stats = admin.topic_stats(topic)
    assert [stats[queue].max_offset for queue in sorted(stats)] == [30] * 4


def test_others_write_to_the_target(
    source: KafkaServers, target: KafkaServers, topic: str, rocketmq: Command, tmp_path: Path
) -> None:
    send(source.nameservers, topic, range(8))
    rocketmq()
    send(source.nameservers, topic, range(8, 16))
    with Producer("p", target.nameservers) as producer:
        producer.send(topic, b"foreign", queue=min(producer.queues(topic)))
    text = rocketmq.says(code=2)
    assert "ends at offset 3, and the record of the move at 2: somebody else writes" in text
    again = Command(
        "rocketmq",
        (source.nameservers, target.nameservers),
        topic,
        tmp_path / "new",
        rocketmq._capsys,
    )
    assert "has 3 messages that --state has no record of" in again.says(code=2)


def test_a_difference_is_found(
    source: KafkaServers, topic: str, rocketmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that arrives with another body: exit code 1, and no offsets are committed."""
    send(source.nameservers, topic, range(8))
    with PullConsumer(f"{topic}g", source.nameservers) as consumer:
        consumer.commit(min(consumer.queues(topic)), 1)
    encode = rocketmq_writer.RocketMQAppender._request

    def damage(writer: Any, messages: Any) -> Any:
        command = encode(writer, messages)
        return msgspec.structs.replace(command, body=command.body.replace(b"5|", b"6|"))

    monkeypatch.setattr(rocketmq_writer.RocketMQAppender, "_request", damage)
    printed = rocketmq("--all-groups", code=1)
    differing = [one for one in printed["queues"] if not one["matches"]]
    assert [(one["count"], one["read_back"]) for one in differing] == [(2, 2)]
    assert printed["offsets"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-t", "NoSuchTopic"], "knows no topic 'NoSuchTopic'"),
        (["-t", "%RETRY%g"], "topic '%RETRY%g' belongs to the servers"),
        (["-t", "T", "--from-option", "tags=a"], "option 'tags' does not say how rocketmq servers"),
        (["-t", "T", "--to-option", "tls=maybe"], "option 'tls' is 'maybe'"),
    ],
)
def test_errors_are_one_line(
    source: KafkaServers, arguments: list[str], words: str, tmp_path: Path, capsys: Any
) -> None:
    servers = ["--from", source.nameservers, "--to", source.nameservers]
    command = ["move", "rocketmq", *servers, "--state", str(tmp_path), *arguments]
    assert pipeline.main(command) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert written.err.count("\n") == 1


@pytest.mark.parametrize("protocol", ["rocketmq", "kafka"])
def test_nobody_listens(protocol: str, tmp_path: Path, capsys: Any) -> None:
    command = ["move", protocol, "--from", "127.0.0.1:9", "--to", "127.0.0.1:9", "-t", "T"]
    assert pipeline.main([*command, "--state", str(tmp_path)]) == 2
    written = capsys.readouterr()
    assert "cannot connect to 127.0.0.1:9" in written.err
    assert written.err.count("\n") == 1


# -- Kafka -----------------------------------------------------------------------------------------


@pytest.fixture
def kafka(
    source: KafkaServers, target: KafkaServers, topic: str, tmp_path: Path, capsys: Any
) -> Command:
    addresses = source.bootstrap, target.bootstrap
    return Command("kafka", addresses, topic, tmp_path / "state", capsys)


def test_kafka(source: KafkaServers, target: KafkaServers, topic: str, kafka: Command) -> None:
    """Aborted records and markers are left out, so offsets differ, and groups' offsets follow."""
    source.topic(topic, PARTITIONS)
    produce(source.bootstrap, topic, range(60), aborted=True)
    produce(source.bootstrap, topic, range(60, 90))
    sent = read(source.bootstrap, topic)
    assert sent[20][1] > sent[19][1] + 1  # the gap
    commit(source.bootstrap, topic, topic, {0: sent[4][1], 1: sent[50][1], 2: 10_000})

    printed = kafka("-g", topic, "--compression", "zstd")
    assert [(one["count"], one["read_back"]) for one in printed["queues"]] == [(30, 30)] * 3
    arrived = read(target.bootstrap, topic)
    assert [one[:1] + one[2:] for one in arrived] == [one[:1] + one[2:] for one in sent]
    assert [one[1] for one in arrived] == [*range(30)] * 3
    assert committed(target.bootstrap, topic, topic) == {0: 4, 1: 20, 2: 30}

    produce(source.bootstrap, topic, range(90, 99))
    assert [one["moved"] for one in kafka()["queues"]] == [3] * 3


@pytest.mark.spark_long
@pytest.mark.parametrize("stored", [True, False])
def test_a_batch_in_doubt(
    source: KafkaServers,
    target: KafkaServers,
    topic: str,
    kafka: Command,
    stored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run dies after, or before, the broker stored a batch; the next one sends the same batch again.

    It does so even if the batch is stored, because the end that it sees is old.
    """
    source.topic(topic, PARTITIONS)
    produce(source.bootstrap, topic, range(30))
    store = kafka_writer.KafkaAppender._store

    def dies(writer: Any, batch: bytes) -> int | None:
        if stored:
            store(writer, batch)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(kafka_writer.KafkaAppender, "_store", dies)
        with pytest.raises(SystemExit):
            kafka()
    extents = KafkaSide.extents
    asked: set[Any] = set()

    def old(cluster: KafkaSide, queues: Any) -> Any:
        found = extents(cluster, queues)
        if cluster.address == target.bootstrap and not asked.issuperset(queues):
            asked.update(queues)
            return dict.fromkeys(queues, OffsetRange(0, 0))
        return found

    monkeypatch.setattr(KafkaSide, "extents", old)
    assert [one["count"] for one in kafka()["queues"]] == [10] * PARTITIONS
    assert len(asked) == PARTITIONS
    assert [one[1] for one in read(target.bootstrap, topic)] == [*range(10)] * PARTITIONS


@pytest.mark.spark_long
def test_a_group_with_members_is_left_alone(
    source: KafkaServers, target: KafkaServers, topic: str, kafka: Command
) -> None:
    source.topic(topic, PARTITIONS)
    produce(source.bootstrap, topic, range(6))
    commit(source.bootstrap, topic, topic, {0: 1})
    kafka()
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    client.subscribe([topic])
    while not client.assignment():
        client.poll(0.1)
    (row,) = kafka("-g", topic, code=1)["offsets"]
    assert row["outcome"] == "not committed: it has members there; stop them first"
    client.close()
    assert kafka("-g", topic)["offsets"][0]["outcome"] == "committed"


# -- parts -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3), min_size=1), st.integers(0, 5), st.data())
def test_mapping(steps: list[int], base: int, data: st.DataObject) -> None:
    """Against a search through all records, however they are divided into chunks."""
    offsets = [sum(steps[: place + 1]) for place in range(len(steps))]
    mapping, start = Mapping(), 0
    while start < len(offsets):
        size = data.draw(st.integers(1, len(offsets)))
        for run in runs(offsets[start : start + size], base + start):
            mapping.add(run)
        start += size
    for offset in range(offsets[-1] + 3):
        expected = base + sum(one < offset for one in offsets)
        assert mapping.target_of(offset, base + len(offsets)) == expected


def test_where_queues_go() -> None:
    queues = [("T", broker, number) for broker in "abc" for number in range(2)]
    assert placed(queues, ["b", "x"]) == {
        ("T", "a", 0): ("T", "b", 2),
        ("T", "a", 1): ("T", "b", 3),
        ("T", "b", 0): ("T", "b", 0),
        ("T", "b", 1): ("T", "b", 1),
        ("T", "c", 0): ("T", "x", 0),
        ("T", "c", 1): ("T", "x", 1),
    }


def test_a_journal_cut_at_any_byte(tmp_path: Path) -> None:
    """What is read is what was written whole; the rest is written again."""
    path = tmp_path / "T" / "0.jsonl"
    journal = Journal.begin(path, QueueBegun(("T", "", 0), 5, ("T", "", 0), 2))
    chunks = [
        ChunkSending(8, 3, "f", [OffsetRun(5, 2, 3)], (1, 0, 0)),
        ChunkSending(10, 2, "2", [OffsetRun(8, 5, 2)]),
    ]
    for chunk in chunks:
        journal.sending(chunk)
        journal.stored()
    journal.verify()
    journal.close()
    data = path.read_bytes()
    seen = set()
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        opened = Journal.open(path)
        if opened is None:
            continue
        seen.add((opened.next, *opened.total, opened.doubt is None, *opened.verified))
        opened.close()
        assert path.read_bytes() == data[:size][: data[:size].rfind(b"\n") + 1]
    assert seen == {
        (5, 0, 0, 2, True, 0, 0, 2),
        (5, 0, 0, 2, False, 0, 0, 2),
        (8, 3, 15, 5, True, 0, 0, 2),
        (8, 3, 15, 5, False, 0, 0, 2),
        (10, 5, 17, 7, True, 0, 0, 2),
        (10, 5, 17, 7, True, 5, 17, 7),
    }
