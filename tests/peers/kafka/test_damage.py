"""A damaged record, and the Kafka clients that `tests/clients` has not: Java's, Go's, Node.js's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.clients.damaged import (
    DAMAGED,
    MARK,
    RECORDS,
    Cluster,
    Readers,
    flip,
    meet_damage,
    produce,
    read,
)
from tests.peers.kafka import servers
from tests.peers.kafka.members import (
    FRANZ,
    JAVA,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    SARAMA,
    Group,
    Member,
)
from tests.waiting import until

pytestmark = pytest.mark.peer

ENDING = (JAVA, JAVA.using("uniform"))
"""Java's poll raises KafkaException: "Encountered corrupt message when fetching offset 10"."""


def test_a_damaged_record(tmp_path: Path, name: str) -> None:
    others = (FRANZ, SARAMA, KAFKAJS, LIBRDKAFKA.using("uniform"))
    with Cluster(tmp_path) as cluster:
        meet_damage(cluster, (*ENDING, *others), ENDING, tmp_path, name)


def test_a_damaged_record_of_apache(tmp_path: Path, name: str) -> None:
    """The control: it serves what is damaged, and who does not check it by himself (librdkafka, KafkaJS) believes it."""
    with servers.run_apache(tmp_path) as running, ExitStack() as stack:
        produce(stack.enter_context(Group(running, f"{name}-p", tmp_path)), name)
        flip(tmp_path / "data")
        readers = Readers(stack, running, tmp_path, name)
        for client in (LIBRDKAFKA, KAFKA_PYTHON, JAVA):
            readers.join(client)
        credulous, checking, raising = (one for (one,) in readers.members.values())

        def values(member: Member) -> list[str]:
            """Of partition 0."""
            return [each["value"] for each in member.records if each["partition"] == f"{name}-0"]

        until(lambda: len(values(credulous)) == RECORDS, credulous)
        assert values(credulous)[DAMAGED].encode() == bytes([MARK[0] ^ 1]) + MARK[1:]
        until(lambda: checking.has_failed() and raising.has_ended(), readers)
        assert read(checking, 0) == read(raising, 0) == [*range(DAMAGED)]
