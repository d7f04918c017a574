from __future__ import annotations

from steelyard.nodes.refusals import PEERS_MAX, REFUSAL_INTERVAL_MS, Refusals
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine


def test_one_of_a_peers_refusals_is_told_in_an_interval() -> None:
    refusals = Refusals()
    effects: list[Effect] = []
    for now in (0, 1, REFUSAL_INTERVAL_MS - 1):
        refusals.tell(
            f"10.0.0.1:{40000 + now}", 34, "body HeartbeatData: clientID missing", now, effects
        )
    refusals.tell("10.0.0.2:1", 41, "x" * 1000, 2, effects)
    refusals.tell("10.0.0.1:9", 34, "again", REFUSAL_INTERVAL_MS, effects)
    assert effects == [
        LogLine(
            "WARNING",
            "request 34 of 10.0.0.1:40000 was refused: body HeartbeatData: clientID missing",
        ),
        LogLine("WARNING", f"request 41 of 10.0.0.2:1 was refused: {'x' * 500}"),
        LogLine(
            "WARNING",
            "request 34 of 10.0.0.1:9 was refused: again (2 more of this host were refused before)",
        ),
    ]


def test_it_remembers_so_many_peers_and_no_more() -> None:
    refusals = Refusals()
    effects: list[Effect] = []
    for number in range(PEERS_MAX + 1):
        refusals.tell(f"host{number}:1", 34, "r", 0, effects)
    assert len(effects) == PEERS_MAX + 1
    refusals.tell("host0:1", 34, "r", 0, effects)
    assert len(effects) == PEERS_MAX + 2
