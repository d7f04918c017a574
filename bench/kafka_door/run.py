"""The Kafka listener beside Apache Kafka: the same clients, the same machine, in one run.

`./dev bench kafka` runs it, `--tiny` is a grid of seconds without Apache for the tests. Rounds alternate between the
servers; while one is measured the other stands still (SIGSTOP). The claim is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from bench.kafka_door import group, servers  # noqa: E402
from bench.kafka_door.load import PARTITIONS, RATE, Load, create_topic  # noqa: E402

Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    rounds: int
    startups: int
    megabytes: dict[int, int]
    """Of each produce and consume cell, by the bytes of a message: a second or more of work."""
    latency_s: int
    rebalances: bool


WHOLE = Size(rounds=5, startups=3, megabytes={100: 150, 1024: 300}, latency_s=12, rebalances=True)
TINY = Size(rounds=1, startups=1, megabytes={100: 1, 1024: 1}, latency_s=3, rebalances=False)

Kinds = Mapping[str, Callable[[Path], servers.KafkaServer]]
"""By the heading of its column: what starts a server in a folder."""

KINDS: Kinds = {"steelyard": servers.Steelyard, "apache": servers.Apache}


def throw(load: Load) -> Figures:
    """Run the load in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("load.py")), json.dumps(asdict(load))],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load client failed on {load}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout)
    if figures["failures"]:
        raise RuntimeError(f"{load}: {figures['failures']}")
    return figures


def measure(server: servers.KafkaServer, size: Size, round_number: int) -> dict[str, Figures]:
    """Every cell once."""
    cells: dict[str, Figures] = {}

    def cell(name: str, load: Load) -> None:
        before = server.cpu_s()
        cells[name] = throw(load)
        spent = (server.cpu_s() - before) / load.messages
        cells[name]["broker_cpu_us_per_message"] = spent * 1e6
        shown = {n: round(v, 2) for n, v in cells[name].items() if isinstance(v, float)}
        print(f"  {name}: {shown}", flush=True)

    for message_bytes, megabytes in size.megabytes.items():
        topic = f"load-{message_bytes}-{round_number}"
        create_topic(server.bootstrap, topic, client=server.client)
        count = megabytes * 1_000_000 // message_bytes
        cell(
            f"produce, {message_bytes} B",
            Load("produce", server.bootstrap, topic, count, message_bytes, server.client),
        )
        cell(
            f"consume, {message_bytes} B",
            Load("consume", server.bootstrap, topic, count, message_bytes, server.client),
        )
    topic = f"latency-{round_number}"
    create_topic(server.bootstrap, topic, client=server.client)
    cell(
        f"end to end at {RATE:,}/s, 100 B",
        Load("latency", server.bootstrap, topic, size.latency_s * RATE, 100, server.client),
    )
    return cells


def folder_of(folder: Path, kind: str) -> Path:
    """A server's folder: Apache Kafka's `log.dirs` is a list separated by commas."""
    return folder / re.sub(r"\W+", "-", kind)


def run(size: Size, kinds: Kinds, folder: Path) -> Figures:
    startups: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(size.startups - 1):
        for kind, start in kinds.items():
            server = start(folder_of(folder, f"startup-{kind}-{number}"))
            startups[kind].append(server.startup_s)
            server.stop()
    running: dict[str, servers.KafkaServer] = {}
    memory: dict[str, Figures] = {}
    cells: dict[str, dict[str, list[Figures]]] = {}
    rebalances: dict[str, dict[str, Figures]] = {}
    try:
        for kind, start in kinds.items():
            running[kind] = start(folder_of(folder, kind))
            startups[kind].append(running[kind].startup_s)
            time.sleep(1)
            memory[kind] = {"idle": running[kind].memory()}
            running[kind].freeze()
        for round_number in range(-1 if size.rounds > 1 else 0, size.rounds):
            for kind, server in running.items():
                server.thaw()
                print(f"round {round_number}: {kind}", flush=True)
                for name, figures in measure(server, size, round_number).items():
                    if round_number >= 0:  # the first warms the Java up
                        cells.setdefault(name, {}).setdefault(kind, []).append(figures)
                memory[kind]["after load"] = server.memory()
                server.freeze()
        if size.rebalances:
            for protocol in group.PROTOCOLS:
                for kind, server in running.items():
                    server.thaw()
                    print(f"rebalance {protocol}: {kind}", flush=True)
                    rebalances.setdefault(protocol, {})[kind] = group.measure(
                        server.bootstrap, protocol
                    )
                    server.freeze()
    finally:
        for server in running.values():
            server.stop()
    return {"startup_s": startups, "memory": memory, "cells": cells, "rebalances": rebalances}


