"""`steelyard pipeline move` to Apache Kafka and back, counted by Kafka's tools and read by librdkafka."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.api.kafka import KafkaServers
from tests.moves import PARTITIONS, commit, produce, read
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running
from tests.peers.kafka.test_tools import GROUPS, TOOLS, TOPICS, table, tool

from steelyard.spark import pipeline

pytestmark = pytest.mark.peer

COUNT = 600


def move(
    source: str, target: str, topic: str, state: Path, capsys: Any, *options: str
) -> dict[str, Any]:
    arguments = ["move", "kafka", "--from", source, "--to", target, "-t", topic, "--json"]
    assert pipeline.main([*arguments, "--state", str(state), "--all-groups", *options]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_there_and_back(
    steelyard_kafka: Running, apache_kafka: Running, name: str, tmp_path: Path, capsys: Any
) -> None:
    home, away = steelyard_kafka.bootstrap, apache_kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": home})
    topic = NewTopic(name, PARTITIONS, 1, config={"max.message.bytes": "70000"})
    admin.create_topics([topic])[name].result(60)
    produce(home, name, range(COUNT // 2), aborted=True)
    produce(home, name, range(COUNT // 2, COUNT))
    sent = read(home, name)
    assert len(sent) == COUNT
    commit(home, f"{name}g", name, {0: sent[7][1], 1: sent[320][1]})

    there = move(home, away, name, tmp_path / "there", capsys)
    each = COUNT // PARTITIONS
    assert [one["moved"] for one in there["queues"]] == [each] * PARTITIONS
    server = ("--bootstrap-server", away)
    counted = tool(f"{TOOLS}.GetOffsetShell", *server, "--topic", name).split()
    assert sorted(counted) == [f"{name}:{number}:{each}" for number in range(PARTITIONS)]
    assert "max.message.bytes=70000" in tool(TOPICS, *server, "--describe", "--topic", name)
    arrived = read(away, name)
    assert [one[:1] + one[2:] for one in arrived] == [one[:1] + one[2:] for one in sent]
    group = table(tool(GROUPS, *server, "--describe", "--group", f"{name}g"))
    assert {row["PARTITION"]: row["CURRENT-OFFSET"] for row in group} == {"0": "7", "1": "120"}
    again = move(home, away, name, tmp_path / "there", capsys)
    assert [one["moved"] for one in again["queues"]] == [0] * PARTITIONS

    produce(away, name, range(COUNT, COUNT + 30), aborted=True)
    third = KafkaServers(tmp_path / "third")
    try:
        back = move(away, third.bootstrap, name, tmp_path / "back", capsys)
        assert [one["moved"] for one in back["queues"]] == [each + 10] * PARTITIONS
        arrived = read(third.bootstrap, name)
        returned = [one[:1] + one[2:] for one in arrived if one[1] < each]
        assert returned == [one[:1] + one[2:] for one in sent]
        assert {
            one["source"]: one["target_offset"]
            for one in back["offsets"]
            if one["group"] == f"{name}g"
        } == {"0": 7, "1": 120}
    finally:
        third.stop()


def test_tls(
    steelyard_kafka: Running, certificate: Path, name: str, tmp_path: Path, capsys: Any
) -> None:
    """There and back over TLS; a certificate that is not trusted ends the move with one line."""
    home = steelyard_kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": home})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    produce(home, name, range(60))
    commit(home, f"{name}g", name, {0: 7})
    trusted = ("tls=true", f"tlsCaFile={certificate}")
    with servers.run_apache(tmp_path / "apache", certificate=certificate) as apache:
        away = apache.encrypted
        words = [word for one in trusted for word in ("--to-option", one)]
        there = move(home, away, name, tmp_path / "there", capsys, *words)
        assert sum(one["moved"] for one in there["queues"]) == 60
        third = KafkaServers(tmp_path / "third")
        try:
            words = [word for one in trusted for word in ("--from-option", one)]
            back = move(away, third.bootstrap, name, tmp_path / "back", capsys, *words)
            arrived = read(third.bootstrap, name)
        finally:
            third.stop()
        assert [one[:1] + one[2:] for one in arrived] == [
            one[:1] + one[2:] for one in read(home, name)
        ]
        offsets = [one for one in back["offsets"] if one["group"] == f"{name}g"]
        assert [one["target_offset"] for one in offsets] == [7]
        reached = ["--kafka", away, "--option", "tls=true"]
        trusting = [*reached, "--option", f"tlsCaFile={certificate}"]
        assert pipeline.main(["incident", *trusting]) == 0
        assert re.search(rf"^{name}g +{name} +0 +7 ", capsys.readouterr().out, re.MULTILINE)
        assert pipeline.main(["archive-offsets", *trusting, "--out", str(tmp_path / "kept")]) == 0
        assert re.match(r"\d+ new records? in ", capsys.readouterr().out)
        assert pipeline.main(["incident", *reached]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "certificate verify failed" in line
        command = ["move", "kafka", "--from", home, "--to", away, "-t", name]
        command += ["--state", str(tmp_path / "other"), "--to-option", "tls=true"]
        assert pipeline.main([*command, "--to-option", "retryTimeoutMs=0"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "certificate verify failed" in line
