"""`format("rocketmq")` beside Spark's own Kafka source: CPU a row, of the Spark application and of the broker.

`./dev bench spark` runs it. One Steelyard broker has topics whose messages a RocketMQ client sent and topics that a
Kafka producer filled; one Spark application reads each of them with both sources in turn, into a noop sink. `--tiny`
is a run of seconds for the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from bench.kafka_door.load import Load as KafkaLoad  # noqa: E402
from bench.kafka_door.load import create_topic, produce  # noqa: E402
from bench.load import Load  # noqa: E402
from bench.load import create_topic as create_rocketmq_topic  # noqa: E402
from bench.load import run as send  # noqa: E402
from bench.run import machine  # noqa: E402
from bench.servers import Steelyard  # noqa: E402
from tests.peers.kafka import builds  # noqa: E402

from steelyard.spark.schema import SCHEMA  # noqa: E402

QUEUES = 4
BATCH = 32
SAME_COLUMNS = "keys,body,topic,queueId,queueOffset,bornTimestamp"
"""What Spark's Kafka source has columns for."""


@dataclass(frozen=True)
class Size:
    rounds: int
    warm_up: int
    rows: dict[int, int]
    """Messages of a topic, by their bytes."""


WHOLE = Size(rounds=4, warm_up=2, rows={100: 1_024_000, 1024: 256_000})
TINY = Size(rounds=1, warm_up=0, rows={100: 640})


class Read(NamedTuple):
    """One cell: a topic and a source."""

    born: str
    message_bytes: int
    source: str
    rows: int

    @property
    def topic(self) -> str:
        return f"{self.born}-{self.message_bytes}"


SOURCES = ("rocketmq", "rocketmq, same columns", "kafka")
Figures = dict[str, float]


def fill(server: Steelyard, size: Size) -> None:
    """The topics: of each size one from a RocketMQ client in batches, and one from a Kafka producer."""
    for message_bytes, rows in size.rows.items():
        topic = f"RocketMQ-{message_bytes}"
        create_rocketmq_topic(server.broker, topic, QUEUES)
        requests = rows // BATCH
        send(Load("batch", server.broker, topic, QUEUES, 4, message_bytes, BATCH, 600, requests))
        topic = f"Kafka-{message_bytes}"
        create_topic(server.kafka, topic, QUEUES)
        produce(KafkaLoad("produce", server.kafka, topic, rows - 1, message_bytes))


class Application:
    """The Spark application, which reads as it is told."""

    def __init__(self, jars: list[Path]) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, str(Path(__file__).with_name("spark_reader.py"))),
                ",".join(map(str, jars)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = str(self._answer()["version"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("the Spark application ended")

    def read(self, server: Steelyard, read: Read) -> Figures:
        """One read of a whole topic; CPU in microseconds a row."""
        kind, options = "rocketmq", {"nameservers": server.nameserver, "subscribe": read.topic}
        if read.source == "kafka":
            kind = "kafka"
            options = {"kafka.bootstrap.servers": server.kafka, "subscribe": read.topic}
        elif read.source != "rocketmq":
            options["columns"] = SAME_COLUMNS
        assert self._process.stdin is not None
        cpu = server.cpu_s()
        print(
            json.dumps({"format": kind, "options": options}), file=self._process.stdin, flush=True
        )
        answer = self._answer()
        broker = server.cpu_s() - cpu
        return {
            "client": answer["cpu_s"] * 1e6 / read.rows,
            "broker": broker * 1e6 / read.rows,
            "rows_per_s": read.rows / answer["seconds"],
        }

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def measure(size: Size, sources: Sequence[str]) -> tuple[str, dict[Read, list[Figures]]]:
    """Return Spark's version, and the figures of all rounds; sources take turns."""
    jars: list[Path] = []
    if "kafka" in sources:
        jars = sorted(builds.jars("spark", builds.SPARK).glob("*.jar"))
    reads = [
        Read(born, message_bytes, source, rows)
        for message_bytes, rows in size.rows.items()
        for born in ("RocketMQ", "Kafka")
        for source in sources
    ]
    found: dict[Read, list[Figures]] = {read: [] for read in reads}
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder:
        server = Steelyard(Path(folder), with_kafka=True)
        try:
            fill(server, size)
            application = Application(jars)
            for number in range(-size.warm_up, size.rounds):
                for read in reads:
                    figures = application.read(server, read)
                    print(progress(number, read, figures), flush=True)
                    if number >= 0:
                        found[read].append(figures)
            application.close()
        finally:
            server.stop()
    return application.version, found


def progress(number: int, read: Read, figures: Figures) -> str:
    round_ = f"round {number + 1}" if number >= 0 else "warm-up"
    return (
        f"{round_}  {read.topic:14} {read.source:24} {figures['client']:6.2f} + "
        f"{figures['broker']:5.2f} us a row, {figures['rows_per_s']:>9,.0f} rows/s"
    )


def middle(results: list[Figures], *fields: str) -> float:
    return median(sum(figures[field] for field in fields) for figures in results)


def table(found: dict[Read, list[Figures]]) -> str:
    lines = [
        "| topic filled by, message | source | client | broker | together | rows/s |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for read, results in found.items():
        lines.append(
            f"| {read.born}, {read.message_bytes:,} B | {read.source}"
            f" | {middle(results, 'client'):.1f} | {middle(results, 'broker'):.1f}"
            f" | {middle(results, 'client', 'broker'):.1f}"
            f" | {middle(results, 'rows_per_s'):,.0f} |"
        )
    return "\n".join(lines)


def page(version: str, where: dict[str, str], size: Size, load: float, cells: str) -> str:
    """The results as Markdown. `load`: of the machine, average of the last quarter of an hour."""
    sizes = " and ".join(f"{count:,} rows of {each:,} B" for each, count in size.rows.items())
    machine_ = f"{where['processor']}, {where['memory']}, {where['system']}"
    return f"""\
# `format("rocketmq")` beside Spark's own Kafka source

Written by `./dev bench spark` ({where["date"]}). Machine: {machine_}; Python {where["python"]}, {where["java"]};
Spark {version}, spark-sql-kafka-0-10 {builds.SPARK}.

Microseconds of CPU a row (user and system), of the Spark application with Java and all its Python workers and of the
broker; medians of {size.rounds} rounds, in which the sources take turns. The load average was {load:.0f}: other programs
that share the cores make CPU dearer for all alike, and rows per second say little. Compare within the table.

{cells}

What was done
- One Steelyard broker with {QUEUES} queues a topic: {sizes}, uncompressed. A RocketMQ client filled one half of the
  topics in batches of {BATCH} (properties UNIQ_KEY, WAIT, TAGS), a Kafka producer (librdkafka) the other half.
- One Spark application, `session(optimize=True)` on `local[2]`, reads each topic into a noop sink with each source in
  turn; {size.warm_up} rounds before do not count. "same columns": `columns={SAME_COLUMNS}`, for which the Kafka source
  has columns as well; "rocketmq" has all {len(SCHEMA)}, among them the map of properties and the message id.
- A Kafka source that reads what a RocketMQ client sent gets records that the broker converts; "broker" is mostly this
  work. "rocketmq" gets what a Kafka producer sent as it is stored, and decodes it itself.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tiny", action="store_true", help="seconds, without the Kafka source")
    parser.add_argument("--rounds", type=int, default=WHOLE.rounds)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    size = TINY if options.tiny else replace(WHOLE, rounds=options.rounds)
    version, found = measure(size, SOURCES[:2] if options.tiny else SOURCES)
    text = page(version, machine(), size, os.getloadavg()[2], table(found))
    (options.out / "SPARK.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
