"""How long Spark takes for the tables of a long ledger: `python bench/ledger_tables.py --records 10000000`.

A copy of a ledger is written to a topic on two brokers: groups of four members that read sixteen queues each, with a
rebalance every ten minutes, and what a broker writes in a second as one message. `steelyard pipeline ledger` then makes
all tables, on two cores. Reported are the seconds on the wall and of both cores (Java's and Python's, without the
brokers'), and the largest memory of each kind of process; results go to `bench/results/ledger-DATE.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import psutil

from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.ledger.events import (
    Backlog,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    Record,
    Requested,
    encode,
)

TOPIC = "LedgerCopy"
BROKERS = ("broker-a", "broker-b")
QUEUES = 8
MEMBERS = ("m-1", "m-2", "m-3", "m-4")
BEGAN = 1_790_000_000_000
RECORDS_PER_MESSAGE = 500
PAUSE_S = 1.0


def seconds_of(group: str, random: Random) -> Iterator[dict[str, list[Record]]]:
    """What each broker records about a group, second by second."""
    members = list(MEMBERS)
    offsets: Counter[tuple[str, int]] = Counter()
    readers: dict[tuple[str, int], str] = {}
    at = BEGAN
    while True:
        made: dict[str, list[Record]] = {broker: [] for broker in BROKERS}
        change = at == BEGAN or random.random() < 1 / 600
        if change and at > BEGAN:
            _change(group, members, made, at, random)
        for n, broker in enumerate(BROKERS):
            if at == BEGAN:
                made[broker] += (
                    MemberJoined(at, broker, group, one, "heartbeat", MEMBERS) for one in MEMBERS
                )
            for queue in range(QUEUES):
                reader = members[(n * QUEUES + queue) % len(members)]
                first = offsets[broker, queue]
                if readers.setdefault((broker, queue), reader) != reader:
                    first = max(0, first - 20)
                    made[broker].append(Requested(at + 90, broker, group, reader, "T", queue))
                readers[broker, queue] = reader
                then, count = at + random.randrange(100, 600), random.randrange(50, 150)
                following = offsets[broker, queue] = first + count
                made[broker].append(
                    Delivered(
                        *(then, broker, group, reader, "T", queue),
                        *(then + 300, first, following, count, then - 5),
                    )
                )
                done = following - random.randrange(30)
                made[broker].append(Committed(then + 350, broker, group, "T", queue, done, reader))
            waiting = tuple(random.randrange(20) for _ in range(QUEUES))
            made[broker].append(Backlog(at + 990, broker, group, "T", waiting, 200, at + 500))
        yield made
        at += 1_000


def _change(
    group: str, members: list[str], made: dict[str, list[Record]], at: int, random: Random
) -> None:
    absent = sorted(set(MEMBERS) - set(members))
    who = absent[0] if absent else random.choice(members)
    (members.append if absent else members.remove)(who)
    members.sort()
    for broker in BROKERS:
        known = (at, broker, group, who, "heartbeat" if absent else "unregistered", tuple(members))
        made[broker].append(MemberJoined(*known) if absent else MemberLeft(*known))


def feed(nameserver: str, groups: int, records: int) -> int:
    """Write a ledger of about so many records; return how many."""
    told = [seconds_of(f"group-{n}", Random(n)) for n in range(groups)]
    written = 0
    with Admin(nameserver) as admin:
        admin.create_topic(TOPIC, queues=1)
    with Producer("bench", nameserver) as producer:
        while written < records:
            second = [next(one) for one in told]
            for broker in BROKERS:
                noted = sorted((one for made in second for one in made[broker]), key=_written_at)
                for start in range(0, len(noted), RECORDS_PER_MESSAGE):
                    part = noted[start : start + RECORDS_PER_MESSAGE]
                    producer.send_batch(
                        [Message(TOPIC, encode(part))], queue=MessageQueue(TOPIC, broker, 0)
                    )
                written += len(noted)
    return written


def _written_at(record: Record) -> int:
    return record.at


class Watch:
    """CPU time and memory of a process and all below it, by kind."""

    def __init__(self, process_id: int) -> None:
        self._root = psutil.Process(process_id)
        self._cpu: dict[tuple[str, int], float] = {}
        self.memory: dict[str, int] = {}

    def look(self) -> None:
        try:
            found = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for one in found:
            try:
                name = one.name()
                times, memory = one.cpu_times(), one.memory_full_info().uss
                if psutil.Process(one.pid).name() != name:
                    continue  # until a moment ago it had the memory of the JVM that made it
            except psutil.Error:
                continue
            kind = "java" if "java" in name else "driver" if one == self._root else "python"
            # of a daemon's children that ended, the time is in the daemon's `children_` times only
            self._cpu[kind, one.pid] = times.user + times.system
            self.memory[kind] = max(self.memory.get(kind, 0), memory)

    @property
    def cpu_s(self) -> dict[str, float]:
        """Seconds by kind of process."""
        kinds = sorted({kind for kind, _ in self._cpu})
        return {
            kind: round(sum(s for (each, _), s in self._cpu.items() if each == kind), 1)
            for kind in kinds
        }


def measure(nameserver: str, out: Path, more: list[str]) -> dict[str, object]:
    """Run the job; return what it took."""
    command = [sys.executable, "-m", "steelyard", "pipeline", "ledger", "-n", nameserver]
    command += ["--out", str(out), "-t", TOPIC, *more]
    begun = time.perf_counter()
    with (
        (out.parent / "job.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as job,
    ):
        watch = Watch(job.pid)
        while job.poll() is None:
            watch.look()
            time.sleep(PAUSE_S)
    wall_s = time.perf_counter() - begun
    if job.returncode:
        raise RuntimeError((out.parent / "job.log").read_text()[-3_000:])
    return {
        "wall_s": round(wall_s, 1),
        "cpu_s": watch.cpu_s,
        "memory_mib": {kind: size >> 20 for kind, size in sorted(watch.memory.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--results", type=Path, help="file for the results")
    parser.add_argument("more", nargs="*", help="options of steelyard pipeline ledger")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steelyard", "up", "--brokers", "2", "--json"]
        command += ["--data", folder + "/data", "--nameserver-port", "0", "--broker-port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
            assert up.stdout is not None
            nameserver = json.loads(up.stdout.readline())["nameserver"]
            try:
                written = feed(nameserver, options.groups, options.records)
                found = measure(nameserver, Path(folder) / "tables", options.more)
            finally:
                up.terminate()
    result = {"date": datetime.now(UTC).date().isoformat(), "groups": options.groups}
    result |= {"records": written} | found
    print(json.dumps(result))
    if options.results is not None:
        options.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
