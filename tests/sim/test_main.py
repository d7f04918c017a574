"""The command line of the simulator: which seeds run, and what is said of those that fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from steelyard.errors import ConfigError
from steelyard.sim import __main__ as command
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import Scenario


def test_a_commit_draws_the_same_seeds_every_time_and_others_other_seeds() -> None:
    assert command.fresh("1a2b", 2_000) == command.fresh("1a2b", 2_000)
    firsts = {command.fresh(str(number), 2_000)[0] for number in range(200)}
    assert len(firsts) == 200
    assert min(firsts) >= command.FRESH_FIRST


@pytest.mark.parametrize(("commit", "count"), [("", 10), ("1a2b", 0), ("1a2b", 1_000_001)])
def test_what_draws_no_seeds_is_refused(commit: str, count: int) -> None:
    with pytest.raises(ConfigError):
        command.fresh(commit, count)
    assert command.main(["--fresh", str(count), "--commit", commit]) == 2


def test_of_fresh_seeds_only_failures_are_told_with_commit_and_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = command.fresh("1a2b", 5)[3]

    def run_seeds(seeds: Iterable[int], processes: int | None) -> Iterator[RunOutcome]:
        keys = ("messages", "acknowledged", "duplicates", "faults", "rebalances", "virtual_ms")
        for seed in seeds:
            yield RunOutcome(
                scenario=Scenario(name=f"seed {seed}", seed=seed),
                digest="0" * 64,
                failure="it broke" if seed == bad else None,
                counts=dict.fromkeys(keys, 0),
            )

    monkeypatch.setattr(command, "run_seeds", run_seeds)
    assert command.main(["--fresh", "5", "--commit", "1a2b"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    assert told[1] == f"seed {bad}: it broke"
    assert told[2] == f"replay: python -m steelyard.sim --seed {bad} --trace (at commit 1a2b)"
    assert told[3].startswith(f"5 seeds from {bad - 3} at commit 1a2b, 1 failed")
    assert command.main(["--fresh", "3", "--commit", "1a2b"]) == 0
