"""Whether more brokers handle more messages: 1, 2 and 4 of one `steelyard up`, in turn.

A broker is one process, which uses one core; brokers share nothing but the nameserver. So N cores handle N times as many
messages if a message costs no more processor time with N brokers than with one. Rates are measured where the machine
has a core for each broker and one for its load: they are pinned to these.

    python -m bench.scaling [rounds]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import load, run, servers

COUNTS = (1, 2, 4)
SECONDS = 3.0
CONNECTIONS = 32
"""Of all brokers together, so that as many requests are under way at a time."""
STORED = 32_000
LOADS = {
    "send, 128 B": load.Load("send", "", "Send", 4, CONNECTIONS, 128, 1, SECONDS),
    "batches of 32": load.Load("batch", "", "Send", 4, CONNECTIONS, 128, 32, SECONDS),
    "pull of 32": load.Load("pull", "", "Stored", 4, CONNECTIONS, 128, 32, SECONDS),
}


class Cost(NamedTuple):
    """Messages per second, if that means something, and processor time of all brokers and the nameserver, in µs a message."""

    messages_per_s: float | None
    brokers_us: float
    nameserver_us: float


class Brokers(servers.Server):
    """`steelyard up` with so many brokers."""

    def __init__(self, folder: Path, count: int) -> None:
        self._up = subprocess.Popen(
            [
                *(sys.executable, "-m", "steelyard", "up", "--json", "--brokers", str(count)),
                *("--nameserver-port", "0", "--broker-port", "0", "--data", str(folder)),
            ],
            stdout=subprocess.PIPE,
        )
        assert self._up.stdout is not None
        ready = json.loads(self._up.stdout.readline())
        self.addresses: Sequence[str] = tuple(ready["brokers"].values())
        children = psutil.Process(self._up.pid).children()
        self._brokers = [listening(children, address) for address in self.addresses]
        self._nameserver = listening(children, ready["nameserver"])
        self.processes = [*self._brokers, self._nameserver]
        self.is_pinned = 2 * count <= (os.cpu_count() or 1)
        if self.is_pinned:
            for core, process in enumerate(self._brokers):
                process.cpu_affinity([core])
        for address in self.addresses:
            for topic in ("Send", "Stored"):
                load.create_topic(address, topic, 4)
        filling = replace(
            LOADS["batches of 32"], topic="Stored", requests_max=STORED // 32 // count
        )
        self._throw(replace(filling, seconds=60))

    def measure(self, what: load.Load) -> Cost:
        before = self._spent_s()
        results = self._throw(what)
        spent = [after - since for after, since in zip(self._spent_s(), before, strict=True)]
        messages = sum(result["messages"] for result in results)
        rate = sum(result["messages_per_s"] for result in results) if self.is_pinned else None
        return Cost(rate, *(1e6 * each / messages for each in spent))

    def _spent_s(self) -> tuple[float, float]:
        brokers = sum(servers.cpu_s(one.pid) for one in self._brokers)
        return brokers, servers.cpu_s(self._nameserver.pid)

    def _throw(self, what: load.Load) -> list[run.Result]:
        """One client for each broker, all at the same time."""
        count = len(self.addresses)

        def throw(number: int, address: str) -> run.Result:
            own = replace(what, address=address, connections=what.connections // count)
            return run.throw(own, core=count + number if self.is_pinned else None)

        with ThreadPoolExecutor(count) as clients:
            return list(clients.map(throw, range(count), self.addresses))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Go on for the time of the block, and stand still afterwards."""
        self.thaw()
        try:
            yield
        finally:
            self.freeze()

    def stop(self) -> None:
        self.thaw()
        self._up.terminate()
        self._up.wait(30)


def listening(processes: Sequence[psutil.Process], address: str) -> psutil.Process:
    port = int(address.rpartition(":")[2])
    return next(one for one in processes if servers.listens(one, port))


def main(rounds: int) -> None:
    found: dict[tuple[str, int], list[Cost]] = {(name, n): [] for name in LOADS for n in COUNTS}
    with tempfile.TemporaryDirectory(prefix="steelyard-bench-") as folder:
        clusters: dict[int, Brokers] = {}
        try:
            for count in COUNTS:
                clusters[count] = Brokers(Path(folder) / str(count), count)
                with clusters[count].alone():
                    time.sleep(0.5)
            for number in range(rounds + 1):  # the first warms up
                for name, what in LOADS.items():
                    for count in COUNTS if number % 2 else COUNTS[::-1]:
                        with clusters[count].alone():
                            cost = clusters[count].measure(what)
                        if number:
                            found[name, count].append(cost)
        finally:
            for cluster in clusters.values():
                cluster.stop()
    print(table(found))


def table(found: dict[tuple[str, int], list[Cost]]) -> str:
    """Medians by load and number of brokers; the ratio is that of the processor time to one broker's in the same round."""
    lines = [
        "| load | brokers | messages/s | brokers, µs a message | ratio to one | nameserver, µs |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for (name, count), costs in found.items():
        rates = [cost.messages_per_s for cost in costs if cost.messages_per_s is not None]
        rate = f"{statistics.median(rates):,.0f}" if rates else "–"
        ratios = [
            cost.brokers_us / one.brokers_us
            for cost, one in zip(costs, found[name, 1], strict=True)
        ]
        medians = [statistics.median(each) for each in zip(*(c[1:] for c in costs), strict=True)]
        lines.append(
            f"| {name} | {count} | {rate} | {medians[0]:.1f} | {statistics.median(ratios):.2f}"
            f" | {medians[1]:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
