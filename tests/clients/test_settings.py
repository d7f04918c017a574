"""What a broker was started with, as Kafka's administrators see it: names, types, sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running

FILE = """
[broker]
num.partitions = 3
log.retention.ms = -1

[broker.store]
segment_bytes = 2_000_000
segment_ms = 1000

[broker.kafka]
offsets_retention_check_interval_ms = 1000
"""

STATIC, DEFAULT = "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"

BROKER = {
    "num.partitions": ("INT", "4", STATIC),  # --set goes before the file
    "log.retention.ms": ("LONG", "-1", STATIC),
    "log.segment.bytes": ("INT", "2000000", STATIC),
    "log.roll.ms": ("LONG", "1000", STATIC),
    "offsets.retention.check.interval.ms": ("LONG", "1000", STATIC),
    "log.retention.bytes": ("LONG", "-1", DEFAULT),
    "auto.create.topics.enable": ("BOOLEAN", "true", DEFAULT),
    "offset.metadata.max.bytes": ("INT", "4096", DEFAULT),
    "transaction.max.timeout.ms": ("INT", "900000", DEFAULT),
    "offsets.topic.replication.factor": ("SHORT", "1", DEFAULT),
    "log.retention.check.interval.ms": ("LONG", "10000", DEFAULT),
    "message.max.bytes": ("INT", "1048588", DEFAULT),
}
"""Types, values and sources. Source of the types: Kafka's ServerConfigs, GroupCoordinatorConfig, LogConfig."""

ALTERABLE = frozenset(
    (
        "log.retention.ms",
        "log.segment.bytes",
        "log.roll.ms",
        "log.retention.bytes",
        "message.max.bytes",
    )
)
"""What can be changed while the broker runs."""

TOPIC = {
    "retention.ms": ("LONG", "-1", STATIC),
    "segment.bytes": ("INT", "2000000", STATIC),
    "segment.ms": ("LONG", "1000", STATIC),
    "retention.bytes": ("LONG", "7", "DYNAMIC_TOPIC_CONFIG"),
    "max.message.bytes": ("INT", "1048588", DEFAULT),
    "cleanup.policy": ("LIST", "delete", DEFAULT),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("settings")
    file = folder / "steelyard.toml"
    file.write_text(FILE)
    options = ("--config", str(file), "--set", "num.partitions=4")
    with servers.run_steelyard(folder, *options) as running:
        yield running


def test_kafka_python_sees_types_values_and_sources(kafka: Running, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        admin.create_topics(
            {
                name: {
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": {"retention.bytes": "7"},
                }
            }
        )
        resources = [
            KafkaPythonResource(ConfigResourceType.BROKER, "1"),
            KafkaPythonResource(ConfigResourceType.TOPIC, name),
        ]
        found = admin.describe_configs(resources, include_synonyms=True, config_filter="all")
    finally:
        admin.close()
    for kind, resource, wanted in (("broker", "1", BROKER), ("topic", name, TOPIC)):
        told = found[kind][resource]
        seen = {
            key: (told[key]["config_type"], told[key]["value"], told[key]["config_source"])
            for key in wanted
        }
        assert seen == wanted
    synonyms = [
        (each["name"], each["value"], each["source"])
        for each in found["topic"][name]["segment.bytes"]["synonyms"]
    ]
    assert synonyms == [
        ("log.segment.bytes", "2000000", STATIC),
        ("log.segment.bytes", str(256 * 1024 * 1024), DEFAULT),
    ]


def test_confluent_kafka_sees_the_same_sources(kafka: Running) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    told = admin.describe_configs([resource])[resource].result(30)
    sources = {STATIC: 4, DEFAULT: 5}
    assert {key: (told[key].value, told[key].source, told[key].is_read_only) for key in BROKER} == {
        key: (value, sources[source], key not in ALTERABLE)
        for key, (_, value, source) in BROKER.items()
    }
