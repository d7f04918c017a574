"""`python -m steelyard.sim`: run seeds or a scenario, and report the results.

    python -m steelyard.sim --seed 17 --trace
    python -m steelyard.sim --seeds 1..200
    python -m steelyard.sim --fresh 2000 --commit 1a2b3c4d5e6f
    python -m steelyard.sim --scenario scenarios/kill_broker.toml
    python -m steelyard.sim --scenario scenarios/growing_groups.toml --compare delayed_answers

The last line of several seeds names the sources that they ran on: figures of runs on different days
add up if it is the same.

Exit code 1 when a rule was broken, 2 when the arguments are wrong, 130 and 143 when SIGINT (Ctrl-C)
or SIGTERM ended several seeds early.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from steelyard.errors import ConfigError
from steelyard.sim.compare import compare, table
from steelyard.sim.drawing import draw
from steelyard.sim.run import RunOutcome, run
from steelyard.sim.scenario import Scenario, dump, load
from steelyard.sim.shrinking import shrink
from steelyard.sim.swarm import CHECK_EVERY, run_seeds

SEEDS_MAX = 1_000_000

PROGRESS_SEEDS = 1_000
"""With --quiet, a line says after so many seeds how far it is."""

TAIL_LINES = 60

PACKAGE = Path(__file__).parents[1]
"""The sources of `steelyard`."""

FRESH_FIRST = 10_000_000
"""Seeds drawn from a commit are higher than those chosen by people."""

FRESH_BLOCKS = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m steelyard.sim", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="draw a scenario from this seed and run it")
    what.add_argument("--seeds", metavar="A..B", help="run all seeds from A to B")
    what.add_argument(
        "--fresh", type=int, metavar="COUNT", help="run this many seeds, drawn from --commit"
    )
    what.add_argument("--scenario", metavar="FILE", help="run a scenario file")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument(
        "--shrink", action="store_true", help="look for a smaller scenario that fails"
    )
    parser.add_argument(
        "--compare",
        metavar="SETTING",
        help="run a scenario with this setting off and on; print what its rebalances cost",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="with --compare: number of seeds (default: 5)"
    )
    parser.add_argument(
        "--show", action="store_true", help="print the scenario as TOML, run nothing"
    )
    parser.add_argument("--commit", default="", help="commit of the sources; failures name it")
    parser.add_argument(
        "--quiet", action="store_true", help="with --seeds: print failures, and progress"
    )
    parser.add_argument(
        "--processes", type=int, help="for --seeds and --fresh; default: one per core"
    )
    options = parser.parse_args(arguments)
    if options.compare and options.seed is None and options.scenario is None:
        parser.error("--compare needs --scenario or --seed")
    try:
        if options.seeds is not None:
            seeds, quiet = _range(options.seeds), options.quiet
            return _swarm(seeds, options.processes, options.commit, quiet=quiet)
        if options.fresh is not None:
            seeds = fresh(options.commit, options.fresh)
            return _swarm(seeds, options.processes, options.commit, quiet=True)
        if options.seed is not None:
            scenario, replay = draw(options.seed), f"--seed {options.seed}"
        else:
            scenario = load(_text_of(options.scenario))
            replay = f"--scenario {options.scenario}"
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if options.show:
        print(dump(scenario), end="")
        return 0
    if options.compare:
        return _compare(scenario, options.compare, options.rounds)
    return _single(scenario, replay, trace=options.trace, smaller=options.shrink)


def _text_of(path: str) -> str:
    """Return what is in a file. Raises ConfigError."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {path}: {reason}") from None


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdecimal() or not last.isdecimal():
        raise ConfigError(f"--seeds {text!r}: give A..B, e.g. 1..200")
    seeds = range(int(first), int(last) + 1)
    if not 0 < len(seeds) <= SEEDS_MAX:
        raise ConfigError(f"--seeds {text!r}: give 1 to {SEEDS_MAX} seeds")
    return seeds


def fresh(commit: str, count: int) -> range:
    """Return a number of seeds, always the same for one commit. Raises ConfigError."""
    if not commit:
        raise ConfigError("--fresh needs --commit: seeds are drawn from it")
    if not 0 < count <= SEEDS_MAX:
        raise ConfigError(f"--fresh {count}: give 1 to {SEEDS_MAX} seeds")
    block = int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8]) % FRESH_BLOCKS
    first = FRESH_FIRST + block * 10_000
    return range(first, first + count)


