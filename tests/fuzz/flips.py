"""Flips one bit in a data folder with both dialects' data, then reads everything back, and checks and repairs the folder.

    python tests/fuzz/flips.py --flips 2000 --seed N
    python tests/fuzz/flips.py --seconds 600

The folder is taken after a clean stop, after a kill, or while a broker runs on it. Each flip must be found, or harmless:

    harmless    everything is read as before
    refused     the broker does not start, and names the file
    reported    messages are missing, and each is an error at its offset or is named by the broker's log
    retimed     as harmless, but for when Kafka's records were stored, which only their damaged index row told:
                RocketMQ's consumers see the producer's time instead, as after a kill
    unguarded   a RocketMQ record's properties or numbers were served wrong, for its own checksum covers the body
                only, and the kill came before its index row was written
    wrong       something was served as valid that is not what was written             a failure
    silent      something is missing that nothing named                                a failure
    crashed     an exception that is none of Steelyard's                               a failure
    repair      after `check --repair` the broker does not start, serves what is       a failure
                wrong, or more is missing than was said to be lost

Exit code 1 when there was a failure: each is printed with the seed and number that do it again. The same seed flips the
same bits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.damage.both import BothRig  # noqa: E402
from tests.damage.filling import fill  # noqa: E402
from tests.damage.reading import Plain, faults_of, read_everything  # noqa: E402
from tests.nodes.broker.driver import START  # noqa: E402

from steelyard.errors import StorageError  # noqa: E402
from steelyard.store import check, salvage  # noqa: E402
from steelyard.store.files import Files  # noqa: E402
from steelyard.store.index import ROW, ROW_BYTES  # noqa: E402
from steelyard.store.memory import MemoryDisk  # noqa: E402
from steelyard.wire.kafka.records import CONTROL, TRANSACTIONAL  # noqa: E402

FLIPS = 2_000
FAILURES = ("wrong", "silent", "crashed", "repair")
OUTCOMES = ("harmless", "refused", "reported", "retimed", "unguarded", *FAILURES)
STATES = ("clean", "killed", "running")
KINDS = {"log": ".log", "index": ".rows", "table": ".table", "other": ""}
"""Kinds of files by suffix; `other` is whose the folder is, and how it was left."""

LOGS = ("remoting", "kafka", "committed", "system")
"""What `read_everything` gives of logs."""

STATE = ("topics", "offsets", "groups", "transactions")
"""What it gives of tables."""

BODY, VALUE, ATTRIBUTES = 11, 2, 4
"""Where in a message that RocketMQ's consumers get, and in what Kafka's get."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

BORN_HOST, STORED, STORE_HOST = 6, 7, 8
"""Where in a message that RocketMQ's consumers get; the hosts are the broker's where the record is Kafka's."""

REPORTS_MAX = 20


class Flip(NamedTuple):
    """One bit of one file, in a folder that was left in one state."""

    state: str
    kind: str
    path: str
    place: int
    bit: int

    def apply(self, disk: MemoryDisk) -> None:
        disk.files[self.path].data[self.place] ^= 1 << self.bit

    def __str__(self) -> str:
        return f"{self.state} folder, {self.path}, byte {self.place}, bit {self.bit}"


class Folders:
    """A folder of each state, what is read from it, and what of it can be flipped."""

    def __init__(self) -> None:
        rig = BothRig()
        fill(rig)
        killed = rig.disk.copy()
        rig.stop()
        self.disks = {"clean": rig.disk, "killed": killed, "running": rig.disk}
        self.expected = {
            state: read_everything(BothRig(disk.copy())) for state, disk in self.disks.items()
        }
        self.findings = {state: len(found(disk)) for state, disk in self.disks.items()}

    def draw(self, rng: Random, kinds: Sequence[str]) -> Flip:
        """Any bit: each kind of file as often as any other, each byte of a kind as often as any other."""
        state, kind = rng.choice(STATES), rng.choice(kinds)
        files = {
            path: file.size()
            for path, file in sorted(self.disks[state].files.items())
            if kind_of(path) == kind and file.size()
        }
        (path,) = rng.choices(list(files), list(files.values()))
        return Flip(state, kind, path, rng.randrange(files[path]), rng.randrange(8))


def kind_of(path: str) -> str:
    for kind, suffix in KINDS.items():
        if suffix and path.endswith(suffix):
            return kind
    return "other"


def found(disk: MemoryDisk) -> list[check.CheckFinding]:
    """What `check` has to say."""
    results = check.check(Files(disk.copy()))
    return [result for result in results if isinstance(result, check.CheckFinding)]


def judge(folders: Folders, flip: Flip) -> tuple[str, str]:
    """The outcome of one flip, and what there is to say about it."""
    try:
        outcome, text = read_flipped(folders, flip)
        if outcome == "wrong" and is_unguarded(folders.disks[flip.state], flip):
            return "unguarded", text
        if outcome in FAILURES:
            return outcome, text
        worse = repair_flipped(folders, flip)
        return ("repair", worse) if worse else (outcome, text)
    except Exception as error:  # a bug, whatever it is: told with the flip that finds it
        return "crashed", f"{type(error).__name__}: {error}"


