"""Turns: whose it is, how many may wait, and what becomes of those who are gone."""

from __future__ import annotations

import pytest

from steelyard.nodes.broker import turns as module
from steelyard.nodes.broker.turns import INTERVAL_MS, TURNS_TIMER, Turn, Turns
from steelyard.nodes.seam import Effect, SetTimer

NOW = 1_000


def job(done: list[str], name: str, slices: int = 1) -> Turn:
    left = slices

    def turn(now: int, effects: list[Effect]) -> bool:
        nonlocal left
        done.append(name)
        left -= 1
        return left == 0

    return turn


def run(turns: Turns, count: int) -> None:
    for _ in range(count):
        turns.due(NOW, [])
        turns.check()


def test_a_job_keeps_its_turn_and_links_take_turns() -> None:
    turns, done = Turns(), list[str]()
    for link, name, slices in ((1, "a", 2), (1, "b", 1), (2, "c", 3), (3, "d", 1)):
        assert turns.add(link, job(done, name, slices), NOW, [])
    run(turns, 20)
    assert "".join(done) == "aacccdb"
    assert len(turns) == 0


def test_there_is_a_timer_while_there_are_jobs() -> None:
    turns, done, effects = Turns(), list[str](), list[Effect]()
    turns.add(1, job(done, "a"), NOW, effects)
    turns.add(2, job(done, "b"), NOW, effects)
    assert effects == [SetTimer(TURNS_TIMER, NOW + INTERVAL_MS)]
    effects.clear()
    turns.due(NOW + 5, effects)
    assert effects == [SetTimer(TURNS_TIMER, NOW + 5 + INTERVAL_MS)]
    effects.clear()
    turns.due(NOW + 6, effects)
    turns.due(NOW + 7, effects)
    assert effects == []


def test_the_jobs_of_a_link_go_with_it() -> None:
    turns, done = Turns(), list[str]()
    for link in (1, 2, 1):
        turns.add(link, job(done, str(link), 2), NOW, [])
    run(turns, 1)
    turns.closed(1)
    turns.closed(7)
    run(turns, 9)
    assert "".join(done) == "122"


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINK_MAX", 2)
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    turns, done = Turns(), list[str]()
    taken = [turns.add(link, job(done, str(link)), NOW, []) for link in (1, 1, 1, 2, 3)]
    assert taken == [True, True, False, True, False]
    turns.check()
    run(turns, 1)
    assert turns.add(3, job(done, "3"), NOW, [])


def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINK_BYTES_MAX", 10)
    monkeypatch.setattr(module, "BYTES_MAX", 15)
    turns, done = Turns(), list[str]()
    sizes = ((1, 6), (1, 5), (1, 4), (2, 6), (2, 5), (3, 0))
    taken = [turns.add(link, job(done, str(link)), NOW, [], size) for link, size in sizes]
    assert taken == [True, False, True, False, True, True]
    turns.check()
    run(turns, 1)
    assert turns.hold(3, 6)
    assert not turns.hold(3, 1)
    turns.closed(1)
    assert turns.hold(3, 1)
    turns.let_go(3, 7)
    run(turns, 2)
    assert turns.hold(4, 10)
    turns.closed(4)
    turns.check()