def _single(scenario: Scenario, replay: str, *, trace: bool, smaller: bool) -> int:
    outcome = run(scenario, readable=True)
    if trace:
        print("\n".join(outcome.lines))
    print(summary(outcome))
    print(" ".join(f"{name}={count}" for name, count in outcome.counts.items() if count))
    if outcome.failure is None:
        return 0
    if not trace:
        print("\n".join(outcome.lines[-TAIL_LINES:]))
    print(failure(outcome, replay))
    if smaller:
        kind = _kind(outcome.failure)
        small = shrink(scenario, lambda candidate: _kind(run(candidate).failure) == kind)
        print("smaller:\n" + dump(small))
    return 1


def _compare(scenario: Scenario, field: str, rounds: int) -> int:
    try:
        if not 0 < rounds <= SEEDS_MAX:
            raise ConfigError(f"--rounds {rounds}: give 1 to {SEEDS_MAX}")
        comparison = compare(scenario, field, rounds, partial(run, check_every=CHECK_EVERY))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(comparison))
    for outcome in comparison.failures:
        value = getattr(outcome.scenario, field)
        print(f"seed {outcome.scenario.seed}, {field} {value}: {outcome.failure}")
    return int(bool(comparison.failures))


def _kind(text: str | None) -> str | None:
    """Return a failure without its numbers and names, which change while a scenario shrinks."""
    return None if text is None else re.sub(r"[\d]+|broker-\w|'[^']*'", "#", text.splitlines()[-1])


def _swarm(seeds: range, processes: int | None, commit: str, *, quiet: bool) -> int:
    began = time.perf_counter()
    done = failed = virtual_ms = 0
    stopped_by: signal.Signals | None = None
    try:
        with _signals_interrupt(), closing(run_seeds(seeds, processes)) as outcomes:
            for outcome in outcomes:
                done += 1
                virtual_ms += outcome.counts["virtual_ms"]
                if outcome.failure is not None or not quiet:
                    print(summary(outcome), flush=True)
                if outcome.failure is not None:
                    failed += 1
                    at = f" (at commit {commit})" if commit else ""
                    print(failure(outcome, f"--seed {outcome.scenario.seed}") + at, flush=True)
                if quiet and done % PROGRESS_SEEDS == 0 and done < len(seeds):
                    speed = done / (time.perf_counter() - began)
                    text = f"{done} of {len(seeds)} seeds, {failed} failed, {speed:.1f} seeds/s"
                    print(text, file=sys.stderr, flush=True)
    except KeyboardInterrupt as interrupt:
        stopped_by = interrupt.args[0]
    took = time.perf_counter() - began
    what = f"{done} seeds from {seeds[0]}"
    if stopped_by is not None:
        finished = f" ({seeds[0]}..{seeds[done - 1]})" if done else ""
        what = f"stopped by {stopped_by.name} after {done} of {len(seeds)} seeds{finished}"
    print(
        f"{what}{f' at commit {commit}' if commit else ''}, {failed} failed,"
        f" {done / took:.1f} seeds/s, {virtual_ms / 3_600_000:.1f} virtual hours in {took:.1f} s,"
        f" sources {sources()}"
    )
    return 128 + stopped_by if stopped_by is not None else int(failed > 0)


def sources() -> str:
    """Return a digest of the modules that nodes and the simulator consist of.

    Counted are all files of the packages below `steelyard` of which a module is loaded: nodes load
    some of theirs when they first need them. Changes elsewhere (pipeline, console) keep the digest.
    """
    loaded = {name.split(".")[1] for name in sys.modules if name.startswith("steelyard.")}
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE)
        if name.parts[0].removesuffix(".py") in loaded:
            digest.update(f"{name.as_posix()}\n{_code(file.read_text())}".encode())
    return digest.hexdigest()[:12]


def _code(source: str) -> str:
    """Return a module without docstrings, lines with only a comment, and empty lines."""
    words = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    return "\n".join(
        line for number, line in lines if number not in words and line.strip()[:1] not in ("", "#")
    )


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGINT or SIGTERM raises a KeyboardInterrupt with its number; further ones do nothing."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number))

    former = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def summary(outcome: RunOutcome) -> str:
    """One line: seed, digest, counts."""
    counts = outcome.counts
    return (
        f"seed {outcome.scenario.seed:<6} {outcome.digest[:16]}"
        f" {'FAILED' if outcome.failure else 'ok':<6}"
        f" {counts['messages']:>4} messages {counts['acknowledged']:>4} acknowledged"
        f" {counts['duplicates']:>3} duplicates {counts['faults']:>2} faults"
        f" {counts['rebalances']:>3} rebalances {counts['virtual_ms'] / 1000:>6.0f} s"
    )


def failure(outcome: RunOutcome, replay: str) -> str:
    return (
        f"{outcome.scenario.name}: {outcome.failure}\n"
        f"replay: python -m steelyard.sim {replay} --trace"
    )


if __name__ == "__main__":
    sys.exit(main())
