from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

import pytest
from docs import states

from steelyard.machine import Machine


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    OFF = "off"


class Move(StrEnum):
    BUILT = "built"
    SWITCHED = "switched"
    CUT = "cut"


LIGHTS: Machine[Light, Move] = Machine(
    "Light",
    {
        None: {Move.BUILT: (Light.RED, Light.GREEN)},
        Light.RED: {Move.SWITCHED: (Light.GREEN,), Move.CUT: (Light.OFF,)},
        Light.GREEN: {Move.SWITCHED: (Light.RED,), Move.CUT: (Light.OFF,)},
        Light.OFF: {},
    },
)


def test_an_event_that_leads_to_one_state_chooses_it() -> None:
    assert LIGHTS.move(Light.RED, Move.SWITCHED) is Light.GREEN
    assert LIGHTS.move(None, Move.BUILT, Light.RED) is Light.RED


@pytest.mark.parametrize(
    ("state", "event", "to"),
    [
        (Light.OFF, Move.SWITCHED, None),
        (Light.OFF, Move.SWITCHED, Light.RED),
        (Light.RED, Move.SWITCHED, Light.OFF),
        (None, Move.BUILT, None),
        (None, Move.BUILT, Light.OFF),
    ],
)
def test_a_move_that_the_table_does_not_have_is_a_bug(
    state: Light | None, event: Move, to: Light | None
) -> None:
    with pytest.raises(AssertionError, match="Light: "):
        LIGHTS.move(state, event, to)


def test_it_says_what_can_be() -> None:
    assert LIGHTS.can(Light.RED, Move.CUT)
    assert not LIGHTS.can(Light.OFF, Move.CUT)


def test_a_table_is_drawn() -> None:
    assert LIGHTS.diagram() == (
        "stateDiagram-v2\n"
        "    [*] --> RED: built\n"
        "    [*] --> GREEN: built\n"
        "    RED --> GREEN: switched\n"
        "    RED --> OFF: cut\n"
        "    GREEN --> RED: switched\n"
        "    GREEN --> OFF: cut\n"
        "    OFF --> [*]\n"
    )


def test_the_document_is_up_to_date() -> None:
    assert states.main(["--check"]) == 0, "run ./dev generate"


def test_a_stale_document_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(states, "PAGE", tmp_path / "STATES.md")
    assert states.main(["--check"]) == 1
    assert states.main([]) == 0
    assert states.main(["--check"]) == 0
    with states.PAGE.open("a") as page:
        page.write("more")
    assert states.main(["--check"]) == 1


def test_every_machine_has_a_test_that_takes_every_edge() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    tested = re.findall(r"assert_every_edge\(\s*(\w+)", tests)
    declared = [
        name
        for path in states.machines()
        for name in re.findall(r"^(\w+): Machine\[", Path(path).read_text(), re.MULTILINE)
    ]
    assert sorted(tested) == sorted(declared)
