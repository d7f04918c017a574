"""Recorded `__consumer_offsets` of Apache Kafka, with the brokers' logs and what was done; see tests/golden."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
from tests.incident.truth import Truth

from steelyard.incident.kafka.broker_log import Evidence, read_broker_log
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.incident.kafka.segments import SegmentScanner

GOLDEN = Path(__file__).parents[1] / "golden" / "incidents"
DUMPS = (
    "kafka-3.9.2-classic",
    "kafka-3.9.2-consumer",
    "kafka-4.3.1-classic",
    "kafka-4.3.1-consumer",
)
"""With eight incidents each."""
RESTARTS = ("kafka-4.3.1-classic-restarts", "kafka-4.3.1-consumer-restarts")
ROLLING = "kafka-4.3.1-consumer-rolling"
EAGER = "kafka-4.3.1-classic-eager"
GROUP = "incident"


def segment(name: str) -> bytes:
    return gzip.decompress((GOLDEN / name / "offsets.log.gz").read_bytes())


def topic(name: str) -> OffsetsTopic:
    found = OffsetsTopic()
    assert SegmentScanner(found).scan(segment(name)).left == 0
    return found


def evidence(name: str) -> list[Evidence]:
    lines = (GOLDEN / name / "broker.log").read_text().splitlines()
    return sorted(one for one in read_broker_log(lines) if one.group == GROUP)


def truth(name: str) -> list[Truth]:
    return msgspec.json.decode((GOLDEN / name / "truth.json").read_bytes(), type=list[Truth])
