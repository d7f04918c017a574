"""Worker threads: every item is taken once, slow work spreads out, the end is clean."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from steelyard.live.workers import Workers


def until_ended(workers: Workers[int]) -> None:
    for thread in workers.threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [1, 2, 20])
def test_every_item_is_taken_once(count: int) -> None:
    taken: list[int] = []
    workers: Workers[int] = Workers(count, taken.append, "test")
    for item in range(20_000):
        workers.put(item)
        if item % 1000 == 0:
            time.sleep(0.001)  # lets workers fall idle now and then
    workers.close()
    until_ended(workers)
    assert Counter(taken) == Counter(range(20_000))


def test_one_item_at_a_time_wakes_a_worker_each_time() -> None:
    done = threading.Semaphore(0)
    workers: Workers[int] = Workers(4, lambda item: done.release(), "test")
    for item in range(2_000):
        workers.put(item)
        assert done.acquire(timeout=10), f"item {item} was not taken"
    workers.close()
    until_ended(workers)


def test_slow_work_is_spread_over_all_threads() -> None:
    together = threading.Barrier(8)

    def meet(item: int) -> None:
        together.wait(10)

    workers: Workers[int] = Workers(8, meet, "test")
    for item in range(8):
        workers.put(item)
    workers.close()
    until_ended(workers)
    assert not together.broken


def test_one_thread_takes_items_in_order() -> None:
    taken: list[int] = []
    workers: Workers[int] = Workers(1, taken.append, "test")
    for item in range(1_000):
        workers.put(item)
    workers.close()
    until_ended(workers)
    assert taken == list(range(1_000))


def test_idle_workers_end() -> None:
    workers: Workers[int] = Workers(5, lambda item: None, "test")
    workers.close()
    until_ended(workers)