# -- the report ------------------------------------------------------------------------------------


def of(figures: list[Figures], name: str) -> float:
    return float(median([each[name] for each in figures]))


def table(result: Figures, kinds: list[str]) -> str:
    lines = [f"| | {' | '.join(kinds)} | ratio |", f"|---|{'--:|' * (len(kinds) + 1)}"]

    def row(name: str, values: list[float], form: str) -> None:
        ratio = f"{values[0] / values[1]:.2f}" if len(values) == 2 and values[1] else ""
        lines.append(f"| {name} | {' | '.join([format(v, form) for v in values])} | {ratio} |")

    for name, by_kind in result["cells"].items():
        each = [by_kind[kind] for kind in kinds]
        if "p50_ms" in each[0][0]:
            row(f"{name}: p50, ms", [of(e, "p50_ms") for e in each], ".2f")
            row(f"{name}: p99, ms", [of(e, "p99_ms") for e in each], ".2f")
        else:
            row(f"{name}: messages/s", [of(e, "messages_per_s") for e in each], ",.0f")
            row(f"{name}: MB/s", [of(e, "mb_per_s") for e in each], ".1f")
        cpu = [of(e, "broker_cpu_us_per_message") for e in each]
        row(f"{name}: broker CPU, µs a message", cpu, ".2f")
    startup = [median(result["startup_s"][kind]) for kind in kinds]
    row("start to first acknowledged message, s", startup, ".2f")
    for state in ("idle", "after load"):
        resident = [result["memory"][kind][state]["resident_mib"] for kind in kinds]
        row(f"broker memory {state}, resident, MiB", resident, ",.0f")
    return "\n".join(lines)


def rebalance_table(result: Figures, kinds: list[str]) -> str:
    lines = [f"| members | protocol | {' | '.join(kinds)} |", f"|---|---|{'--:|' * len(kinds)}"]
    for protocol, by_kind in result["rebalances"].items():
        for step in group.STEPS:
            shown = [
                f"{by_kind[kind][step]['converged_s']:.2f} · {by_kind[kind][step]['pause_ms']:,.0f}"
                for kind in kinds
            ]
            lines.append(f"| {step} | {protocol} | {' | '.join(shown)} |")
    return "\n".join(lines)


def machine() -> str:
    """When and where this ran, for a report."""
    return (
        f"({time.strftime('%Y-%m-%d')}). Machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}."
    )


def write_report(result: Figures, kinds: list[str], path: Path) -> None:
    text = f"""# The Kafka listener beside Apache Kafka

Written by `./dev bench kafka` {machine()} Clients: confluent-kafka (librdkafka), in processes of their own on the same cores; \
topics of {PARTITIONS} partitions, acks=all, one broker. Medians of the rounds, which alternate.

Produce is the noisiest: it writes to memory that a virtual machine may have to be given first, and to one disk for both.
Steelyard syncs it every second, Kafka leaves it to the kernel.

{table(result, kinds)}
"""
    if result["rebalances"]:
        text += f"""
A group of librdkafka members over {group.PARTITIONS} partitions at {group.RATE:,} messages a second: seconds until everyone \
holds its share · longest gap of any partition in ms. Heartbeats every {group.HEARTBEAT_MS:,} ms on both.

{rebalance_table(result, kinds)}
"""
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "bench")
    options = parser.parse_args()
    size = TINY if options.tiny else WHOLE
    kinds = {"steelyard": servers.Steelyard} if options.tiny else KINDS
    with tempfile.TemporaryDirectory() as folder:
        result = run(size, kinds, Path(folder))
    write_report(result, list(kinds), options.out / "KAFKA.md")
    print((options.out / "KAFKA.md").read_text())


if __name__ == "__main__":
    main()
