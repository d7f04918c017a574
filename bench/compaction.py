"""What does compaction cost those who write meanwhile? Latencies of a producer with and without it.

Both runs write the same to a compacted topic, at a steady rate; in one the broker compacts it all the time. A probe sends
one record after the other to another topic of that broker and waits for each answer. The runs take turns.

    python -m bench.compaction [rounds]
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from steelyard import Server

TABLE, PROBE = "table", "probe"
SECONDS = 15.0
PER_TICK, TICK_S = 60, 0.02
"""Records to the table, of 200 bytes: 3,000 a second."""
KEYS = 1_000


class Latencies(NamedTuple):
    """Milliseconds, and how much was compacted: offsets of the table and bytes that its folder has."""

    p50: float
    p99: float
    longest: float
    written: int


def measure(interval_ms: int, seconds: float = SECONDS) -> Latencies:
    """One run; `interval_ms` 0: without compaction."""
    settings = {"store.compaction_interval_ms": interval_ms, "store.segment_bytes": 512 * 1024}
    with Server(settings=settings) as server:
        bootstrap = server.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05"}
        topics = [NewTopic(TABLE, 1, 1, config=config), NewTopic(PROBE, 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        bulk = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        probe = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        taken: list[float] = []
        written = 0
        begun = tick = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            if time.perf_counter() >= tick:
                tick += TICK_S
                for _ in range(PER_TICK):
                    bulk.produce(TABLE, b"x" * 180, b"key-%d" % (written * 7919 % KEYS))
                    written += 1
                bulk.poll(0)
            sent = time.perf_counter()
            probe.produce(PROBE, b"probe", b"key")
            assert probe.flush(30) == 0
            taken.append((time.perf_counter() - sent) * 1_000)
            time.sleep(0.002)
        bulk.flush(30)
    rest = taken[len(taken) // 5 :]  # the first ones find a cold broker
    cuts = statistics.quantiles(rest, n=100, method="inclusive")
    return Latencies(cuts[49], cuts[98], max(rest), written)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: dict[int, list[Latencies]] = {0: [], 50: []}
    for _ in range(rounds):
        for interval_ms, all_found in found.items():
            all_found.append(measure(interval_ms))
            print(f"interval {interval_ms} ms: {all_found[-1]}", flush=True)
    without, beside = (statistics.median(each.p99 for each in found[key]) for key in (0, 50))
    print(
        f"p99 without compaction {without:.2f} ms, beside it {beside:.2f} ms: {beside / without:.2f}"
    )


if __name__ == "__main__":
    main()
