"""Virtual time and the rules of the seam: timers, flushes, answers."""

from collections.abc import Callable

import pytest

from steelyard.errors import DescriptorsError
from steelyard.nodes.seam import (
    Answer,
    Asked,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    SetTimer,
)
from steelyard.sim import world as worlds
from steelyard.sim.clock import EPOCH, Clock
from steelyard.sim.disk import SimDisk
from steelyard.sim.network import TcpNetwork, Weather
from steelyard.sim.world import Host, Process, Violation, World
from steelyard.store.memory import Killed


class Diary:
    """A node that does what it is asked and writes down what it hears, and when by its own clock."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, Event]] = []

    def start(self, now: int) -> list[Effect]:
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.heard.append((now, event))
        if isinstance(event, Asked):
            assert isinstance(event.call, list)
            return [*event.call, Answer(event.call_id, "done")]
        return []

    def check(self) -> None:
        pass

    def due(self) -> list[tuple[int, object]]:
        return [(now, event.key) for now, event in self.heard if isinstance(event, Due)]


def start(
    clock: Clock = Clock(),  # noqa: B008  # frozen
    take_dirty: Callable[[], Callable[[], None]] | None = None,
) -> tuple[World, Process, Diary]:
    world = World(1)
    network = TcpNetwork(world, Weather())
    host = Host("host", "10.0.0.1", clock, SimDisk(world.rng("disk")))
    process = Process(world, network, host, "node", take_dirty=take_dirty)
    diary = Diary()
    process.start(lambda now: diary)
    return world, process, diary


def ask(process: Process, *effects: Effect) -> list[object]:
    answers: list[object] = []
    process.ask(list(effects), answers.append)
    return answers


@pytest.mark.parametrize("clock", [Clock(), Clock(-700, 500), Clock(9_000, -500)])
def test_a_timer_goes_off_by_the_hosts_own_clock_never_too_early(clock: Clock) -> None:
    world, process, diary = start(clock)
    at = clock.read(EPOCH) + 100_000
    answers = ask(process, SetTimer("tea", at))
    world.run(EPOCH + 200_000)
    assert answers == ["done"]
    ((now, key),) = diary.due()
    assert key == "tea"
    assert at <= now <= at + 1


def test_a_timer_is_replaced_and_dropped() -> None:
    world, process, diary = start()
    ask(process, SetTimer("a", EPOCH + 10), SetTimer("b", EPOCH + 10), SetTimer("a", EPOCH + 30))
    ask(process, DropTimer("b"))
    world.run(EPOCH + 100)
    assert diary.due() == [(EPOCH + 30, "a")]


def test_a_timer_that_is_set_anew_while_it_waits_for_a_stall_goes_off_once() -> None:
    world, process, diary = start()
    ask(process, SetTimer("a", EPOCH + 10))
    world.run(EPOCH + 5)
    process.pause(100)
    ask(process, SetTimer("a", EPOCH + 200))
    world.run(EPOCH + 300)
    assert diary.due() == [(EPOCH + 200, "a")]


def test_timers_come_before_what_else_waits_where_a_process_was_suspended() -> None:
    world, process, diary = start()
    ask(process, SetTimer("a", EPOCH + 50))
    world.run(EPOCH + 5)
    process.pause(100, timers_first=True)
    before = len(diary.heard)
    process.deliver(Flushed(9))
    world.run(EPOCH + 300)
    assert diary.heard[before:] == [(EPOCH + 105, Due("a")), (EPOCH + 105, Flushed(9))]
    assert process.host.pauses == [(EPOCH + 5, EPOCH + 105)]


def test_flushes_are_shared_and_cover_what_was_written_before_they_began() -> None:
    taken: list[int] = []
    synced: list[int] = []

    def take_dirty() -> Callable[[], None]:
        taken.append(len(taken))
        return lambda: synced.append(taken[-1])

    world, process, diary = start(take_dirty=take_dirty)
    ask(process, Flush(1), Flush(2))
    world.run(EPOCH)
    ask(process, Flush(3))
    world.run(EPOCH)
    assert (taken, synced) == ([0], [])
    world.run(EPOCH + 100)
    assert (taken, synced) == ([0, 1], [0, 1])
    tickets = [event.ticket for _, event in diary.heard if isinstance(event, Flushed)]
    assert tickets == [1, 2, 3]


def test_a_flush_without_a_descriptor_is_tried_again_and_acknowledges_nothing_meanwhile() -> None:
    tries: list[int] = []

    def take_dirty() -> Callable[[], None]:
        def sync() -> None:
            tries.append(world.now)
            if len(tries) < 4:
                raise DescriptorsError("cannot sync logs/0: Too many open files")

        return sync

    world, process, diary = start(take_dirty=take_dirty)
    ask(process, Flush(1), Flush(2))
    world.run(world.now + 250)
    assert len(tries) == 3
    assert not [event for _, event in diary.heard if isinstance(event, Flushed)]
    world.run(world.now + 250)
    assert [event for _, event in diary.heard if isinstance(event, Flushed)] == [
        Flushed(1),
        Flushed(2),
    ]
    assert len(tries) == 4


def test_a_process_that_is_killed_in_a_flush_hears_nothing_more() -> None:
    def take_dirty() -> Callable[[], None]:
        def sync() -> None:
            raise Killed("inside a sync")

        return sync

    world, process, diary = start(take_dirty=take_dirty)
    ask(process, Flush(1), SetTimer("a", EPOCH + 500))
    world.run(EPOCH + 1_000)
    assert not process.alive
    assert [type(event) for _, event in diary.heard] == [Asked]


def test_what_runs_away_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "EVENTS_MAX", 100)
    world = World(1)

    def again() -> None:
        world.after(0, again)

    again()
    with pytest.raises(Violation, match="runs away"):
        world.run(EPOCH)
