"""DeleteRecords with confluent-kafka: the same at Apache's broker and at two of ours, restarts included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)
from tests.clients.test_kills import Brokers
from tests.peers.apache import Missing
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

TO_THE_END = -1
"""DeleteRecords deletes all that may be read."""


@pytest.fixture(scope="module", params=["apache", "steelyard"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Each kind of cluster in turn, with brokers that can be restarted; ours are killed."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "steelyard":
        brokers = Brokers(folder)
        yield brokers.running
        brokers.stop()
        return
    try:
        with servers.run_apache(folder) as running:
            yield running
    except Missing as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


@pytest.fixture
def admin(cluster: Running) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, name: str, settings: dict[str, str] | None = None) -> None:
    admin.create_topics([NewTopic(name, 1, 1, config=settings or {})])[name].result(PATIENCE_S)
    until(lambda: name in admin.list_topics(timeout=5).topics, name)


def delete(admin: AdminClient, name: str, offset: int) -> int:
    """Delete the records before an offset; the first one that is left."""
    (deleted,) = admin.delete_records([TopicPartition(name, 0, offset)]).values()
    low: int = deleted.result(PATIENCE_S).low_watermark
    return low


def send(producer: Producer, topic: str, first: int, count: int) -> list[int]:
    """Send numbered records, in one batch where the client may; their offsets."""
    offsets: list[int] = []

    def note(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for number in range(first, first + count):
        producer.produce(topic, str(number), on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def read(cluster: Running, topic: str, first: int) -> list[tuple[int, bytes]]:
    """Offsets and values of all that a reader of committed records finds from the beginning, which is `first`."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{topic}g",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        partition = TopicPartition(topic, 0, first)
        low, high = consumer.get_watermark_offsets(partition, PATIENCE_S)
        assert low == first
        consumer.assign([partition])
        found: list[tuple[int, bytes]] = []

        def is_at_the_end() -> bool:
            for message in consumer.consume(100, 0.5):
                assert message.error() is None, message.error()
                found.append((message.offset() or 0, message.value() or b""))
            (position,) = consumer.position([partition])
            return position.offset >= high

        until(is_at_the_end, f"the end of {topic}, {high}")
        return found
    finally:
        consumer.close()


def test_records_of_a_compacted_topic_stay(admin: AdminClient, name: str) -> None:
    create(admin, name, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        delete(admin, name, 0)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_deleted_records_of_an_open_transaction_hold_nobody_up(
    cluster: Running, admin: AdminClient, name: str
) -> None:
    create(admin, name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    send(producer, name, 0, 3)
    assert delete(admin, name, TO_THE_END) == 3
    (found,) = admin.list_offsets(
        {TopicPartition(name, 0): OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=IsolationLevel.READ_COMMITTED,
    ).values()
    assert found.result(PATIENCE_S).offset == 3
    producer.abort_transaction(PATIENCE_S)


def test_producers_go_on_after_deletions_and_a_restart(
    cluster: Running, admin: AdminClient, name: str
) -> None:
    """The beginning of one producer's batch is deleted, and all of another's open transaction; then the brokers restart."""
    assert cluster.restart is not None
    half, whole = f"{name}-half", f"{name}-whole"
    idempotent = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 200}
    )
    transactional = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    transactional.init_transactions(PATIENCE_S)
    for topic in (half, whole):
        create(admin, topic)
    assert send(idempotent, half, 0, 10) == list(range(10))
    assert delete(admin, half, 5) == 5
    transactional.begin_transaction()
    assert send(transactional, whole, 0, 3) == [0, 1, 2]
    assert delete(admin, whole, TO_THE_END) == 3
    cluster.restart()
    assert send(idempotent, half, 10, 10) == list(range(10, 20))
    assert send(transactional, whole, 3, 3) == [3, 4, 5]
    transactional.commit_transaction(PATIENCE_S)
    assert read(cluster, half, 5) == [(number, b"%d" % number) for number in range(5, 20)]
    assert read(cluster, whole, 3) == [(number, b"%d" % number) for number in range(3, 6)]
