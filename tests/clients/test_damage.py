"""Unmodified clients at a partition with a damaged record: they get no damaged one, wait, and go on after the repair."""

from __future__ import annotations

from pathlib import Path

from tests.clients.damaged import Cluster, meet_damage
from tests.peers.kafka.members import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA


def test_a_damaged_record(tmp_path: Path, name: str) -> None:
    with Cluster(tmp_path) as cluster:
        meet_damage(cluster, (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA), (), tmp_path, name)
