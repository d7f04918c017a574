"""The command line as processes of their own, and a cluster that `steelyard up` runs for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = [sys.executable, "-m", "steelyard"]

NOBODY = "127.0.0.1:1"


class Ports(NamedTuple):
    """Addresses of a cluster's nameserver, and of the two listeners of its first broker."""

    nameserver: str
    broker: str
    kafka: str


@contextmanager
def cluster(data: Path, brokers: int = 2) -> Iterator[Ports]:
    """A cluster that serves both protocols, on free ports."""
    up = subprocess.Popen(
        [
            *(*COMMAND, "up", "--brokers", str(brokers), "--data", str(data), "--json"),
            *("--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        ready = json.loads(up.stdout.readline())
        kafka = ready["kafka"].split(",")[0].strip()
        yield Ports(ready["nameserver"], ready["brokers"]["broker-a"], kafka)
    finally:
        up.terminate()
        up.communicate(timeout=60)


def run(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


def start(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A command that goes on; its streams are pipes."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *arguments], **(pipes | streams))


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]  # texts may have U+2028 in them


def committed(nameserver: str, group: str, topic: str) -> int:
    """Messages of a topic that a group has committed, of all queues."""
    return sum(int(row[4]) for row in _progress(nameserver, group, topic))


def _progress(nameserver: str, group: str, topic: str) -> list[list[str]]:
    shown = run("admin", "consumerProgress", "-n", nameserver, "-g", group, "-t", topic)
    assert shown.returncode == 0, shown
    return [line.split() for line in shown.stdout.splitlines() if line.startswith(f"{topic} ")]


def stored(nameserver: str, topic: str) -> int:
    """Messages that a topic ever had."""
    shown = run("admin", "topicStatus", "-n", nameserver, "-t", topic)
    assert shown.returncode == 0, shown
    return sum(int(line.split()[3]) for line in shown.stdout.splitlines()[1:])
