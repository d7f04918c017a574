"""Kill storms: servers are killed, stopped and started again in random order under a mixed load of both dialects.

    ./dev fuzz storm --seconds 600 --seed N

A nameserver and two brokers serve producers, transactions and consumer groups of both dialects (`load`). Every few seconds one
of them, or some, or all are killed with SIGKILL, or stopped, and started again in any order. At the end everything that was
acknowledged must be there: messages, transactions, commits, each once where the protocol promises it. The same seed draws the same
faults; what they meet is up to the machine.

Exit code 1 when something was wrong; the servers' output is then kept in out/storm-<seed>/.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fuzz.cluster import NAMESERVER, Cluster  # noqa: E402
from tests.fuzz.load import Load  # noqa: E402
from tests.fuzz.trial import parser, run  # noqa: E402

QUIET_SECONDS = (0.0, 3.0)
"""Between the return of the last server and the next fault."""
DOWN_SECONDS = (0.0, 2.0)
"""Between a fault and the first start, and between two starts."""


class Storm:
    """Draws faults and makes them happen, one after the other. `faults`: how many of each kind."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.faults: Counter[str] = Counter()
        self.kills = 0
        """Processes that were killed."""

    def blow(self) -> None:
        """One fault, and its end: all servers are ready again. Raises FaultError where one does not return."""
        rng, cluster = self._rng, self._cluster
        kinds = (
            "a broker",
            "a broker",
            "both brokers",
            "the nameserver",
            "a broker and the nameserver",
            "everything",
        )
        kind = rng.choice(kinds)
        names = {
            "a broker": [rng.choice(cluster.brokers)],
            "both brokers": cluster.brokers,
            "the nameserver": [NAMESERVER],
            "a broker and the nameserver": [rng.choice(cluster.brokers), NAMESERVER],
            "everything": cluster.names,
        }[kind]
        names = rng.sample(names, len(names))
        clean = rng.random() < 0.2
        for name in names:
            if clean:
                cluster.stop(name)
            else:
                cluster.kill(name)
                self.kills += 1
            time.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 0.5))))
        self.faults[f"{'stop' if clean else 'kill'} of {kind}"] += 1
        for name in rng.sample(names, len(names)):
            time.sleep(rng.uniform(*DOWN_SECONDS))
            cluster.start(name)
            if name != NAMESERVER and rng.random() < 0.1:  # in the middle of its recovery
                time.sleep(rng.uniform(0, 0.6))
                cluster.kill(name)
                self.kills += 1
                self.faults["kill of a broker that starts"] += 1
                cluster.start(name)
        cluster.wait_ready()
        time.sleep(rng.uniform(*QUIET_SECONDS))


def storm(seconds: float, seed: int, flush: str = "async") -> int:
    """One run; the exit code."""
    rng = Random(f"storm {seed}")

    def work(cluster: Cluster, load: Load) -> list[str]:
        blown = Storm(cluster, rng)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            blown.blow()
            cluster.check()
            load.check()
            if rng.random() < 0.3:
                load.churn(rng)
        faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(blown.faults.items()))
        return [f"{blown.kills} kills: {faults}", *load.verify()]

    return run("storm", seconds, seed, work, flush=flush)


def main() -> int:
    options = parser("storm", "kill storms under load", 600)
    options.add_argument("--flush", choices=("async", "sync"), default="async")
    given = options.parse_args()
    return storm(given.seconds, given.seed, given.flush)


if __name__ == "__main__":
    sys.exit(main())
