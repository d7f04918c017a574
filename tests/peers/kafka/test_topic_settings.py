"""Settings of topics and deleted records, with confluent-kafka: the same at Apache's broker and at two of ours."""

from __future__ import annotations

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.peers.kafka.servers import Running
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

TO_THE_END = -1
"""DeleteRecords deletes all that may be read."""


@pytest.fixture
def admin(cluster: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, name: str, settings: dict[str, str]) -> None:
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(PATIENCE_S)
    until(lambda: name in admin.list_topics(timeout=5).topics, name)


def delete(admin: AdminClient, name: str, offset: int) -> int:
    """Delete the records before an offset; the first one that is left."""
    (deleted,) = admin.delete_records([TopicPartition(name, 0, offset)]).values()
    low: int = deleted.result(PATIENCE_S).low_watermark
    return low


def test_blanks_and_case_do_not_matter(admin: AdminClient, name: str) -> None:
    create(admin, name, {"preallocate": "False", "message.timestamp.type": " LogAppendTime "})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    configs = found.result(PATIENCE_S)
    assert configs["preallocate"].value == "false"
    assert configs["message.timestamp.type"].value == "LogAppendTime"


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "1_000"},
        {"preallocate": "yes"},
        {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_values_that_cannot_be(admin: AdminClient, name: str, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, name, settings)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_records_of_a_compacted_topic_stay(admin: AdminClient, name: str) -> None:
    create(admin, name, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        delete(admin, name, 0)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_deleted_records_of_an_open_transaction_hold_nobody_up(
    cluster: Running, admin: AdminClient, name: str
) -> None:
    create(admin, name, {})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(name, b"x")
    assert producer.flush(PATIENCE_S) == 0
    assert delete(admin, name, TO_THE_END) == 3
    (found,) = admin.list_offsets(
        {TopicPartition(name, 0): OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=IsolationLevel.READ_COMMITTED,
    ).values()
    assert found.result(PATIENCE_S).offset == 3
    producer.abort_transaction(PATIENCE_S)
