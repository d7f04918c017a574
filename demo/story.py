"""What happens during the publishing, in which order.

Every event waits until a share of the flights is published, so that the story is the same on slow
and fast machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.cluster import Cluster

GROUP = "delay-board"

CLIENT_HOST = "127.0.0.1@"
"""What the client ids of the members begin with, before their names."""


@dataclass
class Story:
    """Runs the publisher and the members; `events`: (share of flights published, text, action)."""

    cluster: Cluster
    flights: int
    per_second: int
    published: int = 0

    def events(self) -> Iterator[tuple[float, str, Callable[[], None]]]:
        yield 0.12, "member-2 joins", lambda: self.join("member-2")
        yield 0.24, "member-3 joins", lambda: self.join("member-3")
        yield 0.38, "member-2 is killed (SIGKILL)", lambda: self.cluster.kill("member-2")
        yield 0.52, "broker-b is killed (SIGKILL)", lambda: self.cluster.kill("broker-b")
        yield 0.66, "broker-b is back on its data", lambda: self.cluster.start_broker("broker-b")
        yield 0.84, "member-1 stops cleanly", lambda: self.cluster.stop("member-1")

    def join(self, name: str) -> None:
        self.cluster.spawn(
            name, "-m", "demo.member", self.cluster.nameserver, GROUP, name, str(self.notes(name))
        )  # fmt: skip
        self.cluster.wait_ready(name)

    def notes(self, name: str) -> Path:
        return self.cluster.folder / f"{name}.notes"

    def run(self) -> Iterator[str]:
        """Publish everything while the group changes.

        Yields after each step: the text of its event, or "".
        """
        self.join("member-1")
        publisher = self.cluster.spawn(
            "publisher",
            *("-m", "demo.publisher", self.cluster.nameserver),
            *(str(self.flights), str(self.per_second)),
        )
        assert publisher.stdout is not None
        events = list(self.events())
        for line in publisher.stdout:
            self.published = json.loads(line)["published"]
            yield ""
            while events and self.published >= events[0][0] * self.flights:
                _, text, act = events.pop(0)
                yield text
                act()
        if publisher.wait() != 0 or self.published != self.flights:
            raise SystemExit(f"the publisher failed; see {self.cluster.folder / 'publisher.log'}")

    def consumed(self) -> Consumed:
        """What the members noted so far."""
        lines: list[str] = []
        for notes in sorted(self.cluster.folder.glob("*.notes")):
            lines += notes.read_text().splitlines()
        messages = set(lines)
        flights = {line.partition(" ")[0] for line in messages}
        return Consumed(len(lines), len(messages), len(flights))


@dataclass(frozen=True)
class Consumed:
    """What all members noted together. A flight that was sent again is in several messages."""

    deliveries: int
    messages: int
    flights: int

    @property
    def reprocessed(self) -> int:
        """Messages that a member was given again."""
        return self.deliveries - self.messages

    @property
    def sent_again(self) -> int:
        return self.messages - self.flights