def read_flipped(folders: Folders, flip: Flip) -> tuple[str, str]:
    """Open the folder and read everything; or flip the bit while a broker runs, read, and open the folder again."""
    disk = folders.disks[flip.state].copy()
    expected = folders.expected[flip.state]
    if flip.state == "running":
        rig = BothRig(disk)
        if flip.path not in disk.files:  # it tells how the last stop was, and is gone
            return "harmless", ""
        flip.apply(disk)
        outcome, text = compare(rig, expected, [])
        if outcome in FAILURES or flip.kind != "table":
            return outcome, text
        disk = disk.copy()  # tables are read at the next start
    else:
        flip.apply(disk)
    named = [finding.path for finding in found(disk)]
    try:
        rig = BothRig(disk)
    except StorageError as error:
        if flip.path.rpartition("/")[2] not in str(error) and "format" not in str(error):
            return "silent", f"the error does not name the file: {error}"
        return "refused", str(error)
    return compare(rig, expected, named)


def is_unguarded(disk: MemoryDisk, flip: Flip) -> bool:
    """Has the entry that the bit is in no row in the index file?"""
    if flip.kind != "log":
        return False
    index = disk.files.get(flip.path.removesuffix(KINDS["log"]) + KINDS["index"])
    if index is None or index.size() < ROW_BYTES:
        return True
    base = int(flip.path.rpartition("/")[2].partition("-")[0])
    position, size, *_ = ROW.unpack_from(
        index.data, index.size() // ROW_BYTES * ROW_BYTES - ROW_BYTES
    )
    return flip.place >= int(position) + int(size) - base


def compare(rig: BothRig, expected: Plain, named: list[str]) -> tuple[str, str]:
    """What consumers read beside what they should read. `named`: what `check` found before the start."""
    reading = read_everything(rig)
    reports = [*faults_of(reading), *told(rig)]
    if any(OP_TOPIC in report for report in reports):
        # Whether a transaction of RocketMQ's ended is told by an op; without it the producer is asked again.
        reading["transactions"] = expected["transactions"]
    if reports:
        drop_early(expected, reading)
    wrong, retimed = differences(expected, reading)
    if wrong:
        return "wrong", wrong[0]
    missing = lacking(expected, reading)
    if not missing and reading == expected:
        return "harmless", ""
    if retimed and not missing:
        return ("retimed" if reports else "silent"), retimed[0]
    silent = [text for text, topic in missing if not any(topic in report for report in reports)]
    if silent or not reports:
        return "silent", f"{(silent or ['a search by time'])[0]}; check named {named}"
    return "reported", reports[0]


def told(rig: BothRig) -> list[str]:
    """What the broker's log would say: of the start, and since."""
    texts = [tell.text for tell in rig.told if tell.level in ("WARNING", "ERROR")]
    texts += [f"{each.path}: {each.topic}: {each.problem}" for each in rig.store.findings.take()]
    return [*rig.recovery.warnings(), *texts]


def differences(expected: Plain, reading: Plain) -> tuple[list[str], list[str]]:
    """What was served as valid and is not what was written; and what differs only in when it was stored."""
    wrong: list[str] = []
    retimed: list[str] = []
    for part, log, at, record in messages_in(reading):
        should = at_of(expected, part, log).get(at)
        if should != record:
            text = f"{part} {log} offset {at}: {record} in place of {should}"
            (retimed if part == "remoting" and are_retimed(should, record) else wrong).append(text)
    parts = [part for part in STATE if expected[part] != reading[part]]
    wrong += [f"{part}: {reading[part]} in place of {expected[part]}" for part in parts]
    return wrong, retimed


def drop_early(expected: Plain, reading: Plain) -> None:
    """Pass over messages that came too early: behind a transaction that is open, and whose first batch is damaged.

    They are what was written, as those show who read uncommitted.
    """
    for part, log, at, record in list(messages_in(reading)):
        written = at_of(expected, "kafka", log).get(at)
        if part == "system" or at in at_of(expected, part, log) or not isinstance(written, list):
            continue
        assert isinstance(record, list)
        value = record[BODY] if part == "remoting" else record[VALUE]
        if value == written[VALUE] and not written[ATTRIBUTES] & TRANSACTIONAL:
            del at_of(reading, part, log)[at]


def are_retimed(should: object, record: object) -> bool:
    """Is it a record of Kafka's that differs only in when it was stored?"""
    if not isinstance(should, list) or not isinstance(record, list):
        return False
    same = [a == b for a, b in zip(should, record, strict=True)]
    return same.count(False) == 1 and not same[STORED] and should[BORN_HOST] == should[STORE_HOST]


