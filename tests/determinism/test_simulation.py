"""The same seed does the same, in any process, whatever the hash seed."""

import os
import subprocess
import sys

import pytest

from steelyard.sim.__main__ import main, summary
from steelyard.sim.drawing import draw
from steelyard.sim.run import run

SEEDS = "10..12"


def simulate(hash_seed: str, *options: str) -> str:
    """What `python -m steelyard.sim --seeds` prints, without the line with the speed."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "steelyard.sim", "--seeds", SEEDS, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout[: done.stdout.rindex("\n3 seeds")]


def test_digests_do_not_depend_on_the_process_or_its_hash_seed() -> None:
    first = simulate("1", "--processes", "1")
    assert first == simulate("2", "--processes", "2")
    assert first == "\n".join(summary(run(draw(seed))) for seed in range(10, 13))


WITH_KAFKA_PRODUCERS = 42000019


@pytest.mark.parametrize("seed", [5, 1, WITH_KAFKA_PRODUCERS])  # those after the first with Kafka
def test_looking_closer_changes_nothing(seed: int) -> None:
    scenario = draw(seed)
    assert scenario.has_kafka == (seed != 5)
    assert (scenario.kafka_producers > 0) == (seed == WITH_KAFKA_PRODUCERS)
    plain, traced = run(scenario), run(scenario, readable=True, check_every=7)
    assert plain.digest == traced.digest
    assert plain.counts == traced.counts
    assert traced.lines


def test_a_run_is_the_same_whatever_its_process_ran_before() -> None:
    """What the first run had compiled once changed the effort of its fetches in the second."""
    scenario = draw(30001181)
    first, second = run(scenario), run(scenario)
    assert (first.failure, first.digest) == (None, second.digest)


def test_different_seeds_do_different_things() -> None:
    assert len({run(draw(seed)).digest for seed in (11, 12, 17, 19)}) == 4


def test_the_command_says_what_came_of_it(capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert main(["--seed", "17"]) == 0
    assert run(draw(17)).digest[:16] in capsys.readouterr().out
    assert main(["--seed", "17", "--show"]) == 0
    file = tmp_path / "seed.toml"
    file.write_text(capsys.readouterr().out)
    assert main(["--scenario", str(file), "--trace"]) == 0
    assert run(draw(17)).digest[:16] in capsys.readouterr().out
    file.write_text("members = 0\nmessages = 5\nsettle_ms = 1000\n")
    assert main(["--scenario", str(file)]) == 1
    failed = capsys.readouterr().out
    assert "FAILED" in failed
    assert f"replay: python -m steelyard.sim --scenario {file} --trace" in failed
    assert main(["--seeds", "9..1"]) == 2
    assert main(["--scenario", str(tmp_path / "none.toml")]) == 2
