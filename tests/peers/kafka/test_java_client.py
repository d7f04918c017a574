"""Apache's Java clients, 3.9 and 4.4, unmodified: producers, the Admin, exactly-once transactions."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import QUICK_START, QUIET, Running

pytestmark = pytest.mark.peer


@pytest.fixture(params=[builds.OLD, builds.NEW])
def version(request: pytest.FixtureRequest) -> str:
    """The Java client of each line in turn."""
    text: str = request.param
    return text


def play(scenario: str, version: str, cluster: Running, name: str) -> dict[str, Any]:
    """What Scenario.java tells of a scenario."""
    java = ["java", *QUICK_START, QUIET, "-cp", builds.java_classes(version)]
    done = subprocess.run(
        [*java, "Scenario", scenario, cluster.bootstrap, name],
        capture_output=True,
        text=True,
        timeout=120,
        env=java_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    return {fact["name"]: fact["value"] for fact in facts}


def test_records_of_every_codec_come_back(cluster: Running, version: str, name: str) -> None:
    tags = ("none", "gzip", "snappy", "lz4", "zstd", "acks=1", "acks=0")
    assert play("produce", version, cluster, name) == {
        "good": dict.fromkeys(tags, 200),
        "too large": "RecordTooLargeException",
        "first of a new topic": 0,
    }


def test_topics(cluster: Running, version: str, name: str) -> None:
    assert play("topics", version, cluster, name) == {
        "nodes": cluster.brokers,
        "has a controller": True,
        "has an id": True,
        "is listed": True,
        "partitions": 3,
        "created twice": "TopicExistsException",
        "bad name": "InvalidTopicException",
        "no partitions": "InvalidPartitionsException",
        "too many replicas": "InvalidReplicationFactorException",
        "default partitions": 1,
        "more partitions": 5,
        "fewer partitions": "InvalidPartitionsException",
        "as many partitions": "InvalidPartitionsException",
        "partitions of no topic": "UnknownTopicOrPartitionException",
        "retention": "3600000",
        "retention is default": False,
        "retention, set": "7200000",
        "retention, unset": True,
        "bad setting": "InvalidConfigurationException",
        "is listed afterwards": False,
        "described afterwards": "UnknownTopicOrPartitionException",
        "deleted twice": "UnknownTopicOrPartitionException",
    }


def test_offsets_and_groups(cluster: Running, version: str, name: str) -> None:
    assert play("offsets", version, cluster, name) == {
        "latest of nothing": 0,
        "youngest of nothing": -1,
        "earliest": 0,
        "latest": 10,
        "at 3.5 s": 4,
        "at 9.5 s": 6,
        "after all": -1,
        "youngest": 6,
        "low watermark": 4,
        "earliest afterwards": 4,
        "delete too many": "OffsetOutOfRangeException",
        "read of the rest": 6,
        "position at the end": 10,
        "committed by nobody": 0,
        "committed": 7,
        "note": "note",
        "state alone": "EMPTY",
        "is listed": True,
        "read from the commit on": 3,
        "committed in the group": 10,
        "state": "STABLE",
        "assignor": "range",
        "members": 1,
        "member": "reader",
        "host": "/127.0.0.1",
        "assigned": 1,
        "delete with members": "GroupNotEmptyException",
        "delete a read offset": "GroupSubscribedToTopicException",
        "alter with members": "UnknownMemberIdException",
        "state afterwards": "EMPTY",
        "offsets left": 0,
        "delete twice": "GroupIdNotFoundException",
        "is listed afterwards": False,
    }


def test_exactly_once(cluster: Running, version: str, name: str) -> None:
    assert play("transactions", version, cluster, name) == {
        "different": 60,
        "committed": 60,
        "more with those aborted": True,
        "offsets": 60,
        "stable end": 0,
        "end": 2,
        "stable end afterwards": 3,
        "fenced": "ProducerFencedException",
        "later": "committed",
    }
