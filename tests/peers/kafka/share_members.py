"""Members of share groups: Java's KafkaShareConsumer in `java/share/ShareMember.java`, driven line by line.

It takes its options as KEY=VALUE: bootstrap, group, client, topics (joined by commas), mode (implicit, or
explicit: each record gets the `verdict`, accept at first), max_records, min_bytes, acquire_mode, and `settings` of the
group to be set first, NAME:VALUE joined by semicolons. What it polled is committed before the next poll; with
`holds` it keeps the first records that it gets, and does nothing more. It tells one JSON object a line:

    configured | stalled | obeyed    what it was told to is done
    record                           partition, offset, value, delivery: as it came from a poll
    committed                        partitions: what it said of the records told since the last one holds there
    error                            error: its words; the member goes on, unless `fatal`
    left                             it has left the group in order, the last line

and obeys the lines of standard input: a verdict (accept, release, reject, renew, odd: release each second
record), and `leave`, where also the end of its input leads.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import IO, Any, Self

from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import QUICK_START, QUIET, Running
from tests.waiting import PATIENCE_S, until

Place = tuple[str, int]
"""A partition's name and an offset."""


class ShareMember:
    """A process with one member; `records` and `events` are as it told them."""

    def __init__(self, name: str, options: dict[str, object], log: Path) -> None:
        self.name = name
        self.records: list[dict[str, Any]] = []
        self.taken: list[Place] = []
        """Of which records it was told that the broker has accepted what it says of them."""
        self._untold: list[Place] = []
        self.events: list[dict[str, Any]] = []
        self._log = log.open("wb")
        command = ["java", *QUICK_START, QUIET, "-cp", builds.share_classes(), "ShareMember"]
        self._process = subprocess.Popen(
            [*command, *(f"{key}={value}" for key, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=java_environment(),
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "record":
                self.records.append(event)
                self._untold.append((event["partition"], event["offset"]))
                continue
            if event["event"] == "committed":
                accepted = set(event["partitions"])
                self.taken += [place for place in self._untold if place[0] in accepted]
                self._untold = []
            self.events.append(event)

    def has(self, event: str) -> bool:
        return any(each["event"] == event for each in self.events)

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)

    def leave(self) -> None:
        self.tell("leave")
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def stop(self) -> None:
        self.kill()
        self._log.close()

    def places(self) -> list[Place]:
        return [(record["partition"], record["offset"]) for record in self.records]


class ShareGroup:
    """The members of a group on a cluster, as a context; `start` adds one."""

    def __init__(self, cluster: Running, topic: str, folder: Path, **options: object) -> None:
        self.cluster, self.topic, self.folder = cluster, topic, folder
        self.group = f"{topic}-group"
        self.options = options
        self.members: list[ShareMember] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.stop()

    def start(self, name: str, **options: object) -> ShareMember:
        told = {
            "bootstrap": self.cluster.bootstrap,
            "group": self.group,
            "client": name,
            "topics": self.topic,
            **self.options,
            **options,
        }
        member = ShareMember(name, told, self.folder / f"{name}.log")
        self.members.append(member)
        return member

    def counts(self) -> Counter[Place]:
        """How often each record was told, by anybody."""
        return Counter(place for member in self.members for place in member.places())

    def until_all(self, records: int, what: str = "all records") -> Counter[Place]:
        """Wait until so many different records were told."""
        until(lambda: len(self.counts()) >= records, what)
        return self.counts()
