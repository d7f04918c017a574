"""Incidents injected into a consumer group, with what really happened: by the members' own words.

A producer sends a record to each partition every PACE_S; members commit what they have read. After
each incident the group settles, so that the next one does not touch it.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from tests.peers.kafka import servers
from tests.peers.kafka.members import JAVA, JAVA_OLD, LIBRDKAFKA, Client, Group, Member
from tests.peers.kafka.servers import SESSION_MS, Running
from tests.waiting import until

PACE_S = 0.5
SETTLE_S = 4.0
PARTITIONS = 4
USUAL = 60
"""So many of a partition's last records show what is usual."""
AT_ONCE_S = 0.05
"""Records that are not further apart are of one poll, and committed together."""
POLL_MS = 9000
"""Other than the session, so that the two can be told apart."""
PATIENT = {"session_ms": 20_000, "poll_ms": 180_000}
"""Of static members that must come back within their session, and applications that wait in a commit until the broker is back."""

JOINED, LEFT, EXPIRED, POLL_TIMEOUT, STATIC, COORDINATOR = (
    "joined",
    "left (unregistered)",
    "left (expired)",
    "left (poll timeout)",
    "static",
    "coordinator",
)


class Incident(NamedTuple):
    """What was done when, in ms since the epoch, and which members the group had, by client id.

    `pauses_ms`: of each partition that another member has now, from the last record that the old
    one got to the first that the new one got; `stalls_ms`: of each other one, the longest time
    between two records since then. `also`: what may follow as a rebalance of its own. `interval_ms`,
    `long_ms`: how long it usually took from one record of a partition to the next until then, and
    what nine of ten times did not exceed; of the slowest partition. `late_ms`: of each partition, how much
    later than they were read the records before and after its pause were committed.
    """

    trigger: str
    at: int
    before: frozenset[str]
    after: frozenset[str]
    pauses_ms: Mapping[str, int]
    stalls_ms: Mapping[str, int]
    also: str = ""
    interval_ms: int = 0
    long_ms: int = 0
    late_ms: Mapping[str, int] = {}


