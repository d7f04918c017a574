"""How long a message takes from a producer through a micro-batch to its sink: `./dev bench latency`.

One producer sends small messages to one queue, at irregular times, each with the time of its sending. A streaming query
with a continuous trigger, in a session of `session()`, reads them; `foreachBatch` collects each micro-batch and notes when it
has the rows. Each window has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from bench.load import create_topic  # noqa: E402
from bench.run import machine  # noqa: E402
from bench.servers import Steelyard  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "Ticks"
Figures = dict[str, Any]
GAP_S = (0.02, 0.2)
"""Between two messages."""


def query(nameserver: str, folder: str, seconds: float, warm_up_s: float) -> None:
    """One window, in this process; prints the latencies in ms."""
    from steelyard import Producer
    from steelyard.spark.session import session

    spark = session()
    latencies: list[tuple[float, float]] = []
    batches: list[float] = []

    def sink(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        now = time.time_ns()
        batches.append(time.perf_counter())
        latencies.extend((time.perf_counter(), (now - int(row.body)) / 1e6) for row in rows)

    options = {"nameservers": nameserver, "subscribe": TOPIC, "columns": "body"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", folder)
    running = writer.start()
    over = threading.Event()

    def send() -> None:
        draws = random.Random(7)
        with Producer("latency", nameserver) as producer:
            while not over.wait(draws.uniform(*GAP_S)):
                producer.send(TOPIC, b"%d" % time.time_ns())

    sender = threading.Thread(target=send)
    sender.start()
    while not latencies and running.isActive:  # the time that Spark needs to start does not count
        time.sleep(0.1)
    begun = time.perf_counter() + warm_up_s
    time.sleep(warm_up_s + seconds)
    over.set()
    sender.join()
    running.stop()
    spark.stop()
    counted = [latency for at, latency in latencies if at >= begun]
    print(json.dumps({"ms": counted, "batches": sum(at >= begun for at in batches)}))


def window(server: Steelyard, folder: Path, options: argparse.Namespace) -> Figures:
    """One window in a process of its own."""
    query_ = ("--query", server.nameserver, str(folder), str(options.seconds), str(options.warm_up))
    done = subprocess.run(
        [sys.executable, __file__, *query_],
        capture_output=True,
        text=True,
        timeout=300 + options.seconds + options.warm_up,
    )
    if done.returncode:
        raise RuntimeError(f"the query failed: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(number: int, figures: Figures, seconds: float) -> str:
    ms = figures["ms"]
    cells = [f"{len(ms)}", f"{median(ms):.0f}", f"{percentile(ms, 0.9):.0f}", f"{min(ms):.0f}"]
    cells += [f"{figures['batches'] / seconds:.1f}", f"{os.getloadavg()[0]:.1f}"]
    return f"| {number} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--query", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--warm-up",
        type=float,
        default=15.0,
        help="seconds after the first message that do not count",
    )
    options = parser.parse_args()
    if options.query:
        nameserver, folder, *times = options.query
        query(nameserver, folder, *map(float, times))
        return
    print(machine())
    print("| window | messages | p50 ms | p90 ms | least ms | batches/s | load average |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as name:
        server = Steelyard(Path(name) / "data")
        try:
            create_topic(server.broker, TOPIC, 1)
            for number in range(1, options.rounds + 1):
                figures = window(server, Path(name) / f"checkpoint-{number}", options)
                print(row(number, figures, options.seconds), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
