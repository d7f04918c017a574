"""The benchmark: Steelyard beside Apache RocketMQ, the same load client, in the same run.

`./dev bench` runs it, `--tiny` is a grid of seconds without Apache for the tests. Rounds alternate
between the servers, A B A B, on one machine; while one is measured the other stands still (SIGSTOP). The
claim is the ratio, the median over the rounds; absolute numbers belong to the machine named beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))  # run as a script: `bench` and `tests` are beside us

from bench.load import Load, create_topic  # noqa: E402
from tests.peers import apache  # noqa: E402

from bench import servers  # noqa: E402

Result = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    rounds: int
    startups: int
    seconds: float
    warm_up_s: float
    connections: int
    stored: int
    """Messages in each topic that is pulled."""
    spark_rows: int
    """Messages of 100 B that Spark reads; 0 leaves Spark out."""


WHOLE = Size(
    rounds=3,
    startups=3,
    seconds=3.0,
    warm_up_s=20.0,
    connections=64,
    stored=64_000,
    spark_rows=1_024_000,
)
QUICK = Size(
    rounds=2,
    startups=1,
    seconds=1.0,
    warm_up_s=6.0,
    connections=64,
    stored=16_000,
    spark_rows=128_000,
)
TINY = Size(
    rounds=1, startups=1, seconds=0.2, warm_up_s=0.1, connections=4, stored=640, spark_rows=0
)

QUEUES = 4


def grid(size: Size) -> dict[str, Load]:
    """The cells by name; the address is filled in per server."""

    def cell(kind: str, topic: str, connections: int, message_bytes: int, batch: int = 1) -> Load:
        return Load(kind, "", topic, QUEUES, connections, message_bytes, batch, size.seconds)

    many = size.connections
    return {
        "send, 1 connection, 128 B": cell("send", "Send", 1, 128),
        f"send, {many} connections, 128 B": cell("send", "Send", many, 128),
        "send, 1 connection, 1 KiB": cell("send", "Send", 1, 1024),
        f"send, {many} connections, 1 KiB": cell("send", "Send", many, 1024),
        "batches of 32, 8 connections, 128 B": cell("batch", "Send", 8, 128, 32),
        "pull of 32, 1 connection, 128 B": cell("pull", "Stored128", 1, 128, 32),
        "pull of 32, 4 connections, 128 B": cell("pull", "Stored128", 4, 128, 32),
        "pull of 32, 4 connections, 1 KiB": cell("pull", "Stored1024", 4, 1024, 32),
    }


def throw(load: Load, *, core: int | None = None) -> Result:
    """Run the load in a process of its own, on this core if one is given."""
    pinned = () if core is None else ("taskset", "--cpu-list", str(core))
    done = subprocess.run(
        [*pinned, sys.executable, str(HERE / "load.py"), json.dumps(asdict(load))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load client failed on {load}: {done.stderr[-2000:]}")
    result: Result = json.loads(done.stdout)
    if result["failures"] or not result["messages"]:
        raise RuntimeError(f"requests failed: {result}")
    return result


def prepare(server: servers.Server, size: Size) -> None:
    """Topics with what is pulled later, and a warm server: Java compiles what runs often."""
    for topic, message_bytes in (("Stored128", 128), ("Stored1024", 1024)):
        create_topic(server.broker, topic, QUEUES)
        requests = size.stored // 32
        throw(Load("batch", server.broker, topic, QUEUES, 4, message_bytes, 32, 60, requests))
    if size.spark_rows:
        create_topic(server.broker, "Spark", QUEUES)
        requests = size.spark_rows // 32
        throw(Load("batch", server.broker, "Spark", QUEUES, 4, 100, 32, 60, requests))
    create_topic(server.broker, "Send", QUEUES)
    warm = size.warm_up_s / 4
    for cell in ("send", "batch", "pull"):
        topic, batch = (
            ("Stored128", 32) if cell == "pull" else ("Send", 32 if cell == "batch" else 1)
        )
        seconds = warm * 2 if cell == "send" else warm
        throw(Load(cell, server.broker, topic, QUEUES, size.connections, 128, batch, seconds))


def measure(server: servers.Server, load: Load) -> Result:
    """One cell on one server, with the CPU time of its broker."""
    cpu = server.cpu_s()
    result = throw(replace(load, address=server.broker))
    result["broker_cpu_us_per_message"] = (server.cpu_s() - cpu) * 1e6 / result["messages"]
    return result


def consume(server: servers.Server, size: Size) -> dict[str, Result]:
    """The client side: Steelyard's push consumer, one by one and in batches, on this server."""
    results = {}
    for mode in ("one", "batch"):
        done = subprocess.run(
            [
                *(sys.executable, str(HERE / "consume.py")),
                *(server.nameserver, "Stored128", str(size.stored), mode),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the consumer failed: {done.stdout}{done.stderr[-2000:]}")
        results[f"Steelyard consumer, {mode}, from {server.kind}"] = json.loads(done.stdout)
    return results


def consume_with_java(server: servers.Server, size: Size, folder: Path) -> dict[str, Result]:
    """The same of the Java client: CPU time of its JVM from joining the group to the last message, the second time."""
    with apache.Peer(apache.NEW, folder, java_options=("-Xms256m", "-Xmx1g")) as peer:
        for name in ("warm", "measured"):
            cpu, begun = servers.cpu_s(peer.process.pid), time.perf_counter()
            group = f"bench-java-{time.time_ns()}"
            peer.ask("counter", name, server.nameserver, group, "Stored128", "*")
            while peer.ask("count", name)["count"] < size.stored:
                if time.perf_counter() > begun + 60:
                    raise RuntimeError("the Java client did not get all messages within 60 s")
                time.sleep(0.02)
            seconds = time.perf_counter() - begun
            cpu = servers.cpu_s(peer.process.pid) - cpu
            peer.ask("stop", name)
    result = {
        "messages": size.stored,
        "seconds": seconds,
        "messages_per_s": size.stored / seconds,
        "cpu_us_per_message": cpu * 1e6 / size.stored,
    }
    return {f"Java 5.3.3 consumer, from {server.kind}": result}


def read_with_spark(server: servers.Server) -> Result:
    """Rows per second of `format("rocketmq")` into a noop sink, the median of five reads."""
    done = subprocess.run(
        [sys.executable, str(HERE / "spark_read.py"), server.nameserver, "Spark", "5"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Spark failed: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    result["rows_per_s"] = result["rows"] / median(result["seconds"])
    return result


Kind = type[servers.Steelyard] | type[servers.Apache]


def run(size: Size, *, with_apache: bool) -> Result:
    """All of it; prints a line as each cell is done."""
    kinds: list[Kind] = [servers.Steelyard]
    if with_apache:
        apache.prepare(apache.NEW)
        apache.prepare_servers(apache.NEW_SERVER)
        kinds.append(servers.Apache)
    running: list[servers.Server] = []
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        folder = Path(name)
        startups = start_often(kinds, size.startups - 1, folder)
        memory: dict[str, Result] = {}
        try:
            for kind in kinds:
                server = kind(folder / kind.kind)
                running.append(server)
                startups[kind.kind].append(server.startup_s)
                time.sleep(min(2.0, size.seconds))
                memory[kind.kind] = {"idle": server.memory()}
                prepare(server, size)
                server.freeze()
            cells = measure_all(running, size)
            clients: dict[str, Result] = {}
            spark: dict[str, Result] = {}
            for running_one in running:
                running_one.thaw()
                memory[running_one.kind]["after load"] = running_one.memory()
                clients |= consume(running_one, size)
                if size.spark_rows:
                    spark[running_one.kind] = read_with_spark(running_one)
                if with_apache:
                    clients |= consume_with_java(running_one, size, folder)
                running_one.freeze()
        finally:
            for running_one in running:
                running_one.stop()
    return {
        "machine": machine(),
        "size": asdict(size),
        "startup_s": startups,
        "memory": memory,
        "cells": cells,
        "clients": clients,
        "spark": spark,
    }


def start_often(kinds: list[Kind], times: int, folder: Path) -> dict[str, list[float]]:
    """Seconds from start to first acknowledged send, each kind in turn."""
    startups: dict[str, list[float]] = {kind.kind: [] for kind in kinds}
    for number in range(times):
        for kind in kinds:
            server = kind(folder / f"{kind.kind}{number}")
            startups[kind.kind].append(server.startup_s)
            server.stop()
    return startups


def measure_all(running: list[servers.Server], size: Size) -> dict[str, dict[str, list[Result]]]:
    """Every cell on every server, A B A B, in every round."""
    cells: dict[str, dict[str, list[Result]]] = {
        name: {server.kind: [] for server in running} for name in grid(size)
    }
    for number in range(size.rounds):
        for name, load in grid(size).items():
            for server in running:
                server.thaw()
                result = measure(server, load)
                server.freeze()
                cells[name][server.kind].append(result)
                print(progress(number, name, server.kind, result), flush=True)
    return cells


def progress(number: int, cell: str, kind: str, result: Result) -> str:
    rate, cpu = result["messages_per_s"], result["broker_cpu_us_per_message"]
    return f"round {number + 1}  {cell:36} {kind:10} {rate:>9,.0f}/s  broker {cpu:6.1f} µs CPU a message"


def machine() -> dict[str, str]:
    """What the absolute numbers belong to."""
    java = ""
    if shutil.which("java"):
        java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{os.cpu_count()} cores, {model[0] if model else platform.machine()}",
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "system": platform.system(),
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "none",
        "date": time.strftime("%Y-%m-%d"),
    }


# -- the table -------------------------------------------------------------------------------------


def middle(results: list[Result], field: str) -> float:
    return float(median(result[field] for result in results))


def ratio(cell: dict[str, list[Result]], field: str) -> str:
    """Steelyard over Apache, the median over the rounds."""
    if "apache" not in cell:
        return ""
    pairs = zip(cell["steelyard"], cell["apache"], strict=True)
    return f"{median(ours[field] / theirs[field] for ours, theirs in pairs):.2f}"


def tables(result: Result) -> str:
    """The whole result as Markdown."""
    kinds = list(result["startup_s"])
    lines = [
        "| messages per second | " + " | ".join(kinds) + " | ratio | reply p50 µs | reply p99 µs |"
    ]
    lines.append("|---|" + "--:|" * (len(kinds) + 3))
    for name, cell in result["cells"].items():
        rates = [f"{middle(cell[kind], 'messages_per_s'):,.0f}" for kind in kinds]
        replies = [
            " / ".join(f"{middle(cell[kind], field):,.0f}" for kind in kinds)
            for field in ("reply_p50_us", "reply_p99_us")
        ]
        lines.append(f"| {' | '.join([name, *rates, ratio(cell, 'messages_per_s'), *replies])} |")
    lines += ["", "| broker CPU, µs per message | " + " | ".join(kinds) + " | ratio |"]
    lines.append("|---|" + "--:|" * (len(kinds) + 1))
    field = "broker_cpu_us_per_message"
    for name, cell in result["cells"].items():
        costs = [f"{middle(cell[kind], field):.1f}" for kind in kinds]
        lines.append(f"| {' | '.join([name, *costs, ratio(cell, field)])} |")
    lines += ["", "| one nameserver, one broker | " + " | ".join(kinds) + " |"]
    lines.append("|---|" + "--:|" * len(kinds))
    startups = [f"{median(result['startup_s'][kind]):.2f}" for kind in kinds]
    lines.append(f"| start to first acknowledged send, s | {' | '.join(startups)} |")
    for when in ("idle", "after load"):
        for what in ("resident", "anonymous"):
            sizes = [f"{result['memory'][kind][when][f'{what}_mib']:.0f}" for kind in kinds]
            lines.append(f"| broker memory {when}, {what}, MiB | {' | '.join(sizes)} |")
    lines += ["", "| client | messages per second | CPU, µs per message |", "|---|--:|--:|"]
    for name, client in result["clients"].items():
        rate, cost = client["messages_per_s"], client["cpu_us_per_message"]
        lines.append(f"| {name} | {rate:,.0f} | {cost:.1f} |")
    if result["spark"]:
        lines += ["", "| Spark batch read | rows | rows per second |", "|---|--:|--:|"]
        for kind, read in result["spark"].items():
            lines.append(f"| from {kind} | {read['rows']:,} | {read['rows_per_s']:,.0f} |")
    return "\n".join(lines) + "\n"


README = """# Figures

Written by `./dev bench` ({date}). Machine: {processor}, {memory}, {system}, Python {python}, {java}.

What a rebalance costs: [REBALANCE.md](REBALANCE.md), by `./dev bench rebalance`; of Kafka Streams:
[REBALANCE_STREAMS.md](REBALANCE_STREAMS.md). Whether the ledger is
right: [TRUTH.md](TRUTH.md), by `./dev bench truth`. The Spark source beside Spark's own Kafka source:
[SPARK.md](SPARK.md), by `./dev bench spark`; how soon a stream has a message:
[SPARK_LATENCY.md](SPARK_LATENCY.md); what the tables of a long ledger cost:
[SPARK_LEDGER.md](SPARK_LEDGER.md); how long ten million commits of Kafka's groups take:
[INCIDENT.md](INCIDENT.md), by `./dev bench incident`; how fresh the table of a topic is:
[FRESHNESS.md](FRESHNESS.md), by `./dev bench freshness`. Compaction, delayed messages, gathered sends and more
brokers: [BROKER.md](BROKER.md). What TLS costs Kafka's clients: [KAFKA_TLS.md](KAFKA_TLS.md), by `./dev bench tls`.

{tables}
What was done
- Both servers ran on one machine, one nameserver and one broker each, asynchronous flush, the data on one file
  system. The cells alternated between the servers, {rounds} rounds of {seconds} s; the other one stood still
  meanwhile. A ratio is the median over the rounds of Steelyard over Apache RocketMQ 5.3.3.
- The load client (`load.py`) is one Python process with frames encoded beforehand and one request in flight per
  connection, the same for both. It shares the cores with the server, so rates are a lower bound of what a
  server can do; broker CPU per message is the steadier figure.
- Apache's JVM: {java_options}; it had {warm_up_s} s of load to compile before the first round. Its resident
  memory counts mapped pages of the commit log, which the kernel can take back; "anonymous" leaves them out.
- Clients: a fresh group reads {stored} messages of 128 B with a listener that does nothing; CPU of the whole
  process from joining the group to the last message. The Java client does it once before, to warm up.
- Spark: {spark_rows} messages of 100 B, all columns, into a noop sink, `local[2]` beside the server on the same cores,
  with `session(optimize=True)`; the median of five reads after one to warm up.
"""


def readme(result: Result) -> str:
    options = " ".join(servers.APACHE_OPTIONS)
    return README.format(
        **result["machine"], **result["size"], tables=tables(result), java_options=options
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--tiny", action="store_true", help="a grid of seconds, without Apache")
    sizes.add_argument(
        "--quick", action="store_true", help="the grid in a minute, to see that it works"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder for README.md and results/")
    options = parser.parse_args()
    size = TINY if options.tiny else QUICK if options.quick else WHOLE
    try:
        result = run(size, with_apache=not options.tiny)
    except apache.Missing as reason:
        raise SystemExit(f"no Apache RocketMQ to compare with: {reason}") from None
    print(tables(result))
    results: Path = options.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    date = result["machine"]["date"]
    (results / f"{date}.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "README.md").write_text(readme(result))


if __name__ == "__main__":
    main()
