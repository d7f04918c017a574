"""How long `steelyard pipeline incident` takes for a long `__consumer_offsets`: `./dev bench incident`.

A dump of ten million committed offsets is written: groups with 32 partitions each, classic ones and such of KIP-848,
with the records of Kafka up to 4.2 and those of 4.3. Their members commit what they have read every second, all
partitions of a member in a batch, as Kafka's clients do; every few minutes one of them leaves, dies or comes back.
What was written decides what the command must find: which rebalances, why, who was in the group, which partition went
from whom to whom, and how long it stood still. The bench ends with an error if it finds anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow.parquet as parquet
from crc32c import crc32c

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.run import machine  # noqa: E402

from steelyard.incident.tables import IncidentHandoff, IncidentRebalance  # noqa: E402
from steelyard.wire.kafka.messages import coordinator_records as offsets_topic  # noqa: E402
from steelyard.wire.kafka.messages.consumer_protocol import (  # noqa: E402
    ConsumerProtocolAssignment,
    TopicPartitions,
    write_assignment,
)
from steelyard.wire.kafka.messages.coordinator_records import Key, RecordType, Value  # noqa: E402
from steelyard.wire.kafka.records import Record, write_batch  # noqa: E402

GROUPS = 8
MEMBERS, PARTITIONS = 8, 32
COMMIT_MS = 1_000
USUAL_S = 60
PER_SECOND = 100
"""Messages of a partition in a second."""
SESSION_MS, POLL_MS = 45_000, 300_000
"""Defaults of Kafka's clients."""
CLASSIC_MS, ROUND_MS = 3_000, 1_000
"""How long a classic rebalance takes when a member left, and the first round of one when a member joined."""
BEGAN = 1_790_000_000_000
SEGMENT_BYTES = 100 << 20
TOPIC, TOPIC_ID = "orders", bytes(range(16))
JOINED, LEFT, EXPIRED = "joined", "left (unregistered)", "left (expired)"

OFFSET_MARK, TIME_MARK = 0x0102_0304_0506_0708, 0x1112_1314_1516_1718
"""Stand for numbers that are filled in later."""
BASE_OFFSET_AT, CRC_AT, CHECKED_AT, BASE_TIME_AT, MAX_TIME_AT = 0, 17, 21, 27, 35
"""Places in the header of a batch."""

Shares = Mapping[str, frozenset[int]]
"""Partitions by the name of the member that has them."""


class Move(NamedTuple):
    """A partition went from one member to another; both empty: nobody. `pause_ms`: None if it had not been read before."""

    old: str
    new: str
    pause_ms: float | None


class Rebalance(NamedTuple):
    """What a group went through."""

    trigger: str
    before: frozenset[str]
    after: frozenset[str]
    moves: Mapping[int, Move]


# -- what is written -------------------------------------------------------------------------------


class Log:
    """A partition of `__consumer_offsets` on a broker's disk."""

    def __init__(self, dump: Path, number: int) -> None:
        self._folder = dump / f"__consumer_offsets-{number}"
        self._folder.mkdir(parents=True)
        self.next_offset = self.bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._file = (self._folder / f"{self.next_offset:020}.log").open("wb")

    def append(self, batches: bytes | memoryview, count: int) -> None:
        if self._file.tell() + len(batches) > SEGMENT_BYTES:
            self._file.close()
            self._begin()
        self._file.write(batches)
        self.next_offset += count
        self.bytes += len(batches)

    def close(self) -> None:
        self._file.close()


