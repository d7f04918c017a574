"""What each client's administrator asks and tells: topics, partitions, settings, groups, offsets, records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka as kafka_python
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from tests.clients.administrators import (
    Administrator,
    AioAdministrator,
    ConfluentAdministrator,
    KafkaPythonAdministrator,
)
from tests.clients.confluent import Confluent
from tests.clients.libraries import Library, Refused, Sent
from tests.peers.kafka.servers import Running
from tests.waiting import until


@pytest.fixture(
    params=[ConfluentAdministrator, KafkaPythonAdministrator, AioAdministrator],
    ids=lambda kind: kind.name,
)
def administrator(request: pytest.FixtureRequest, kafka: Running) -> Iterator[Administrator]:
    made: Administrator = request.param(kafka.bootstrap)
    yield made
    made.close()


@pytest.fixture
def clients(kafka: Running) -> Library:
    """Writes and reads for the administrators."""
    return Confluent(kafka.bootstrap)


def test_topics_come_grow_and_go(administrator: Administrator, name: str) -> None:
    administrator.create_topic(name, 2)
    assert administrator.partitions(name) == 2
    with pytest.raises(Refused, match=r"(?i)already.?exists"):
        administrator.create_topic(name, 2)
    administrator.more_partitions(name, 5)
    assert administrator.partitions(name) == 5
    with pytest.raises(Refused, match=r"(?i)invalid.?partitions|currently has 5|has 5 partitions"):
        administrator.more_partitions(name, 3)
    assert administrator.partitions(name) == 5
    administrator.delete_topic(name)
    until(lambda: administrator.partitions(name) is None, f"{name} is gone")
    with pytest.raises(Refused, match=r"(?i)unknown.?topic"):
        administrator.delete_topic(name)


def test_hundreds_of_topics_come_and_go_at_once_and_ten_thousand_are_refused(
    kafka: Running, name: str
) -> None:
    """With librdkafka, which sends them in one request."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    names = [f"{name}-{number}" for number in range(250)]
    for made in admin.create_topics([NewTopic(each, 1, 1) for each in names]).values():
        made.result(60)
    assert set(names) <= admin.list_topics(timeout=60).topics.keys()
    for gone in admin.delete_topics(names).values():
        gone.result(60)
    until(lambda: not set(names) & admin.list_topics(timeout=60).topics.keys(), "all are gone")
    many = [NewTopic(f"{name}-{number}", 1, 1) for number in range(10_001)]
    for refused in admin.create_topics(many).values():
        with pytest.raises(KafkaException, match="excessively large"):
            refused.result(60)
    assert not any(topic.startswith(name) for topic in admin.list_topics(timeout=60).topics)


def test_settings_are_taken_or_refused(administrator: Administrator, name: str) -> None:
    administrator.create_topic(name, 1)
    assert administrator.setting(name, "max.message.bytes") == "1048588"
    administrator.put_setting(name, "max.message.bytes", "5000")
    until(lambda: administrator.setting(name, "max.message.bytes") == "5000", "the setting")
    with pytest.raises(Refused, match=r"(?i)invalid.?config|invalid value"):
        administrator.put_setting(name, "max.message.bytes", "many")
    with pytest.raises(Refused, match=r"(?i)invalid.?config|unknown|unrecogni"):
        administrator.put_setting(name, "no.such.setting", "1")
    until(lambda: administrator.setting(name, "max.message.bytes") == "5000", "the setting")


def wait_empty(administrator: Administrator, group: str) -> None:
    """A client's close does not wait for ever for the answer that it has left."""
    until(lambda: administrator.group_state(group) == "EMPTY", f"{group} is empty")


def test_groups_are_listed_and_described(
    administrator: Administrator, clients: Library, name: str
) -> None:
    clients.create_topic(name)
    clients.send(name, [Sent(b"x")] * 3)
    assert name not in administrator.groups()
    clients.consume(name, name, 2)
    assert name in administrator.groups()
    wait_empty(administrator, name)
    assert administrator.group_offsets(name) == {0: 2}


