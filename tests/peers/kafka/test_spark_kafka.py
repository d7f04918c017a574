"""Spark's own Kafka source and sink, batch and stream, in one application on Apache Kafka and on ours."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.apache import Missing, java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.members import ROOT
from tests.peers.kafka.servers import Running

pytestmark = [pytest.mark.peer, pytest.mark.spark]


@pytest.fixture(scope="module")
def told(
    apache_kafka: Running, steelyard_kafka: Running, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What the application tells of each cluster, by the cluster's kind."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install steelyard[spark]")
    try:
        folder = builds.jars("spark", builds.SPARK)
    except Missing as reason:
        pytest.skip(f"no Kafka source for Spark: {reason}")
    clusters = {f"spark{place}": c for place, c in enumerate((apache_kafka, steelyard_kafka))}
    for topic, cluster in clusters.items():
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = [NewTopic(topic, 3, 1), NewTopic(f"{topic}-copy", 3, 1)]
        for made in admin.create_topics(new).values():
            made.result(30)
    jars = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    places = [f"{cluster.bootstrap}={topic}" for topic, cluster in clusters.items()]
    checkpoints = str(tmp_path_factory.mktemp("spark"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.peers.kafka.python.spark", jars, checkpoints, *places],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env=java_environment() | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    facts: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        fact = json.loads(line)
        kind = clusters[fact["topic"]].kind
        facts.setdefault(kind, {})[fact["name"]] = fact["value"]
    return facts


def test_source_and_sink(told: dict[str, dict[str, Any]], cluster: Running) -> None:
    assert told[cluster.kind] == {
        "rows": 1000,
        "numbers": True,
        "dense": True,
        "a part": [[0, offset] for offset in range(10, 15)] + [[1, offset] for offset in range(5)],
        "copied": 1000,
        "copied in all": 1100,
    }
