"""Members that join and go again and again: when they count, how long they are delayed, and what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.groups import flapping
from steelyard.groups.flapping import (
    DELAY_MS_MIN,
    FLAPS_MAX,
    FLAPS_MIN,
    PERIOD_MS,
    SHORT_LIFE_MS,
    TELL_MS,
    Flapper,
    Flapping,
)

G, NAME, START = "g", "app/10.0.0.1", 1_700_000_000_000


def flap(machine: Flapping, now: int, *, life_ms: int = 1_000, member: str = "m") -> int:
    """A member joins and goes; how often its name had flapped when it came."""
    count = machine.joined(G, member, NAME, now)
    machine.left(G, member, now + life_ms, now + life_ms, disturbs=True)
    machine.check()
    return count


def test_counts_short_lives_only() -> None:
    machine = Flapping()
    assert [flap(machine, START + number * 10_000) for number in range(4)] == [0, 1, 2, 3]
    flap(machine, START + 50_000, life_ms=SHORT_LIFE_MS)
    assert machine.count(G, NAME, START + 200_000) == 4
    assert machine.count("other", NAME, START + 200_000) == 0
    assert machine.count(G, "app/10.0.0.2", START + 200_000) == 0


def test_life_ends_with_the_last_sign_of_it() -> None:
    """A member that crashed is removed only when its session has expired."""
    machine = Flapping()
    machine.joined(G, "m", NAME, START)
    machine.left(G, "m", START + 5_000, START + 5_000 + SHORT_LIFE_MS, disturbs=True)
    assert machine.count(G, NAME, START + SHORT_LIFE_MS) == 1


def test_member_that_is_replaced_without_a_rebalance_has_not_flapped() -> None:
    machine = Flapping()
    machine.joined(G, "m", NAME, START)
    machine.left(G, "m", START, START, disturbs=False)
    machine.left(G, "m", START, START, disturbs=True)  # and is gone already
    assert machine.count(G, NAME, START) == 0


@pytest.mark.parametrize(
    ("flaps", "most_ms", "delay_ms"),
    [
        (FLAPS_MIN - 1, 20_000, 0),
        (FLAPS_MIN, 20_000, DELAY_MS_MIN),
        (FLAPS_MIN + 1, 20_000, 2 * DELAY_MS_MIN),
        (FLAPS_MIN + 4, 20_000, 16 * DELAY_MS_MIN),
        (FLAPS_MIN + 5, 20_000, 20_000),
        (FLAPS_MAX, 20_000, 20_000),
        (FLAPS_MAX, 0, 0),
    ],
)
def test_delay_doubles_up_to_its_limit(flaps: int, most_ms: int, delay_ms: int) -> None:
    machine = Flapping()
    for number in range(flaps):
        flap(machine, START + number)
    assert machine.delay_ms(G, NAME, most_ms, START + 2_000) == delay_ms


def test_flaps_are_forgotten_after_a_time() -> None:
    machine = Flapping()
    for number in range(5):
        flap(machine, START + number * 10_000)
    last = START + 41_000
    assert machine.of_group(G, last) == [Flapper(NAME, 5, last)]
    assert machine.count(G, NAME, last - 10_000 + PERIOD_MS) == 1
    assert machine.of_group(G, last - 10_000 + PERIOD_MS) == []
    flap(machine, last + PERIOD_MS)
    assert machine.count(G, NAME, last + PERIOD_MS + 1_000) == 1


def test_people_are_told_once_a_minute() -> None:
    machine = Flapping()
    told = []
    for number in range(20):
        now = START + number * 10_000
        flap(machine, now)
        text = machine.warning(G, NAME, now + 1_000)
        if text is not None:
            told.append((now, text))
    assert [at - START for at, _ in told] == [20_000, 20_000 + TELL_MS, 20_000 + 2 * TELL_MS]
    assert told[0][1].startswith("group g: app/10.0.0.1 has joined and gone 3 times in the last")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flapping, "NAMES_MAX", 3)
    monkeypatch.setattr(flapping, "MEMBERS_MAX", 3)
    machine = Flapping()
    for number in range(10):
        machine.joined(G, f"m{number}", f"n{number}", START + number)
        machine.check()
    for number in range(10):
        machine.left(G, f"m{number}", START + 10, START + 10, disturbs=True)
    assert [machine.count(G, f"n{number}", START + 10) for number in range(10)] == [0] * 7 + [1] * 3
    for number in range(10):
        machine.joined(G, "m", f"o{number}", START + 20)
        machine.left(G, "m", START + 20, START + 20, disturbs=True)
        machine.check()
    assert machine.count(G, "n9", START + 20) == 0
    assert machine.count(G, "o9", START + 20) == 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", "z"]),
        st.booleans(),
        st.integers(0, PERIOD_MS // 4),
    ),
    max_size=60,
)


@given(steps)
def test_count_is_that_of_the_short_lives_of_the_period(
    steps: list[tuple[str, str, bool, int]],
) -> None:
    """Against a plain list of everything that happened."""
    machine, now = Flapping(), START
    lives: dict[tuple[str, str], int] = {}
    flaps: list[tuple[int, str, str]] = []
    for group, name, joins, after in steps:
        now += after
        if joins:
            machine.joined(group, f"{name}-1", name, now)
            lives[group, name] = now
        else:
            machine.left(group, f"{name}-1", now, now, disturbs=True)
            since = lives.pop((group, name), None)
            if since is not None and now - since < SHORT_LIFE_MS:
                flaps.append((now, group, name))
        machine.check()
        for one in ("a", "b"):
            for who in ("x", "y", "z"):
                counted = [at for at, *place in flaps if place == [one, who]]
                expected = sum(at > now - PERIOD_MS for at in counted)
                assert machine.count(one, who, now) == expected
