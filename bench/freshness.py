"""How fresh the table of `steelyard pipeline sink` is under a steady load: `./dev bench freshness`.

    brokers     two of Steelyard's, with Kafka listeners
    load        librdkafka, at a fixed rate; each body has a number and the time of its sending
    sink        `steelyard pipeline sink --json`, from the command line, with its defaults
    watcher     this program looks at the folder of the table's log 20 times a second, and notes when it
                first saw each version of it

All of them share two cores. Afterwards the files of the table are read without Steelyard and without Spark: every
message must be in them once, and the time from its sending until the watcher saw its file in the log is its freshness.
What the sink said of itself stands beside that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import psutil
import pyarrow.parquet as pq
from confluent_kafka import Producer

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from bench.clusters import Steelyard  # noqa: E402
from bench.run import machine  # noqa: E402
from bench.servers import tree_cpu_s  # noqa: E402

from steelyard import Admin  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOPIC = "Orders"
QUEUES = 4
"""In all."""
TICK_S = 0.01
LOOK_S = 0.05
"""Between two looks of the watcher."""
FIRST_NUMBER = 10**9
"""So that all numbers have as many digits."""
NUMBER_AT, SENT_AT = slice(5, 15), slice(23, 42)
"""Where a body of `body_of` has its number, and the time of its sending."""
DEADLINE_S = 400.0
"""For the first micro-batch, and for the last one after the end of the load."""
LAKE = "lake"


# -- the load --------------------------------------------------------------------------------------


def body_of(number: int, sent_ns: int, size: int) -> bytes:
    """JSON of the given size."""
    return (b'{"n":%d,"sent":%d' % (FIRST_NUMBER + number, sent_ns)).ljust(size - 1) + b"}"


def load(brokers: str, rate: int, size: int) -> None:
    """Send until stdin ends, then print what was sent. A time of sending is that of its tick."""
    failed = 0

    def told(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "sticky.partitioning.linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": told,
        }
    )
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    sent, behind_s = 0, 0.0
    begun = time.monotonic()
    while not over.is_set():
        due = int((time.monotonic() - begun) * rate)
        behind_s = max(behind_s, (due - sent) / rate)
        now = time.time_ns()
        for number in range(sent, due):
            producer.produce(TOPIC, body_of(number, now, size))
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, (sent + rate * TICK_S) / rate - (time.monotonic() - begun)))
    left = producer.flush(60)
    print(json.dumps({"sent": sent, "failed": failed + left, "behind_ms": behind_s * 1000}))


# -- the table -------------------------------------------------------------------------------------


@dataclass
class Table:
    """Where a table is: `out` for the sink, `log` the folder of its log."""

    to: str
    folder: Path

    @property
    def out(self) -> str:
        return f"{LAKE}.shop.orders" if self.to == "iceberg" else str(self.folder / "orders")

    @property
    def log(self) -> Path:
        return {
            "parquet": self.folder / "orders/_spark_metadata",
            "delta": self.folder / "orders/_delta_log",
            "iceberg": self.folder / "lake/shop/orders/metadata",
        }[self.to]

    @property
    def suffix(self) -> str:
        """What the name of a version of the log ends with."""
        return {"parquet": ".compact", "delta": ".json", "iceberg": ".metadata.json"}[self.to]

    def prepare(self) -> None:
        """Iceberg needs a catalog, found by the environment, and its namespace."""
        if self.to != "iceberg":
            return
        settings = {"TYPE": "sql", "URI": f"sqlite:///{self.folder}/catalog.db"}
        settings |= {"WAREHOUSE": f"file://{self.folder}/lake"}
        os.environ |= {f"PYICEBERG_CATALOG__LAKE__{name}": text for name, text in settings.items()}
        from pyiceberg.catalog import load_catalog

        load_catalog(LAKE).create_namespace("shop")

    def files(self, version: str) -> set[str]:
        """The paths of the files that one version of the log names, or of all up to it."""
        lines = version.splitlines()
        if self.to == "parquet":
            return {unquote(urlsplit(json.loads(line)["path"]).path) for line in lines[1:]}
        if self.to == "delta":
            added = [json.loads(line).get("add") for line in lines]
            return {str(self.log.parent / unquote(one["path"])) for one in added if one}
        from pyiceberg.table import StaticTable

        snapshots = json.loads(version)["snapshots"]
        if not snapshots:
            return set()
        with tempfile.NamedTemporaryFile("w", suffix=".metadata.json") as file:
            file.write(version)
            file.flush()
            tasks = StaticTable.from_metadata(file.name).scan().plan_files()
        return {urlsplit(task.file.file_path).path for task in tasks}


class Watcher(threading.Thread):
    """Notes when each version of the log was first seen, and its text: old ones are deleted."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, tuple[int, str]] = {}
        """Time in ns and text, by name, in the order of time."""
        self._table = table
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._look()

    def _look(self) -> None:
        names = os.listdir(self._table.log) if self._table.log.is_dir() else []
        for name in sorted(names):
            is_version = name.endswith(self._table.suffix) and not name.startswith((".", "_"))
            if is_version and name not in self.seen:
                now, text = time.time_ns(), (self._table.log / name).read_text()
                if text and text.count("{") == text.count("}"):  # else it is being written
                    self.seen[name] = now, text

    def first_seen(self) -> dict[str, int]:
        """The time in ns when each file was first seen in the log."""
        found: dict[str, int] = {}
        for now, text in self.seen.values():
            for path in self._table.files(text):
                found.setdefault(path, now)
        return found


