"""`steelyard produce` and `steelyard consume` with Apache's brokers, and Apache's mqadmin as the judge of what they left."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.admin.processes import json_lines, run
from tests.peers.apache import OLD, Peer
from tests.peers.conftest import Running, create_topic

pytestmark = pytest.mark.peer

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def java(peers: dict[str, Peer]) -> Peer:
    return peers[OLD]


@pytest.fixture
def topic(any_cluster: Running, java: Peer, name: str) -> str:
    create_topic(any_cluster, java, name, queues=2)
    return name


@pytest.fixture
def command(any_cluster: Running) -> Command:
    """Runs a command that has to succeed, quietly."""

    def call(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        done = run(*arguments, text=text, NAMESRV_ADDR=any_cluster.nameserver)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done

    return call


def stored(java: Peer, cluster: Running, topic: str) -> int:
    text = java.mqadmin("topicStatus", "-n", cluster.nameserver, "-t", topic)
    return sum(int(line.split()[3]) for line in text.splitlines() if line.startswith("broker"))


def committed(java: Peer, cluster: Running, group: str, topic: str) -> int:
    text = java.mqadmin("consumerProgress", "-n", cluster.nameserver, "-g", group)
    return sum(int(line.split()[4]) for line in text.splitlines() if line.startswith(f"{topic} "))


def test_consume_commits_exactly_what_it_printed(
    any_cluster: Running, java: Peer, command: Command, topic: str
) -> None:
    group = f"{topic}g"
    command("produce", "-t", topic, "--count", "120", "--size", "1")
    delayed = stored(java, any_cluster, "SCHEDULE_TOPIC_XXXX")
    consume = ("consume", "-t", topic, "-g", group, "--from", "earliest", "--timeout", "100")
    first = command(*consume, "--count", "7").stdout.splitlines()
    assert len(first) == 7
    assert committed(java, any_cluster, group, topic) == 7
    rest = command(*consume, "--count", "113").stdout.splitlines()
    assert sorted(first + rest) == sorted(f"{number} " for number in range(120))
    assert committed(java, any_cluster, group, topic) == 120
    assert stored(java, any_cluster, f"%RETRY%{group}") == 0
    assert stored(java, any_cluster, "SCHEDULE_TOPIC_XXXX") == delayed


def test_a_new_group_begins_where_it_is_told(command: Command, topic: str) -> None:
    """4.x and 5.x brokers themselves would have it read short queues from their beginning."""
    queue = ("-t", topic, "--sharding-key", "one")
    printed = command("produce", *queue, "--json", text="0\n1\n2\n").stdout
    assert len({(line["broker"], line["queue_id"]) for line in json_lines(printed)}) == 1

    def begins(start: str, *options: str) -> list[str]:
        group = f"{topic}{'abcde'[len(used)]}"
        used.append(group)
        consume = ("consume", "-t", topic, "-g", group, "--from", start, *options)
        return sorted(command(*consume).stdout.splitlines())

    used: list[str] = []
    assert begins("2", "--count", "1") == ["2"]
    assert begins("-1h", "--count", "3") == ["0", "1", "2"]
    assert begins("latest", "--timeout", "5") == []
    command("produce", *queue, "--body", "new")
    late = ("consume", "-t", topic, "-g", used[-1], "--timeout", "60")
    assert command(*late, "--count", "1").stdout == "new\n"


def test_a_java_message_survives_a_round_trip(
    any_cluster: Running, java: Peer, command: Command, topic: str
) -> None:
    """1. A Java producer sends a message with tags, keys and properties. 2. Out as JSON, and in again. 3. It is the same."""
    java.ask("producer", f"{topic}p", any_cluster.nameserver, f"{topic}pg")
    java.ask("send", f"{topic}p", topic, "s", 0, 3, 60)
    java.ask("stop", f"{topic}p")
    consume = ("consume", "--from", "earliest", "--count", "3", "--timeout", "60", "--json")
    first = command(*consume, "-t", topic, "-g", f"{topic}g").stdout
    second_topic = f"{topic}two"
    command("produce", "--input", "json", "-t", second_topic, text=first)
    second = command(*consume, "-t", second_topic, "-g", f"{topic}h").stdout

    def set_by_users(text: str) -> list[dict[str, Any]]:
        names = ("body", "body_base64", "tags", "keys", "properties", "flag", "sharding_key")
        lines = [{n: line.get(n) for n in names} for line in json_lines(text)]
        return sorted(lines, key=lambda line: str(line["properties"]))

    assert set_by_users(second) == set_by_users(first)
    assert all(line["tags"] and line["properties"] for line in set_by_users(first))
