"""Runs of many seeds, in processes that share no state."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

from msgspec.structs import replace

from steelyard.sim.drawing import draw
from steelyard.sim.run import RunOutcome, run

CHECK_EVERY = 16
"""Checking every node after each event takes half of a run.

A broken invariant seldom mends itself, and each node is checked once more before it ends: what the
time finds in other seeds is more.
"""


def run_seed(seed: int) -> RunOutcome:
    """One seed, without the ledger, which is large and of no use to the swarm."""
    return replace(run(draw(seed), check_every=CHECK_EVERY), ledger=())


def run_seeds(seeds: range, processes: int | None = None) -> Generator[RunOutcome, None, None]:
    """Outcomes in the order of the seeds; in several processes, as a run uses one core.

    Closing the generator ends the processes, whatever they are doing. Raises RuntimeError if one
    ends by itself.
    """
    processes = min(processes or os.cpu_count() or 1, len(seeds))
    if processes <= 1:
        yield from map(run_seed, seeds)
        return
    workers: dict[Connection, BaseProcess] = {}
    running: dict[Connection, int] = {}
    done: dict[int, RunOutcome] = {}
    rest = iter(seeds)

    def give(link: Connection) -> None:
        if (seed := next(rest, None)) is not None:
            running[link] = seed
            link.send(seed)

    try:
        for _ in range(processes):
            link, process = _start_worker()
            workers[link] = process
            give(link)
        for seed in seeds:
            while seed not in done:
                for ready in wait(workers):
                    link = cast("Connection", ready)
                    done[running[link]] = link.recv()
                    give(link)
            yield done.pop(seed)
    except (EOFError, ConnectionError):
        raise RuntimeError(f"the process of seed {running[link]} ended by itself") from None
    finally:
        for link, process in workers.items():
            process.kill()
            process.join()
            link.close()


def _start_worker() -> tuple[Connection, BaseProcess]:
    """Start a process that does not get Ctrl-C, which is for the swarm, nor SIGTERM while it loads.

    It inherits the mask of signals; locks and queues that a killed process may hold are not shared.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    resource_tracker.ensure_running()  # its start would unblock the signals
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    theirs.close()
    return ours, process


def _work(link: Connection) -> None:
    """Run the seeds that come over the link, until it is closed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    _loaded()
    with suppress(EOFError, ConnectionError):  # the swarm was killed
        while True:
            link.send(run_seed(link.recv()))


def _loaded() -> None:
    """Keep the garbage collector from the modules, which stay, and from most of a run's messages.

    A run has some 60 MiB, of which little is garbage in cycles: collecting at the interpreter's
    own threshold of 700 objects costs an eighth of a run.
    """
    gc.freeze()
    gc.set_threshold(20_000)