class Rows(NamedTuple):
    """Rows of one micro-batch, by the names of their files."""

    batch: int
    numbers: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    seen_ns: int


def read_rows(first_seen: dict[str, int]) -> Iterator[Rows]:
    """The rows of each file that is in the table."""
    for path, seen in first_seen.items():
        columns = pq.ParquetFile(path)
        batch = int(Path(path).stem.split("-")[1])
        if "n" in columns.schema_arrow.names:
            read = columns.read(["n", "sent"])
            numbers = read["n"].to_numpy() - FIRST_NUMBER
            yield Rows(batch, numbers, read["sent"].to_numpy(), seen)
            continue
        for chunk in columns.read(["body"])["body"].chunks:
            bodies = np.array(chunk.to_pylist(), dtype=np.bytes_)
            digits = bodies.view(np.uint8).reshape(len(bodies), -1).astype(np.int64) - ord("0")
            numbers, sent = (_value(digits[:, where]) for where in (NUMBER_AT, SENT_AT))
            yield Rows(batch, numbers - FIRST_NUMBER, sent, seen)


def _value(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    value: NDArray[np.int64] = digits @ 10 ** np.arange(digits.shape[1])[::-1]
    return value


# -- a run -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What was measured in the window. Times in seconds, CPU in cores."""

    to: str
    rate: float
    behind_ms: float
    sent: int
    batches: int
    rows_a_batch: float
    duration: float
    own: tuple[float, float]
    """Median over the micro-batches of their p50; worst p99."""
    same: tuple[float, float]
    """The same from the rows."""
    true: tuple[float, float, float]
    """p50, p99 and maximum of all messages."""
    cpu: tuple[float, float, float]
    """Load, brokers, Spark."""


class Sink:
    """The command, and what it says of its micro-batches."""

    def __init__(self, nameserver: str, table: Table, options: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "steelyard", "pipeline", "sink", "--json"]
        command += ["-n", nameserver, "-t", TOPIC, "--to", table.to, "--out", table.out]
        command += ["--checkpoint", str(table.folder / "checkpoint"), "--compact-every", "0"]
        command += ["--schema", options.schema]
        if options.schema == "json":
            command += ["--schema-ddl", "n bigint, sent bigint"]
        command += options.sink_options.split()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.reports: list[dict[str, Any]] = []
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            print(line, end="", flush=True)
            self.reports.append(json.loads(line))

    @property
    def batches(self) -> int:
        """How many micro-batches it has written."""
        return len(self.reports)

    def wait_for(self, rows: int, batches: int = 0) -> None:
        """Until it has written so much."""
        deadline = time.monotonic() + DEADLINE_S
        while sum(report["rows"] for report in self.reports) < rows or self.batches < batches:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the sink did not write {rows:,} rows, or {batches:,} batches")
            time.sleep(LOOK_S)


def ended(process: subprocess.Popen[Any]) -> None:
    """End a process that may have ended."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(to: str, options: argparse.Namespace) -> Figures:
    """One run, in a folder of its own."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-bench-"))
        table = Table(to, Path(name))
        table.prepare()
        others = {process.pid for process in psutil.Process().children()}
        cluster = Steelyard(Path(name) / "cluster")
        stack.callback(cluster.close)
        brokers = [one for one in psutil.Process().children() if one.pid not in others]
        with Admin(cluster.nameserver) as admin:
            admin.create_topic(TOPIC, queues=QUEUES // 2)
        watcher = Watcher(table)
        watcher.start()
        sink = Sink(cluster.nameserver, table, options)
        stack.callback(ended, sink.process)
        addresses = ",".join(cluster.kafka.values())
        command = [sys.executable, __file__, "--load", addresses]
        command += [str(options.rate), str(options.bytes)]
        source = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(ended, source)
        started_ns = time.time_ns()
        sink.wait_for(1)
        time.sleep(options.warm_up)
        groups = ([psutil.Process(source.pid)], brokers, [psutil.Process(sink.process.pid)])
        before = [sum(map(tree_cpu_s, group)) for group in groups]
        begun_ns = time.time_ns()
        time.sleep(options.seconds)
        # On a slow machine the window lasts until one micro-batch has only messages that were sent in it.
        sink.wait_for(int((begun_ns - started_ns) / 1e9 * options.rate))
        sink.wait_for(1, sink.batches + 1)
        over_ns = time.time_ns()
        cpu = [sum(map(tree_cpu_s, group)) - was for group, was in zip(groups, before, strict=True)]
        said = json.loads(source.communicate()[0])
        if said["failed"]:
            raise RuntimeError(f"{said['failed']:,} messages were not sent")
        sink.wait_for(said["sent"])
        ended(sink.process)
        watcher.stop()
        rows = list(read_rows(watcher.first_seen()))
    numbers = np.sort(np.concatenate([one.numbers for one in rows]))
    if not np.array_equal(numbers, np.arange(said["sent"])):
        raise RuntimeError(f"{len(numbers):,} rows of {said['sent']:,} messages, or wrong ones")
    return figures(to, rows, sink.reports, said, (begun_ns, over_ns), cpu)


def figures(
    to: str,
    rows: list[Rows],
    reports: list[dict[str, Any]],
    said: dict[str, Any],
    window_ns: tuple[int, int],
    cpu: list[float],
) -> Figures:
    """Of the messages that were sent in the window, and of the micro-batches that have some of them only."""
    begun, over = window_ns
    seconds = (over - begun) / 1e9
    counted = []
    batches: dict[int, list[NDArray[np.float64]]] = {}
    for one in rows:
        ages = (one.seen_ns - one.sent_ns) / 1e9
        inside = (one.sent_ns >= begun) & (one.sent_ns < over)
        counted.append(ages[inside])
        batches.setdefault(one.batch, []).append(ages if inside.all() else np.array([np.nan]))
    whole = {batch: np.concatenate(ages) for batch, ages in batches.items()}
    whole = {batch: ages for batch, ages in whole.items() if not np.isnan(ages).any()}
    if not whole:
        raise RuntimeError("no micro-batch has only messages that were sent in the window")
    own = [report for report in reports if report["batch"] in whole]
    ages = np.concatenate(counted)
    p50s, p99s = zip(*(np.percentile(one, (50, 99)) for one in whole.values()), strict=True)
    return Figures(
        to=to,
        rate=len(ages) / seconds,
        behind_ms=said["behind_ms"],
        sent=said["sent"],
        batches=len(whole),
        rows_a_batch=sum(map(len, whole.values())) / len(whole),
        duration=float(np.median([report["duration_ms"] for report in own])) / 1000,
        own=(
            float(np.median([report["freshness_p50_ms"] for report in own])) / 1000,
            max(report["freshness_p99_ms"] for report in own) / 1000,
        ),
        same=(float(np.median(p50s)), float(max(p99s))),
        true=(*map(float, np.percentile(ages, (50, 99))), float(ages.max())),
        cpu=(cpu[0] / seconds, cpu[1] / seconds, cpu[2] / seconds),
    )


def page(found: list[Figures], where: dict[str, str], options: argparse.Namespace) -> str:
    """The results as Markdown."""
    machine_ = f"{where['processor']}, {where['memory']}, {where['system']}"
    fresh = [
        f"| {one.to} | {one.rate:,.0f} | {one.own[0]:.1f} / {one.own[1]:.1f}"
        f" | {one.same[0]:.1f} / {one.same[1]:.1f} | {one.true[0]:.1f} | {one.true[1]:.1f} | {one.true[2]:.1f} |"
        for one in found
    ]
    costs = [
        f"| {one.to} | {one.batches} | {one.rows_a_batch:,.0f} | {one.duration:.1f}"
        f" | {one.cpu[0]:.2f} | {one.cpu[1]:.2f} | {one.cpu[2]:.2f} | {one.sent:,} | {one.behind_ms:.0f} |"
        for one in found
    ]
    more = f" `{options.sink_options}`" if options.sink_options else ""
    return f"""\
# How fresh the table of `steelyard pipeline sink` is

Written by `./dev bench freshness` ({where["date"]}). Machine: {machine_}; Python {where["python"]}, {where["java"]}.

The aim: 99 of 100 messages are in the table within 10 s of their sending, at 50,000 messages a second on two cores.

| table | messages/s | by the sink: p50 / p99 s | the same by the rows | p50 s | p99 s | slowest s |
|---|--:|--:|--:|--:|--:|--:|
{chr(10).join(fresh)}

| table | micro-batches | rows each | seconds each | load, cores | brokers, cores | Spark, cores | sent in all | load behind ms |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(costs)}

What was done
- Two brokers of Steelyard, a topic with {QUEUES} queues, one producer (librdkafka, through the Kafka listeners) with a fixed
  rate of {options.rate:,} messages of {options.bytes} B a second, and `steelyard pipeline sink --schema {options.schema}`{more} with its defaults
  otherwise, but without merging of small files. All of them, and this program, on two cores.
- The load ran from the start of Spark until the end; {options.warm_up:.0f} s after the first micro-batch came {options.seconds:.0f} s that count.
  "messages/s" is what was really sent in them; "load behind": the longest that the producer's loop was late, in the whole run.
- p50, p99 and slowest: for every message sent in that time, from its sending (the time is in its body) until the file
  that has it was first seen in the log of the table, by a program that looks every {LOOK_S * 1000:.0f} ms.
  Files were read with PyArrow after the run; every message that was sent is in the table once.
- "by the sink" is what the sink said of micro-batches that have messages of that time only: the median of their p50, and
  the worst of their p99. "The same by the rows" makes both figures from the rows of the same micro-batches. The sink
  counts from the storing at the broker, the rows from the sending.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--to", nargs="+", choices=("parquet", "delta", "iceberg"), default=["parquet"]
    )
    parser.add_argument("--schema", choices=("raw", "json"), default="raw")
    parser.add_argument("--rate", type=int, default=50_000, help="messages a second")
    parser.add_argument("--bytes", type=int, default=100, help="of a message, at least 43")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--warm-up", type=float, default=30.0, help="seconds after the first micro-batch"
    )
    parser.add_argument("--sink-options", default="", help="more options of the sink, in one text")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    if options.load:
        load(options.load[0], int(options.load[1]), int(options.load[2]))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    text = page([measure(to, options) for to in options.to], machine(), options)
    (options.out / "FRESHNESS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
