"""`steelyard pipeline move` to Apache RocketMQ 5.3 and back, counted by mqadmin and read by the Java client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import Servers
from tests.moves import contents
from tests.peers.apache import NEW, Peer
from tests.peers.conftest import Running
from tests.peers.series import expected, message, seen_by_java
from tests.waiting import until

from steelyard import Admin, MessageQueue, Producer, PullConsumer
from steelyard.spark import pipeline

pytestmark = pytest.mark.peer

SIZES = {range(80): 100, range(80, 83): 20_000, range(83, 200): 50}
COUNT = 200


def move(source: str, target: str, topic: str, state: Path, capsys: Any) -> dict[str, Any]:
    arguments = ["move", "rocketmq", "--from", source, "--to", target, "-t", topic, "--json"]
    assert pipeline.main([*arguments, "--state", str(state), "--all-groups"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def rows(text: str, start: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(start)]


def kept(found: dict[MessageQueue, list[Any]]) -> list[list[Any]]:
    """Messages queue by queue, without what each broker writes itself."""
    own = {"CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}
    return [
        [
            (*one[:3], {name: text for name, text in one[3].items() if name not in own})
            for one in found[queue]
        ]
        for queue in sorted(found)
    ]


def test_there_and_back(
    steelyard_cluster: Running,
    apache_cluster: Running,
    peers: dict[str, Peer],
    name: str,
    tmp_path: Path,
    capsys: Any,
) -> None:
    java, group = peers[NEW], f"{name}g"
    home, away = steelyard_cluster.nameserver, apache_cluster.nameserver
    with Admin(home) as admin:
        admin.create_topic(name, queues=2)
    with Producer(f"{name}p", home, compress_above_bytes=4_000) as producer:
        queues = sorted(producer.queues(name))
        for sizes, size in SIZES.items():
            batch = [message(name, "s", index, size) for index in sizes]
            if len(sizes) > 100:  # born in one millisecond
                producer.send_batch(batch, queue=queues[0])
                continue
            for index, one in zip(sizes, batch, strict=True):
                producer.send(one, queue=queues[index % len(queues)])
    with PullConsumer(group, home) as consumer:
        for place, queue in enumerate(queues):
            consumer.commit(queue, 3 * place)
    sent = contents(home, name)
    counts = [len(sent[queue]) for queue in queues]

    there = move(home, away, name, tmp_path / "there", capsys)
    assert [one["moved"] for one in there["queues"]] == counts
    text = java.mqadmin("topicStatus", "-n", away, "-t", name)
    lines = rows(text, "broker-")
    assert [(int(line[1]), int(line[2]), int(line[3])) for line in sorted(lines)] == [
        (place, 0, count) for place, count in enumerate(counts)
    ]
    java.ask("consumer", f"{name}c", away, f"{name}cg", name, "*")
    until(lambda: len(java.received(f"{name}c")) >= COUNT, "every message")
    received = java.received(f"{name}c")
    java.ask("stop", f"{name}c")
    assert sorted(map(seen_by_java, received)) == expected(name, "s", SIZES)
    assert kept(contents(away, name)) == kept(sent)
    progress = rows(java.mqadmin("consumerProgress", "-n", away, "-g", group), name)
    assert sorted((int(line[2]), int(line[4])) for line in progress) == [
        (place, 3 * place) for place in range(len(queues))
    ]
    assert [
        one["moved"] for one in move(home, away, name, tmp_path / "there", capsys)["queues"]
    ] == [0] * len(queues)

    third = Servers(tmp_path / "third")
    try:
        back = move(away, third.nameservers, name, tmp_path / "back", capsys)
        assert [one["moved"] for one in back["queues"]] == counts
        assert kept(contents(third.nameservers, name)) == kept(sent)
        offsets = {one["group"]: 0 for one in back["offsets"]}
        assert group in offsets
        with PullConsumer(group, third.nameservers) as consumer:
            assert [consumer.committed(queue) for queue in sorted(consumer.queues(name))] == [
                3 * place for place in range(len(queues))
            ]
    finally:
        third.stop()