class Group:
    """A group whose records are written to a log, and what happened in it."""

    def __init__(self, number: int, log: Log) -> None:
        self.is_modern, self.has_ids = bool(number & 1), bool(number & 2)
        self.name = f"group-{number}-{'consumer' if self.is_modern else 'classic'}"
        self.rebalances: list[Rebalance] = []
        self.commits = 0
        self._log = log
        self._random = Random(number)
        self._at = BEGAN
        self._generation = 0
        self._names = [f"member-{one}" for one in range(MEMBERS)]
        self._phase = {name: 50 + 100 * one for one, name in enumerate(self._names)}
        self._shares: Shares = {}
        self._stopped: dict[int, float] = {}
        """When the last message of a partition was processed that moves now."""

    # -- what happens ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._settle(JOINED, {name: frozenset() for name in self._names})

    def go_on(self) -> None:
        """Read for some minutes; then a member leaves, dies or comes back."""
        self._read(USUAL_S * self._random.randrange(4, 8))
        absent = sorted(set(self._names) - self._shares.keys())
        if absent:
            self._join(absent[0])
        else:
            self._lose(self._random.choice(self._names), self._random.random() < 0.5)

    def end(self) -> None:
        self._read(USUAL_S)

    def _lose(self, name: str, is_dead: bool) -> None:
        rest = {one: held for one, held in self._shares.items() if one != name}
        last = self._at - COMMIT_MS + self._phase[name]
        ended = last + (self._random.random() * COMMIT_MS if is_dead else 0)
        self._stopped = dict.fromkeys(self._shares[name], ended)
        known = SESSION_MS if is_dead else 0 if self.is_modern else CLASSIC_MS
        before, self._shares = self._shares, rest
        self._read(max(0, last + known - self._at) // COMMIT_MS + 1)
        self._shares = before
        self._settle(EXPIRED if is_dead else LEFT, rest)

    def _join(self, name: str) -> None:
        """Those that have more than their share give up some, and a second later the new one gets them."""
        count = PARTITIONS // MEMBERS
        kept = {one: frozenset(sorted(held)[:count]) for one, held in self._shares.items()}
        for one, held in self._shares.items():
            last = self._at - COMMIT_MS + self._phase[one]
            stopped = min(last + self._random.random() * COMMIT_MS, self._at)
            self._stopped |= dict.fromkeys(held - kept[one], stopped)
        before = self._shares
        self._note(kept | {name: frozenset()})
        self._read(ROUND_MS // COMMIT_MS)
        self._shares = before
        self._settle(JOINED, kept | {name: frozenset()}, is_second=True)

    def _settle(self, trigger: str, kept: Shares, is_second: bool = False) -> None:
        """Give the partitions that nobody keeps to those that have the fewest."""
        shares = {name: set(held) for name, held in kept.items()}
        for place in sorted(set(range(PARTITIONS)).difference(*shares.values())):
            min(shares.values(), key=len).add(place)
        after = {name: frozenset(held) for name, held in shares.items()}
        before = self._shares
        self._note(after, same_epoch=is_second)
        old = {place: name for name, held in before.items() for place in held}
        new = {place: name for name, held in after.items() for place in held}
        moves = {}
        for place, name in new.items():
            if old.get(place) != name:
                first = self._at + self._phase[name]
                began = max(self._at, first - self._random.random() * COMMIT_MS)
                pause = began - self._stopped[place] if place in old else None
                moves[place] = Move(self._shown(old.get(place)), self._shown(name), pause)
        self.rebalances.append(Rebalance(trigger, self._all(before), self._all(after), moves))

    def _all(self, shares: Shares) -> frozenset[str]:
        return frozenset(map(self._shown, shares))

    def _shown(self, name: str | None) -> str:
        """A member as the command names it."""
        return "" if name is None else name + "-" + _id(name)

    # -- records of groups -----------------------------------------------------------------------

    def _note(self, shares: Shares, same_epoch: bool = False) -> None:
        """Write what a coordinator does when the members have these partitions."""
        if self.is_modern:
            self._note_epoch(shares, same_epoch)
        else:
            self._generation += 1
            members = [
                offsets_topic.MemberMetadata(
                    *(self._shown(name), None, name, "/127.0.0.1", POLL_MS, SESSION_MS),
                    assignment=write_assignment(
                        ConsumerProtocolAssignment(
                            (TopicPartitions(TOPIC, sorted(held)),) if held else ()
                        )
                    ),
                )
                for name, held in shares.items()
            ]
            value = offsets_topic.GroupMetadataValue(
                *("consumer", self._generation, "cooperative-sticky", members[0].member_id),
                *(self._at, members),
            )
            self._write([(offsets_topic.GROUP_METADATA, offsets_topic.GroupKey(self.name), value)])
        self._shares = shares

    def _note_epoch(self, shares: Shares, same_epoch: bool) -> None:
        records: list[tuple[RecordType, Key, Value | None]] = []
        for name in sorted(self._shares.keys() - shares.keys()):
            key = offsets_topic.MemberKey(self.name, _id(name))
            records += [
                (kind, key, None)
                for kind in (
                    offsets_topic.CONSUMER_GROUP_CURRENT,
                    offsets_topic.CONSUMER_GROUP_TARGET_MEMBER,
                    offsets_topic.CONSUMER_GROUP_MEMBER_METADATA,
                )
            ]
        for name in sorted(shares.keys() - self._shares.keys()):
            member = offsets_topic.ConsumerGroupMemberMetadataValue(
                client_id=name,
                client_host="/127.0.0.1",
                subscribed_topic_names=(TOPIC,),
                rebalance_timeout_ms=POLL_MS,
            )
            key = offsets_topic.MemberKey(self.name, _id(name))
            records.append((offsets_topic.CONSUMER_GROUP_MEMBER_METADATA, key, member))
        if not same_epoch:
            self._generation += 1
            value = offsets_topic.ConsumerGroupMetadataValue(self._generation)
            of_group = offsets_topic.GroupKey(self.name)
            records.append((offsets_topic.CONSUMER_GROUP_METADATA, of_group, value))
        for name, held in shares.items():
            if held != self._shares.get(name):
                had = offsets_topic.CurrentPartitions(TOPIC_ID, sorted(held))
                current = offsets_topic.ConsumerGroupCurrentMemberAssignmentValue(
                    self._generation, self._generation - 1, assigned_partitions=(had,)
                )
                key = offsets_topic.MemberKey(self.name, _id(name))
                records.append((offsets_topic.CONSUMER_GROUP_CURRENT, key, current))
        self._write(records)

    def _write(self, made: Sequence[tuple[RecordType, Key, Value | None]]) -> None:
        first = self._log.next_offset
        records = []
        for number, (kind, key, value) in enumerate(made):
            version = 3 if kind is offsets_topic.GROUP_METADATA else 0
            written = None if value is None else offsets_topic.write_value(kind, value, version)
            key_bytes = offsets_topic.write_key(kind, key)
            records.append(Record(first + number, self._at, key_bytes, written))
        self._log.append(write_batch(records), len(records))

    # -- commits ---------------------------------------------------------------------------------

    def _read(self, seconds: int) -> None:
        """Let each member commit its partitions once a second."""
        times = self._at + COMMIT_MS * np.arange(seconds, dtype=np.int64)
        batches = [
            self._template(sorted(held), self._phase[name])
            for name, held in self._shares.items()
            if held
        ]
        batches.sort(key=lambda one: one.phase)
        rows = np.tile(np.frombuffer(b"".join(one.data for one in batches), np.uint8), (seconds, 1))
        flat = rows.data.cast("B")
        count = sum(one.records for one in batches)
        base = self._log.next_offset + count * np.arange(seconds, dtype=np.int64)
        start = 0
        for one in batches:
            then = times + one.phase
            _fill(rows, start + BASE_OFFSET_AT, base)
            for at in (BASE_TIME_AT, MAX_TIME_AT, *one.times):
                _fill(rows, start + at, then)
            for at in one.offsets:
                _fill(rows, start + at, (then - BEGAN) * PER_SECOND // 1000)
            end = start + len(one.data)
            sums = [
                crc32c(flat[row + start + CHECKED_AT : row + end])
                for row in range(0, len(flat), rows.shape[1])
            ]
            rows[:, start + CRC_AT : start + CRC_AT + 4] = _bytes(np.array(sums), ">u4")
            base += one.records
            start = end
        self._log.append(flat, count * seconds)
        self.commits += count * seconds
        self._at += seconds * COMMIT_MS

    def _template(self, places: Sequence[int], phase: int) -> _Template:
        kind = offsets_topic.OFFSET_COMMIT
        value = offsets_topic.write_value(
            kind,
            offsets_topic.OffsetCommitValue(
                OFFSET_MARK, 0, commit_timestamp=TIME_MARK, topic_id=TOPIC_ID
            ),
            4 if self.has_ids else 3,
        )
        keys = [offsets_topic.OffsetCommitKey(self.name, TOPIC, place) for place in places]
        data = write_batch(
            [
                Record(number, 0, offsets_topic.write_key(kind, key), value)
                for number, key in enumerate(keys)
            ]
        )
        marks = (list(_found(data, mark)) for mark in (OFFSET_MARK, TIME_MARK))
        return _Template(data, phase, len(places), *marks)


class _Template(NamedTuple):
    """A batch of commits, and where numbers are filled in. `phase`: when in a second it is written, in ms."""

    data: bytes
    phase: int
    records: int
    offsets: list[int]
    times: list[int]


def _id(name: str) -> str:
    """A member id for a client id, as long as those of Kafka."""
    return name.encode().hex().zfill(32)


def _found(data: bytes, mark: int) -> Iterator[int]:
    at = data.find(mark.to_bytes(8))
    while at >= 0:
        yield at
        at = data.find(mark.to_bytes(8), at + 8)


def _bytes(numbers: np.ndarray, kind: str) -> np.ndarray:
    return numbers.astype(kind).view(np.uint8).reshape(len(numbers), -1)


def _fill(rows: np.ndarray, at: int, numbers: np.ndarray) -> None:
    rows[:, at : at + 8] = _bytes(numbers, ">i8")


def write_dump(dump: Path, commits: int) -> tuple[list[Group], int]:
    """Write at least so many commits; return the groups, and how many bytes were written."""
    logs = [Log(dump, number) for number in range(GROUPS)]
    groups = [Group(number, log) for number, log in enumerate(logs)]
    for group, log in zip(groups, logs, strict=True):
        group.begin()
        while group.commits < commits / GROUPS:
            group.go_on()
        group.end()
        log.close()
    return groups, sum(log.bytes for log in logs)


# -- what is found ---------------------------------------------------------------------------------


class Run(msgspec.Struct):
    """What the command took."""

    wall_s: float
    cpu_s: float
    memory_mib: float


def run_command(dump: Path, out: Path) -> Run:
    command = [sys.executable, "-m", "steelyard", "pipeline", "incident"]
    command += ["--dump", str(dump), "--out", str(out)]
    printed = out.with_suffix(".txt")
    begun = time.perf_counter()
    with printed.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(printed.read_text()[-3_000:])
    return Run(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class Check(msgspec.Struct):
    """What was compared: how often, and what was wrong."""

    rebalances: int = 0
    members: int = 0
    moves: int = 0
    pauses: int = 0
    off_ms: float = 0.0
    """The most that a pause is off."""
    error_ms: int = 0
    """The largest error that the command gives."""
    wrong: list[str] = []


def compare(groups: Sequence[Group], out: Path) -> Check:
    """Compare the tables with what was written."""
    rows = _rows(out, "rebalances", IncidentRebalance)
    handoffs = _rows(out, "handoffs", IncidentHandoff)
    moved: dict[str, dict[int, IncidentHandoff]] = defaultdict(dict)
    for one in handoffs:
        moved[one.rebalance][one.queue] = one
    check = Check()
    for group in groups:
        found = [row for row in rows if row.group == group.name]
        if len(found) != len(group.rebalances):
            check.wrong.append(f"{group.name}: {len(found)} of {len(group.rebalances)} rebalances")
        for row, true in zip(found, group.rebalances, strict=False):
            _compare_one(check, row, moved[row.rebalance], true)
    if len(rows) != check.rebalances or len(handoffs) != check.moves:
        check.wrong.append(f"{len(rows)} rebalances and {len(handoffs)} queues moved in all")
    return check


Row = TypeVar("Row", bound=msgspec.Struct)


def _rows(out: Path, name: str, kind: type[Row]) -> list[Row]:
    table = parquet.read_table(out / f"{name}.parquet", columns=list(kind.__struct_fields__))
    rows = table.to_pylist()
    for row in rows:
        if "started_at" in row:
            row["started_at"] = round(row["started_at"].timestamp() * 1000)
    return [msgspec.convert(row, kind) for row in rows]


def _compare_one(
    check: Check, row: IncidentRebalance, moved: Mapping[int, IncidentHandoff], true: Rebalance
) -> None:
    check.rebalances += 1
    found = (row.trigger, frozenset(row.members_before), frozenset(row.members_after))
    if found != true[:3]:
        check.wrong.append(f"{row.rebalance}: {found}, not {true[:3]}")
    check.members += len(row.members_before) + len(row.members_after)
    owners = {place: (one.from_client, one.to_client) for place, one in moved.items()}
    if owners != {place: move[:2] for place, move in true.moves.items()}:
        check.wrong.append(f"{row.rebalance}: {owners}, not {true.moves}")
    check.moves += len(owners)
    for place in owners.keys() & true.moves.keys():
        pause, error = moved[place].pause_ms, moved[place].pause_error_ms
        true_ms = true.moves[place].pause_ms
        if true_ms is None or pause is None or error is None:
            if true_ms is not pause:
                check.wrong.append(f"{row.rebalance} {place}: {pause}, not {true_ms}")
            continue
        off = abs(pause - true_ms)
        check.pauses += 1
        check.off_ms = max(check.off_ms, off)
        check.error_ms = max(check.error_ms, error)
        if off > error + 1 or error > COMMIT_MS:
            check.wrong.append(f"{row.rebalance} {place}: {pause} ± {error}, not {true_ms}")


# -- the report ------------------------------------------------------------------------------------


REPORT = """# Incidents from ten million commits

Written by `./dev bench incident` ({date}). Machine: {processor}, {memory}, {system}, Python {python}.
`steelyard pipeline incident --dump` on {commits:,} committed offsets of {groups} groups, {size_mib:,.0f} MiB in segments of 100 MiB,
with `--out`; one process, from its start to its end. The dump was in the page cache; load average before: {load:.1f}.

| | |
|---|--:|
| seconds on the wall | {wall_s:.1f} |
| CPU, s | {cpu_s:.1f} |
| CPU, µs per commit | {per_commit_us:.2f} |
| peak memory, resident, MiB | {memory_mib:.0f} |

| found | as written |
|---|--:|
| rebalances, with their triggers | {check.rebalances:,} |
| members before and after, by name | {check.members:,} |
| partitions that moved, from whom to whom | {check.moves:,} |
| pauses within the error that the command gives | {check.pauses:,} |
| largest error given, ms | {check.error_ms:,} |
| most that a pause was off, ms | {check.off_ms:,.0f} |

- All of it was found, and nothing else: what was written decides what must be found, and the bench ends with an error if
  anything differs.
- Half the groups are classic, half are of KIP-848; in half of each the commits are records of version 3 (Kafka up to 4.2), in
  half of version 4 (Kafka 4.3), with ids of topics. Every four to eight minutes a member leaves, dies without a word
  (session time-out of 45 s) or comes back. The eight members of a group commit their partitions of {partitions} every second, in a
  batch of four or five records without compression.
- A pause is known to a commit interval, here {interval_ms:,} ms.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench incident", description=__doc__.partition("\n")[0])
    parser.add_argument("--commits", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=HERE, help="folder for INCIDENT.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="steelyard-incident-") as folder:
        dump = Path(folder) / "dump"
        groups, size = write_dump(dump, options.commits)
        load = os.getloadavg()[0]
        used = run_command(dump, Path(folder) / "tables")
        check = compare(groups, Path(folder) / "tables")
    if check.wrong:
        print(f"{len(check.wrong)} differences:", *check.wrong[:5], sep="\n", file=sys.stderr)
        return 1
    commits = sum(group.commits for group in groups)
    found = {"commits": commits, "size_mib": size / 2**20, "load": load}
    found |= msgspec.structs.asdict(used)
    print(json.dumps(found | msgspec.structs.asdict(check)))
    report = REPORT.format(
        **machine(),
        **found,
        check=check,
        groups=GROUPS,
        partitions=PARTITIONS,
        interval_ms=COMMIT_MS,
        per_commit_us=used.cpu_s / commits * 1e6,
    )
    (options.out / "INCIDENT.md").write_text(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
