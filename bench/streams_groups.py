"""How soon the instances of a Kafka Streams application share its tasks when one joins another, and when it leaves.

Unmodified Java, `group.protocol=streams` (KIP-1071), exactly-once, the brokers' default intervals; on Steelyard, on Steelyard
with `delayed_answers=false`, and on Apache Kafka, in turn.

    python -m bench.streams_groups [rounds]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.peers.kafka import servers
from tests.peers.kafka.streams_apps import WordCount, all_tasks
from tests.waiting import until

PARTITIONS = 4
BEFORE_S = 7.0
"""Pause before each change: longer than an interval, so that the group is at rest."""
TIMES_MS = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 5_000}
"""Kafka's defaults; the tests' servers have shorter ones."""


class Shared(NamedTuple):
    """Seconds until all tasks ran again in equal shares, after the newcomer spoke and after the leaver's call to close."""

    join_s: float
    leave_s: float


def clusters(folder: Path) -> Iterator[tuple[str, AbstractContextManager[servers.Running]]]:
    times = {f"group.streams.{key}": ms for key, ms in TIMES_MS.items()}
    options = [word for key, ms in times.items() for word in ("--kafka-set", f"{key}={ms}")]
    yield "steelyard", servers.run_steelyard(folder / "waits", *options)
    off = ("--set", "delayed_answers=false")
    yield "steelyard, delayed_answers=false", servers.run_steelyard(folder / "off", *options, *off)
    least = {f"group.streams.min.{key}": ms for key, ms in TIMES_MS.items()}
    settings = {**servers.SETTINGS, **times, **least}
    yield "apache", servers.run_apache(folder / "apache", settings=settings)


def play(cluster: servers.Running, folder: Path) -> Shared:
    folder.mkdir()
    tasks = all_tasks(PARTITIONS)
    with WordCount(cluster, folder.name, folder, processing_guarantee="exactly_once_v2") as app:
        app.send()
        app.start("one")
        app.wait_counted()
        app.wait_shared(tasks, "one")
        time.sleep(BEFORE_S)
        app.start("two")
        until(lambda: app.instances["two"].events, app)
        begun = time.monotonic()
        app.wait_shared(tasks, "one", "two")
        join_s = time.monotonic() - begun
        time.sleep(BEFORE_S)
        begun = time.monotonic()
        app.leave("two")
        app.wait_shared(tasks, "one")
        leave_s = time.monotonic() - begun
        app.send()
        app.wait_counted()
    return Shared(join_s, leave_s)


def main(rounds: int) -> None:
    found: dict[str, list[Shared]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            round_ = Path(name) / f"round{number}"
            for kind, cluster in clusters(round_):
                with cluster as running:
                    shared = play(running, round_ / f"app{sum(map(len, found.values()))}")
                found.setdefault(kind, []).append(shared)
                print(kind, shared, flush=True)
    print("\n| brokers | join p50 s | longest | leave p50 s | longest |\n|---|--:|--:|--:|--:|")
    for kind, all_shared in found.items():
        cells = [
            f"{measure(times):.1f}"
            for times in zip(*all_shared, strict=True)
            for measure in (statistics.median, max)
        ]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