def is_marker(record: object) -> bool:
    """Is it a record that Kafka's consumers do not show, the end of a transaction?"""
    return isinstance(record, list) and len(record) == 6 and bool(record[4] & CONTROL)


def lacking(expected: Plain, reading: Plain) -> list[tuple[str, str]]:
    """Messages that were not read, and their topics."""
    return [
        (f"{part} {log} offset {at} is missing", log.partition("/")[0])
        for part, log, at, _ in messages_in(expected)
        if at not in at_of(reading, part, log)
    ]


def messages_in(reading: Plain) -> Iterator[tuple[str, str, str, object]]:
    for part in LOGS:
        logs = reading[part]
        assert isinstance(logs, dict)
        for log in logs:
            for at, record in at_of(reading, part, log).items():
                yield part, log, at, record


def at_of(reading: Plain, part: str, log: str) -> dict[str, object]:
    """The messages of a log by offset, none where it is not there."""
    logs = reading[part]
    assert isinstance(logs, dict)
    found = logs.get(log, {})
    messages = found.get("messages", found.get("records", {}))
    assert isinstance(messages, dict)
    return messages


def repair_flipped(folders: Folders, flip: Flip) -> str:
    """Check and repair the folder, then read everything: what is wrong with that, empty where nothing is."""
    if flip.state == "running":
        return ""
    disk = folders.disks[flip.state].copy()
    flip.apply(disk)
    findings = found(disk)
    if not any(finding.severity == check.DAMAGE for finding in findings):
        return ""
    deeds = list(salvage.repair(Files(disk), findings, "1", START))
    lost = [deed for deed in deeds if deed.lost]
    rig = BothRig(disk)
    reading = read_everything(rig)
    expected = folders.expected[flip.state]
    if any(OP_TOPIC in deed.lost for deed in lost):
        reading["transactions"] = expected["transactions"]
    if flip.kind == "table" and lost:
        for part in STATE:
            reading[part] = expected[part]  # an older value counts again, as was said
        for part, log, at, record in list(messages_in(reading)):
            # A transaction was ended once more, or where a log begins is forgotten.
            again = is_marker(record) or "log%20starts" in flip.path
            if at not in at_of(expected, part, log) and again:
                del at_of(reading, part, log)[at]
    if lost:
        drop_early(expected, reading)
    wrong, _ = differences(expected, reading)
    if wrong:
        return f"after the repair: {wrong[0]}"
    missing = lacking(expected, reading)
    if missing and not lost:
        return f"after the repair: {missing[0][0]}, and nothing was said to be lost"
    left = [finding for finding in found(rig.disk) if finding.severity == check.DAMAGE]
    return f"the repair left {left[0]}" if left else ""


def fuzz(
    seed: int,
    *,
    flips: int = FLIPS,
    seconds: float | None = None,
    kinds: Sequence[str] = tuple(KINDS),
    say: Callable[[str], None] = print,
) -> int:
    """Flip until `flips` were judged, or for `seconds`; the number of failures."""
    until = None if seconds is None else time.monotonic() + seconds
    say(f"seed {seed}")
    folders = Folders()
    rng = Random(seed)
    counts: Counter[tuple[str, str, str]] = Counter()
    failures = number = 0
    while number < flips if until is None else time.monotonic() < until:
        flip = folders.draw(rng, kinds)
        outcome, text = judge(folders, flip)
        counts[flip.state, flip.kind, outcome] += 1
        if outcome in FAILURES:
            failures += 1
            if failures <= REPORTS_MAX:
                say(f"{outcome.upper()} (seed {seed}, flip {number}): {flip}: {text[:400]}")
        number += 1
    for line in table(counts):
        say(line)
    say(f"{number} flips, {failures} failures")
    return failures


def table(counts: Counter[tuple[str, str, str]]) -> Iterator[str]:
    """Place by outcome."""
    yield f"{'folder':9}{'file':8}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES)
    for state in STATES:
        for kind in KINDS:
            row = [counts[state, kind, outcome] for outcome in OUTCOMES]
            if any(row):
                yield f"{state:9}{kind:8}" + "".join(f"{number:10}" for number in row)
    total = [sum(counts[s, k, outcome] for s in STATES for k in KINDS) for outcome in OUTCOMES]
    yield f"{'all':17}" + "".join(f"{number:10}" for number in total)


def main() -> int:
    parser = argparse.ArgumentParser(description="one flipped bit after another in a data folder")
    parser.add_argument("--flips", type=int, default=FLIPS, help=f"how many; default {FLIPS}")
    parser.add_argument("--seconds", type=float, help="for so long, however many these are")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument(
        "--kind", action="append", choices=list(KINDS), help="files; default: all kinds"
    )
    options = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    kinds = tuple(options.kind or KINDS)
    return min(1, fuzz(seed, flips=options.flips, seconds=options.seconds, kinds=kinds))


if __name__ == "__main__":
    sys.exit(main())
