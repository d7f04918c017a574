"""An hour of mixed load with members that come and go: memory and descriptors must stay flat, and latencies are told.

    ./dev fuzz soak --seconds 3600 --seed N

No server is killed. Every few seconds a member of some group joins or leaves. Each server's memory (unique set size) and its open
descriptors are noted ten times a minute. At the end what was acknowledged must be there (`load`), and of each server the
median of the last quarter must not be above that of the second quarter, but for GROWTH. Segments and their index grow the
caches of the kernel, not the process.

Exit code 1 when something was wrong.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fuzz.cluster import Cluster, FaultError  # noqa: E402
from tests.fuzz.load import Load  # noqa: E402
from tests.fuzz.trial import latencies, parser, run  # noqa: E402

SAMPLE_SECONDS = 6.0
CHURN_SECONDS = (3.0, 15.0)
GROWTH_BYTES_MAX = 8 * 1024 * 1024
GROWTH_DESCRIPTORS_MAX = 10


class Meter:
    """Samples of one server: (bytes, descriptors)."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self._process = cluster.process(name)
        self._samples: list[tuple[int, int]] = []

    def sample(self) -> None:
        self._samples.append((self._process.memory_full_info().uss, self._process.num_fds()))

    def quarter(self, number: int) -> tuple[float, float]:
        """The medians of a quarter of the samples, 0 to 3."""
        size = len(self._samples) // 4
        part = self._samples[number * size : (number + 1) * size] or self._samples[-1:]
        return statistics.median(s[0] for s in part), statistics.median(s[1] for s in part)

    def verdict(self) -> str:
        """One line. Raises FaultError where the server grew."""
        (before, files_before), (after, files_after) = self.quarter(1), self.quarter(3)
        text = (
            f"{self.name}: memory {before / 2**20:.1f} -> {after / 2**20:.1f} MiB, "
            f"descriptors {files_before:.0f} -> {files_after:.0f} (medians of the second and the last quarter)"
        )
        if after - before > GROWTH_BYTES_MAX or files_after - files_before > GROWTH_DESCRIPTORS_MAX:
            raise FaultError(f"a server grew: {text}")
        return text


def soak(seconds: float, seed: int) -> int:
    """One run; the exit code."""
    rng = Random(f"soak {seed}")

    def work(cluster: Cluster, load: Load) -> list[str]:
        changes = 0
        meters = [Meter(cluster, server) for server in cluster.names]
        now = time.monotonic()
        until, sample_at, churn_at = now + seconds, now, now + rng.uniform(*CHURN_SECONDS)
        while now < until:
            time.sleep(max(0.0, min(until, sample_at, churn_at) - now))
            now = time.monotonic()
            if now >= sample_at:
                sample_at += SAMPLE_SECONDS
                for meter in meters:
                    meter.sample()
                cluster.check()
                load.check()
            if now >= churn_at:
                churn_at = now + rng.uniform(*CHURN_SECONDS)
                load.churn(rng)
                changes += 1
        return [
            f"{changes} members came or went",
            *load.verify(),
            *[meter.verdict() for meter in meters],
            latencies("RocketMQ sends", load.sends.seconds),
            latencies("Kafka produces (5 ms linger)", load.produces.seconds),
            latencies("Kafka transactions", load.kafka_transactions.seconds),
        ]

    return run("soak", seconds, seed, work)


def main() -> int:
    given = parser("soak", "a long mixed load", 3600).parse_args()
    return soak(given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