def test_records_are_deleted(administrator: Administrator, clients: Library, name: str) -> None:
    clients.create_topic(name)
    clients.send(name, [Sent(b"x")] * 5)
    administrator.delete_records(name, 3)
    assert clients.ends(name) == (3, 5)
    with pytest.raises(Refused, match=r"(?i)out.?of.?range|outside the range"):
        administrator.delete_records(name, 6)
    assert [record.offset for record in clients.read(name, {0: 3}, 2)] == [3, 4]


def test_groups_and_their_offsets_are_deleted(kafka: Running, clients: Library, name: str) -> None:
    """With kafka-python, which has all of it: an offset, then the group; one with members may not go."""
    admin = KafkaPythonAdministrator(kafka.bootstrap)
    clients.create_topic(name, 2)
    places = [kafka_python.TopicPartition(name, partition) for partition in (0, 1)]
    member = kafka_python.KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, group_id=name, auto_offset_reset="earliest"
    )
    clients.send(name, [Sent(b"x", partition=partition) for partition in (0, 1)])
    # As the group's leader it assigns what it knows; of a topic that it does not know yet it may never hear again.
    assert member.partitions_for_topic(name) == {0, 1}
    member.subscribe([name])
    while len(member.assignment()) < 2:
        member.poll(100)
    _commit(member, {place: kafka_python.OffsetAndMetadata(1, "", -1) for place in places})
    assert admin.group_state(name) == "STABLE"
    assert "GroupSubscribedToTopic" in str(admin.admin.delete_group_offsets(name, places[:1]))
    assert "NonEmptyGroup" in str(_outcome(lambda: admin.admin.delete_groups([name])))
    assert admin.group_offsets(name) == {0: 1, 1: 1}
    member.close(autocommit=False)
    wait_empty(admin, name)
    admin.admin.delete_group_offsets(name, places[:1])
    assert admin.group_offsets(name) == {1: 1}
    admin.admin.delete_groups([name])
    assert name not in admin.groups()
    admin.close()


def _commit(
    member: kafka_python.KafkaConsumer,
    offsets: dict[kafka_python.TopicPartition, kafka_python.OffsetAndMetadata],
) -> None:
    """The library may join once more when it has heard of the topic again, and refuses to commit meanwhile."""
    while True:
        try:
            member.commit(offsets)
            return
        except (RebalanceInProgressError, CommitFailedError):
            member.poll(100)


def _outcome(call: Callable[[], object]) -> object:
    """What a call gives, or raises: the library does either."""
    try:
        return call()
    except KafkaError as error:
        return f"{type(error).__name__} {error}"


def test_offsets_are_listed_set_and_groups_deleted(
    kafka: Running, clients: Library, name: str
) -> None:
    """With confluent-kafka."""
    admin = ConfluentAdministrator(kafka.bootstrap)
    clients.create_topic(name)
    clients.send(name, [Sent(b"x", timestamp=1_700_000_000_000 + at) for at in range(4)])
    clients.consume(name, name, 2)
    place = TopicPartition(name, 0)
    specs: Any = OffsetSpec  # its methods have no types
    for spec, offset in (
        (specs.earliest(), 0),
        (specs.latest(), 4),
        (specs.max_timestamp(), 3),
        (specs.for_timestamp(1_700_000_000_002), 2),
    ):
        assert admin.one(admin.admin.list_offsets({place: spec})).offset == offset
    wait_empty(admin, name)
    wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 3)])
    admin.one(admin.admin.alter_consumer_group_offsets([wanted]))
    assert admin.group_offsets(name) == {0: 3}
    assert [record.offset for record in clients.consume(name, name, 1)] == [3]
    wait_empty(admin, name)
    admin.one(admin.admin.delete_consumer_groups([name]))
    assert name not in admin.groups()
    with pytest.raises(Refused, match=r"(?i)not.?found"):
        admin.one(admin.admin.delete_consumer_groups([name]))
