"""Compacted topics, written and read by unmodified clients: Apache's broker and ours leave the same."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from tests.peers.kafka.servers import Running
from tests.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

RECORDS, KEYS = 60_000, 100
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1024 * 1024),
    "delete.retention.ms": "1000",
}
WAIT_S = 120
"""A search for what to compact begins every 15 s."""

_serial = count(1)


def made(cluster: Running, settings: Mapping[str, str]) -> str:
    topic = f"compacted{next(_serial)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=dict(settings))])[topic].result(30)
    return topic


def producer(cluster: Running, **more: str | float | bool) -> Producer:
    names = {name.replace("_", "."): value for name, value in more.items()}
    return Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **names})


def messages(cluster: Running, topic: str, partition: int = 0) -> list[Message]:
    """The committed records of a partition, in order; their checksums are verified."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "the end was not reached"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message)


def read(cluster: Running, topic: str, partition: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of each record, in order."""
    found: list[tuple[int, bytes, bytes | None]] = []
    for message in messages(cluster, topic, partition):
        offset, key = message.offset(), message.key()
        assert isinstance(offset, int)
        assert isinstance(key, bytes)
        found.append((offset, key, message.value()))
    return found


def table(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for _, key, value in records:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def test_60_000_records_over_100_keys_shrink(cluster: Running) -> None:
    topic = made(cluster, COMPACTED)
    writer = producer(cluster, batch_size=16_384)
    expected: dict[bytes, bytes] = {}
    for number in range(RECORDS):
        key, value = b"key-%d" % (number % KEYS), b"%d %s" % (number, b"x" * 80)
        writer.produce(topic, value, key, partition=0)
        expected[key] = value
        if not number % 1_000:
            writer.flush(30)
    assert writer.flush(30) == 0
    left = until(lambda: _small(read(cluster, topic)), "the compaction", WAIT_S)
    assert table(left) == expected
    offsets = [offset for offset, _, _ in left]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == RECORDS - 1
    print(f"{cluster.kind}: {len(left)} of {RECORDS} records are left")
    # Another library reads the same.
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap, enable_auto_commit=False, consumer_timeout_ms=20_000
    )
    partition = PythonPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    same = []
    for record in consumer:
        same.append((record.offset, record.key, record.value))
        if record.offset == RECORDS - 1:
            break
    consumer.close()
    assert same == left


def _small(left: list[tuple[int, bytes, bytes | None]]) -> list[tuple[int, bytes, bytes | None]]:
    """What is left, once all that can be compacted was."""
    first_active = left[-1][0] - 12_000  # more records than a segment has
    return left if sum(offset < first_active for offset, _, _ in left) <= KEYS else []


def test_a_record_without_a_key_is_refused(cluster: Running) -> None:
    topic = made(cluster, COMPACTED)
    writer = producer(cluster)
    errors: list[KafkaError | None] = []
    writer.produce(topic, b"value", None, on_delivery=lambda error, _: errors.append(error))
    writer.flush(30)
    writer.produce(topic, b"value", b"key", on_delivery=lambda error, _: errors.append(error))
    writer.flush(30)
    assert [None if error is None else error.code() for error in errors] == [
        KafkaError.INVALID_RECORD,
        None,
    ]


def test_transactions_and_tombstones_are_compacted(cluster: Running) -> None:
    """The state after it is that of the committed records, and aborted ones and tombstones go."""
    topic = made(cluster, COMPACTED)
    writer = producer(cluster, transactional_id=topic)
    writer.init_transactions(30)
    expected: dict[bytes, bytes | None] = {}
    for number in range(60):
        writer.begin_transaction()
        rows = {
            b"key-%d" % (each % 50): None if number % 7 == 3 else b"%d %s" % (number, b"y" * 2_000)
            for each in range(number, number + 50)
        }
        for key, value in rows.items():
            writer.produce(topic, value, key, partition=0)
        if number % 3 == 1 and number < 59:
            writer.abort_transaction(30)
        else:
            writer.commit_transaction(30)
            expected |= rows
    state = {key: value for key, value in expected.items() if value is not None}

    def compacted() -> list[tuple[int, bytes, bytes | None]]:
        left = read(cluster, topic)
        assert table(left) == state
        return left if len(left) < 800 else []

    left = until(compacted, "the compaction", WAIT_S)
    print(f"{cluster.kind}: {len(left)} committed records are left")


def test_a_policy_that_does_not_exist_is_refused(cluster: Running) -> None:
    with pytest.raises(KafkaException) as refused:
        made(cluster, {"cleanup.policy": "shrink"})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
