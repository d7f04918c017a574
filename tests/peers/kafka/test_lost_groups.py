"""Members of groups that their coordinator has lost join again by themselves (docs/LIMITS.md).

The broker is killed, the files that say which groups there are get lost, and `steelyard check --repair` gives them up.
Apache's coordinators lose no group, and so are no control here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers.kafka.members import FRANZ, JAVA, JAVA_OLD, LIBRDKAFKA, SARAMA, Client, Group
from tests.peers.kafka.servers import STEELYARD
from tests.peers.kafka.share_members import ShareGroup
from tests.peers.kafka.streams_apps import WordCount, all_tasks
from tests.peers.kafka.test_share_groups import (
    EARLIEST,
    KilledBroker,
    create,
    killed_broker,
    produce,
)
from tests.waiting import until

pytestmark = pytest.mark.peer

MEMBERS = ("kafka_groups", "kafka_consumer_groups", "kafka_share_groups", "kafka_streams_groups")
"""The tables that say which groups there are, and who is in them."""
CLIENTS = (
    JAVA.using("uniform"),
    LIBRDKAFKA.using("uniform"),
    FRANZ.using("uniform"),
    JAVA,
    JAVA_OLD,
    LIBRDKAFKA,
    SARAMA,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KilledBroker]:
    with killed_broker(tmp_path) as broker:
        yield broker


def lose(broker: KilledBroker, *tables: str) -> None:
    """Kill the broker, and start it without these of its tables that there are; one of them must be."""
    broker.kill()
    data = broker.folder / "data" / "broker-a"
    lost = [data / "tables" / f"{table}.table" for table in tables]
    assert any(table.exists() for table in lost), sorted((data / "tables").iterdir())
    for table in lost:
        table.unlink(missing_ok=True)
    command = [str(STEELYARD), "check", "--repair", str(data)]
    repaired = subprocess.run(command, capture_output=True, text=True)
    assert "is missing" in repaired.stdout, repaired
    broker.start()


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_consumers(broker: KilledBroker, client: Client, name: str, tmp_path: Path) -> None:
    """1. Two have read and committed all. 2. The group is lost, its offsets are not. 3. Both share it again, and nothing is
    read twice."""
    with Group(broker.cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        members = [group.join(client, each) for each in ("m1", "m2")]
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        until(lambda: all(each.committed == len(each.records) > 0 for each in members), group)
        lose(broker, *MEMBERS)
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        read = [record["value"] for each in members for record in each.records]
        assert sorted(read) == sorted(group.sent)


def test_consumers_whose_offsets_are_lost(broker: KilledBroker, name: str, tmp_path: Path) -> None:
    """They go on where they were: only a member that begins anew asks for its offsets."""
    with Group(broker.cluster, name, tmp_path, topics=name) as group:
        partitions = group.create_topic(name, 4)
        for client in (JAVA.using("uniform"), LIBRDKAFKA.using("uniform")):
            group.join(client, client.name)
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()
        lose(broker, *MEMBERS, "kafka_offsets")
        group.wait_shared(partitions)
        group.send(partitions)
        group.wait_read()


def test_share_consumers(broker: KilledBroker, name: str, tmp_path: Path) -> None:
    """1. Two have accepted all. 2. The group is lost; what it accepted is not. 3. Both get records again, each once."""
    create(broker.cluster, name)
    with ShareGroup(broker.cluster, name, tmp_path, max_records=10) as group:
        one = group.start("one", settings=EARLIEST)
        two = group.start("two")
        produce(broker.cluster, name, 200)
        group.until_all(200)
        until(lambda: len(one.taken) + len(two.taken) == 200, "all are accepted")
        lose(broker, *MEMBERS)
        before = [len(each.records) for each in (one, two)]
        sent = 200

        def both_read() -> bool:
            nonlocal sent
            produce(broker.cluster, name, 20)
            sent += 20
            now = [len(each.records) for each in (one, two)]
            return all(later > earlier for earlier, later in zip(before, now, strict=True))

        until(both_read, "both have records of the time after")
        assert set(group.until_all(sent).values()) == {1}
        for member in (one, two):
            member.leave()
            assert not any(event.get("fatal") for event in member.events), member.events


def test_streams(broker: KilledBroker, name: str, tmp_path: Path) -> None:
    """1. Two instances count. 2. The group is lost. 3. Both have tasks again, and every word is counted once."""
    with WordCount(broker.cluster, name, tmp_path, processing_guarantee="exactly_once_v2") as app:
        app.start("one")
        app.start("two")
        app.wait_shared(all_tasks(4), "one", "two")
        app.send()
        app.wait_counted()
        lose(broker, "kafka_streams_groups")  # not the group of those who look at the counts
        app.wait_shared(all_tasks(4), "one", "two")
        app.send()
        app.wait_counted()
