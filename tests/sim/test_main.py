"""The command line of the simulator: which seeds run, and what is said of those that fail."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from steelyard.errors import ConfigError
from steelyard.sim import __main__ as command
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import Scenario


def swarm(
    monkeypatch: pytest.MonkeyPatch,
    *,
    failing: int,
    last: int | None = None,
    then: signal.Signals = signal.SIGINT,
) -> None:
    """Seeds that take no time. A signal comes after the `last`; 0: before the first."""

    def run_seeds(seeds: range, processes: int | None) -> Generator[RunOutcome, None, None]:
        keys = ("messages", "acknowledged", "duplicates", "faults", "rebalances", "virtual_ms")
        if last == 0:
            os.kill(os.getpid(), then)
        for seed in seeds:
            yield RunOutcome(
                scenario=Scenario(name=f"seed {seed}", seed=seed),
                digest="0" * 64,
                failure="it broke" if seed == failing else None,
                counts=dict.fromkeys(keys, 0),
            )
            if seed == last:
                os.kill(os.getpid(), then)

    monkeypatch.setattr(command, "run_seeds", run_seeds)


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
    swarm(monkeypatch, failing=bad)
    assert command.main(["--fresh", "5", "--commit", "1a2b"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    assert told[1] == f"seed {bad}: it broke"
    assert told[2] == f"replay: python -m steelyard.sim --seed {bad} --trace (at commit 1a2b)"
    assert told[3].startswith(f"5 seeds from {bad - 3} at commit 1a2b, 1 failed")
    assert command.main(["--fresh", "3", "--commit", "1a2b"]) == 0


def test_a_quiet_swarm_says_every_1000_seeds_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    swarm(monkeypatch, failing=1_500)
    assert command.main(["--seeds", "1..3000", "--quiet"]) == 1
    told = capsys.readouterr()
    assert [re.sub(r"[\d.]+ seeds/s", "N seeds/s", line) for line in told.err.splitlines()] == [
        "1000 of 3000 seeds, 0 failed, N seeds/s",
        "2000 of 3000 seeds, 1 failed, N seeds/s",
    ]
    assert told.out.splitlines()[-1].startswith("3000 seeds from 1, 1 failed, ")
    assert command.main(["--seeds", "1..1499"]) == 0
    assert not capsys.readouterr().err


def test_a_swarm_names_the_sources_that_it_ran_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    swarm(monkeypatch, failing=0)
    assert command.main(["--seeds", "1..3", "--quiet"]) == 0
    before = command.sources()
    assert capsys.readouterr().out.endswith(f", sources {before}\n")
    copy = tmp_path / "steelyard"
    shutil.copytree(command.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(command, "PACKAGE", copy)
    assert command.sources() == before
    lazy = copy / "groups" / "kafka" / "streams" / "group.py"
    lazy.write_text('"""Other words."""\n# A comment\n' + lazy.read_text() + '\n"""About it."""\n')
    assert command.sources() == before
    lazy.write_text(lazy.read_text() + "LAZY = 1  # with a comment\n")
    assert command.sources() != before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_swarm_with_what_it_has_done(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
) -> None:
    former = signal.getsignal(number)
    for last, done in ((0, "0 of 10 seeds, 0 failed, "), (9, "7 of 10 seeds (3..9), 1 failed, ")):
        swarm(monkeypatch, failing=5, last=last, then=number)
        assert command.main(["--seeds", "3..12", "--quiet"]) == code
        line = capsys.readouterr().out.splitlines()[-1]
        assert line.startswith(f"stopped by {number.name} after {done}")
    assert signal.getsignal(number) is former


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_signal_ends_a_swarm_in_one_line_while_processes_are_started(
    number: signal.Signals, code: int, send: Callable[[int, int], None]
) -> None:
    """A terminal's Ctrl-C goes to all of them."""
    options = ["--seeds", "1..100000", "--quiet", "--processes", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "steelyard.sim", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    workers: list[psutil.Process] = []

    def has_workers() -> bool:
        workers[:] = psutil.Process(process.pid).children()
        return len(workers) == 3  # the third is Python's, which looks after what they share

    until(has_workers, "the processes are started")
    send(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    assert re.fullmatch(rf"stopped by {number.name} after \d+ of 100000 seeds.*\n", out)
    until(lambda: not any(worker.is_running() for worker in workers), "no process is left")