class Incidents:
    """A group under test, and the incidents so far."""

    def __init__(self, group: Group, client: Client) -> None:
        self.group, self.client = group, client
        self.done: list[Incident] = []
        self._all: list[Member] = []
        self._partitions = group.create_topic(group.name, PARTITIONS)
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _send(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.group.cluster.bootstrap, "linger.ms": 0, "log_level": 0}
        )
        count = 0
        while not self._stop.wait(PACE_S):
            for number in range(PARTITIONS):
                count += 1
                producer.produce(self.group.name, b"%d" % count, partition=number)
            producer.flush(5)

    def join(self, name: str, **options: object) -> None:
        self._inject(JOINED, lambda: self._join(name, **options))

    def leave(self, name: str) -> None:
        self._inject(LEFT, lambda: self.group.leave(name))

    def kill(self, name: str) -> None:
        self._inject(EXPIRED, lambda: self.group.kill(name))

    def stall(self, name: str) -> None:
        """The application does not poll until the member is out; then it comes back."""
        member = self.group.members[name]

        def stall() -> None:
            del self.group.members[name]
            member.stall()

        def back() -> None:
            self.group.members[name] = member
            member.go()

        self._inject(POLL_TIMEOUT, stall)
        self._inject(JOINED, back)

    def come_back(self, name: str) -> None:
        """A static member ends and comes back within its session."""

        def act() -> None:
            # Of a KIP-848 group, the coordinator does not let it come back before it has left or its session is over.
            end = self.group.leave if self.client.assignor == "uniform" else self.group.kill
            end(name)
            self._join(name, instance=name)

        self._inject(STATIC, act)

    def restart_broker(self) -> None:
        restart = self.group.cluster.restart
        assert restart is not None
        self._inject(COORDINATOR, restart)

    def replace(self, name: str, new: str) -> None:
        """A member leaves, and another one comes at the same time, as in a rolling restart."""

        def act() -> None:
            self.group.leave(name)
            self._join(new)

        self._inject(LEFT, act, JOINED)

    def end(self, name: str) -> None:
        """A static member leaves in order and does not come back: it is out when its session is over."""
        self._inject(EXPIRED, lambda: self.group.leave(name))

    def join_past(self, stalled: str, name: str) -> None:
        """A member joins while another one's application hangs: with eager assignors all others wait for that."""
        member = self.group.members[stalled]

        def act() -> None:
            del self.group.members[stalled]
            member.stall()
            self._join(name)

        def back() -> None:
            self.group.members[stalled] = member
            member.go()

        self._inject(POLL_TIMEOUT, act)
        self._inject(JOINED, back)

    def _join(self, name: str, **options: object) -> None:
        self._all.append(self.group.join(self.client, name, **options))

    def _inject(self, trigger: str, act: Callable[[], None], also: str = "") -> None:
        owners, before = self._owners(), frozenset(self.group.members)
        at = time.time()
        act()
        if self.group.members:
            self.group.wait_shared(self._partitions)
        began = time.time()
        until(lambda: self._all_read(began), f"{self.group} reads again")
        time.sleep(SETTLE_S)  # the members commit, and the next incident begins from rest
        after = frozenset(self.group.members)
        pauses, stalls, late = {}, {}, {}
        for place, owner in self._owners().items():
            if owners.get(place) is owner:
                stalls[place], late[place] = self._stall_ms(place, owner, at)
            elif place in owners:
                pauses[place], late[place] = self._pause_ms(place, owner, at)
        usual = *self._usual_ms(began), late
        seen = before, after, pauses, stalls, also, *usual
        self.done.append(Incident(trigger, int(at * 1000), *seen))

    def _owners(self) -> dict[str, Member]:
        return {place: member for member in self.group.members.values() for place in member.held}

    def _all_read(self, since: float) -> bool:
        """Whether each partition was read since then."""
        seen = {
            record["partition"]
            for member in self.group.members.values()
            for record in list(member.records)
            if record["at"] > since
        }
        return seen >= self._partitions

    def _pause_ms(self, place: str, owner: Member, since: float) -> tuple[int, int]:
        """From the last record of anybody before the new owner's first to that; and how late both were committed."""
        first = min(at for at in _read_at(owner, place) if at > since)
        last, reader = max(
            ((at, member) for member in self._all for at in _read_at(member, place) if at < first),
            key=lambda one: one[0],
        )
        return int((first - last) * 1000), _late_ms(reader, last, first) + _late_ms(owner, first)

    def _stall_ms(self, place: str, owner: Member, since: float) -> tuple[int, int]:
        """The longest time between two records; and how late both were committed."""
        last, first = max(
            (pair for pair in pairwise(_read_at(owner, place)) if pair[1] > since),
            key=lambda pair: pair[1] - pair[0],
        )
        return int((first - last) * 1000), _late_ms(owner, last, first) + _late_ms(owner, first)

    def _usual_ms(self, until: float) -> tuple[int, int]:
        """How long it took from one record of a partition to the next: half of the last times at most, and nine of ten."""
        found = []
        for place in self._partitions:
            times = sorted(
                record["at"]
                for member in self._all
                for record in list(member.records)
                if record["partition"] == place and record["at"] < until
            )
            gaps = sorted(
                int((later - earlier) * 1000)
                for earlier, later in pairwise(times[-USUAL:])
                if later - earlier > AT_ONCE_S
            )
            found.append((gaps[len(gaps) // 2], gaps[len(gaps) * 9 // 10]) if gaps else (0, 0))
        return max(half for half, _ in found), max(most for _, most in found)

    def close(self) -> None:
        self._stop.set()
        self._sender.join(10)


def _read_at(member: Member, place: str) -> list[float]:
    return [record["at"] for record in list(member.records) if record["partition"] == place]


def _late_ms(member: Member, read_at: float, until: float = inf) -> int:
    """How long it took the member to commit after it had read a record; 0 if it did not until then."""
    times = (event["at"] for event in list(member.events) if event["event"] == "committed")
    committed_at = next((at for at in times if read_at <= at < until), read_at)
    return int((committed_at - read_at) * 1000)


def short_set(incidents: Incidents) -> None:
    """Seven incidents: joins, a leave, a kill, a member that does not poll and comes back."""
    incidents.join("one")
    incidents.join("two")
    incidents.join("three")
    incidents.leave("two")
    incidents.kill("three")
    incidents.join("four")
    incidents.stall("four")


def restarts(incidents: Incidents) -> None:
    """Static members that come back within and after their session, restarts of the broker, a rolling restart."""
    incidents.join("one", instance="one")
    incidents.join("two", instance="two")
    incidents.come_back("one")
    incidents.come_back("two")
    incidents.kill("two")
    incidents.join("two", instance="two")
    incidents.restart_broker()
    incidents.end("two")
    incidents.join("three")
    incidents.join("four")
    incidents.replace("three", "five")
    incidents.replace("four", "six")
    incidents.restart_broker()


def rolling(incidents: Incidents) -> None:
    """A rolling restart, four times over: pauses outlast the rebalance after that which moved the partition."""
    names = ["one", "two", "three"]
    for name in names:
        incidents.join(name)
    for number in range(12):
        old, new = names[number % 3], f"{number}"
        incidents.replace(old, new)
        names[number % 3] = new


def everybody_waits(incidents: Incidents) -> None:
    """With an eager assignor partitions stand still that do not move."""
    incidents.join("one")
    incidents.join("two")
    incidents.join_past("two", "three")


def modern(version: str) -> Client:
    """A client with group.protocol=consumer that this version of the server serves."""
    client = JAVA_OLD if version.startswith("3.") else LIBRDKAFKA
    return client.using("uniform")


@contextmanager
def injected(
    folder: Path, version: str, client: Client, inject: Callable[[Incidents], None]
) -> Iterator[tuple[Running, Incidents]]:
    """A broker with a group to which all of that has happened; `folder/data` is what it has on disk."""
    options = PATIENT if inject is restarts else {"session_ms": SESSION_MS, "poll_ms": POLL_MS}
    settings = {
        **servers.SETTINGS,
        "group.consumer.session.timeout.ms": options["session_ms"],
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "offsets.topic.num.partitions": 3,
    }
    if version.startswith("3.") and client.assignor != "uniform":
        del settings["group.coordinator.rebalance.protocols"]
    with (
        servers.run_apache(
            folder, settings=settings, version=version, logging=servers.verbose(folder)
        ) as running,
        Group(running, "incident", folder, topics="incident", **options) as group,
    ):
        incidents = Incidents(group, client)
        try:
            inject(incidents)
            yield running, incidents
        finally:
            incidents.close()


def record(place: Path, made: Incidents, out: Path) -> None:
    """Keep what the unit tests read: the group's segment, the broker's lines about it, and what was done."""
    out.mkdir(parents=True, exist_ok=True)
    group = made.group.name.encode()
    for path in (place / "data").glob("__consumer_offsets-*/*.log"):
        data = path.read_bytes()
        if group in data:
            (out / "offsets.log.gz").write_bytes(gzip.compress(data, mtime=0))
    lines = (place / "server.out").read_text().splitlines(keepends=True)
    about = [line for line in lines if made.group.name in line and "oup" in line]
    (out / "broker.log").write_text("".join(about))
    done = [
        one._asdict() | {"before": sorted(one.before), "after": sorted(one.after)}
        for one in made.done
    ]
    (out / "truth.json").write_text(json.dumps(done, indent=1))


if __name__ == "__main__":  # FOLDER VERSION...
    for version in sys.argv[2:]:
        for client, name, inject in (
            (JAVA, "classic", short_set),
            (JAVA, "classic-restarts", restarts),
            (JAVA.using("range"), "classic-eager", everybody_waits),
            (modern(version), "consumer", short_set),
            (modern(version), "consumer-restarts", restarts),
            (modern(version), "consumer-rolling", rolling),
        ):
            with tempfile.TemporaryDirectory() as temporary:
                place = Path(temporary)
                with injected(place, version, client, inject) as (_, made):
                    time.sleep(1)
                    record(place, made, Path(sys.argv[1]) / f"kafka-{version}-{name}")
            print(version, name, len(made.done), flush=True)
