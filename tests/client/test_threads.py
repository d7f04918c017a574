"""Worker threads: every item is taken once, slow work spreads out, the end is clean."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from tests.waiting import until

from steelyard.client.threads import Threads


def until_ended(threads: Threads[int]) -> None:
    for thread in threads.threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [1, 2, 20])
def test_every_item_is_taken_once(count: int) -> None:
    taken: list[int] = []
    threads: Threads[int] = Threads(count, taken.append, "test")
    for item in range(20_000):
        threads.put(item)
        if item % 1000 == 0:
            time.sleep(0.001)  # lets threads fall idle now and then
    threads.close()
    until_ended(threads)
    assert Counter(taken) == Counter(range(20_000))


def test_one_item_at_a_time_wakes_a_worker_each_time() -> None:
    done = threading.Semaphore(0)
    threads: Threads[int] = Threads(4, lambda item: done.release(), "test")
    for item in range(2_000):
        threads.put(item)
        assert done.acquire(timeout=60), f"item {item} was not taken"
    threads.close()
    until_ended(threads)


def test_slow_work_is_spread_over_all_threads() -> None:
    together = threading.Barrier(8)

    def meet(item: int) -> None:
        together.wait(60)

    threads: Threads[int] = Threads(8, meet, "test")
    for item in range(8):
        threads.put(item)
    threads.close()
    until_ended(threads)
    assert not together.broken


def test_one_thread_takes_items_in_order() -> None:
    taken: list[int] = []
    threads: Threads[int] = Threads(1, taken.append, "test")
    for item in range(1_000):
        threads.put(item)
    threads.close()
    until_ended(threads)
    assert taken == list(range(1_000))


def test_idle_workers_end() -> None:
    threads: Threads[int] = Threads(5, lambda item: None, "test")
    threads.close()
    until_ended(threads)


def settled(threads: Threads[int], count: int) -> bool:
    """There come to be so many threads, and no others that end."""
    until(lambda: len(threads.threads) == count)
    return all(thread.is_alive() for thread in threads.threads)


def test_more_and_fewer_threads() -> None:
    together = threading.Barrier(6)
    done = threading.Semaphore(0)

    def meet(item: int) -> None:
        if item < 6:
            together.wait(60)
        done.release()

    threads: Threads[int] = Threads(1, meet, "test")
    threads.resize(6)
    for item in range(6):
        threads.put(item)
    for _ in range(6):
        assert done.acquire(timeout=60)
    threads.resize(2)
    assert settled(threads, 2)
    for item in range(6, 100):
        threads.put(item)
        assert done.acquire(timeout=60), f"item {item} was not taken"
    threads.close()
    until_ended(threads)


def test_a_thread_that_is_one_too_many_finishes_what_it_has() -> None:
    begun, end = threading.Semaphore(0), threading.Event()
    taken: list[int] = []

    def work(item: int) -> None:
        begun.release()
        end.wait(60)
        taken.append(item)

    threads: Threads[int] = Threads(3, work, "test")
    for item in range(3):
        threads.put(item)
    for _ in range(3):
        assert begun.acquire(timeout=60)
    threads.resize(1)
    threads.put(3)
    assert len(threads.threads) == 3
    end.set()
    assert settled(threads, 1)
    threads.close()
    until_ended(threads)
    assert sorted(taken) == [0, 1, 2, 3]


def test_sizes_change_while_items_come() -> None:
    taken: list[int] = []
    threads: Threads[int] = Threads(4, taken.append, "test")
    for item in range(20_000):
        threads.put(item)
        if item % 500 == 0:
            threads.resize(1 + item // 500 % 7)
    threads.close()
    until_ended(threads)
    until(lambda: len(taken) >= 20_000)
    assert Counter(taken) == Counter(range(20_000))
