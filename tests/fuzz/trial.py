"""What the live modes of `./dev fuzz` have in common: servers, a load on them, and the verdict."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from tests.fuzz.cluster import Cluster, FaultError
from tests.fuzz.load import Load

ROOT = Path(__file__).resolve().parents[2]

Work = Callable[[Cluster, Load], list[str]]
"""What a mode does while the load runs, until `load.verify`; the lines to print. Raises FaultError."""


def run(
    mode: str,
    seconds: float,
    seed: int,
    work: Work,
    *,
    flush: str = "async",
    pause_seconds: float = 0.02,
) -> int:
    """One trial on two brokers; the exit code. What the servers printed is kept in out/MODE-SEED/ where it failed."""
    print(f"{mode}: seed {seed}, {seconds:.0f} s, flush={flush}", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"steelyard-{mode}-") as name:
        folder = Path(name)
        cluster = Cluster(folder, flush=flush)
        try:
            for server in cluster.names:
                cluster.start(server)
            cluster.wait_ready()
            load = Load(cluster, pause_seconds)
            load.start()
            lines = work(cluster, load)
            cluster.check()
            cluster.close()
        except FaultError as error:
            kept = ROOT / "out" / f"{mode}-{seed}"
            kept.mkdir(parents=True, exist_ok=True)
            for output in folder.glob("*.txt"):
                shutil.copy(output, kept)
            print(f"FAILED: {error}\nsaved: {kept}\nagain: ./dev fuzz {mode} --seed {seed}")
            return 1
        finally:
            cluster.abandon()
    print("\n".join(lines))
    for client in load.clients:
        failed = ", ".join(f"{count} x {text!r}" for text, count in client.errors.most_common(5))
        print(f"errors of {type(client).__name__}: {failed or 'none'}")
    return 0


def latencies(name: str, seconds: list[float]) -> str:
    """The median and the tail of calls, in ms. Raises FaultError where none succeeded."""
    ordered = sorted(seconds)
    if not ordered:
        raise FaultError(f"{name}: no call succeeded")

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return (
        f"{name}: {len(ordered)} calls, p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, "
        f"p99.9 {at(0.999):.1f} ms, slowest {at(1):.1f} ms"
    )


def parser(mode: str, text: str, seconds: int) -> argparse.ArgumentParser:
    """The options that every mode has."""
    made = argparse.ArgumentParser(prog=f"./dev fuzz {mode}", description=text)
    made.add_argument("--seconds", type=float, default=seconds, help=f"how long; default {seconds}")
    made.add_argument(
        "--seed",
        type=int,
        default=SystemRandom().randrange(2**32),
        help="default: a new one, which is printed",
    )
    return made
