"""What happens during the publishing, in which order.

Every event waits until a share of the flights is published, so that the story is the same on slow
and fast machines; the last one also until the Kafka group has caught up, so that what waits for it
is what its rebalance holds up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from demo import kafka_group
from demo.cluster import Cluster

GROUP = "delay-board"

KAFKA_HAS_READ = 0.99
"""The share of the published flights that the Kafka group has read when its third member joins."""


class Event(NamedTuple):
    """What happens when a share of the flights is published, and something is so."""

    share: float
    text: str
    act: Callable[[], None]
    is_due: Callable[[], bool] = lambda: True


@dataclass
class Story:
    """Runs the publisher and the members."""

    cluster: Cluster
    flights: int
    per_second: int
    published: int = 0
    newcomer_at: int = 0
    """When the Kafka group's third member was started; ns since the epoch."""
    tally: kafka_group.Tally = field(default_factory=kafka_group.Tally)

    def events(self) -> list[Event]:
        cluster = self.cluster
        return [
            Event(0.12, "member-2 joins", lambda: self.join("member-2")),
            Event(0.24, "member-3 joins", lambda: self.join("member-3")),
            Event(0.36, "member-2 is killed (SIGKILL)", lambda: cluster.kill("member-2")),
            Event(0.48, "broker-b is killed (SIGKILL)", lambda: cluster.kill("broker-b")),
            Event(0.60, "broker-b is back on its data", lambda: cluster.start_broker("broker-b")),
            Event(0.74, "member-1 stops cleanly", lambda: cluster.stop("member-1")),
            Event(
                0.78,
                "kafka-1 and kafka-2 read the topic, too: a group of unmodified Kafka consumers",
                lambda: self.join_kafka(*kafka_group.MEMBERS),
            ),
            Event(
                0.92,
                "kafka-3 joins them",
                self.newcomer_joins,
                lambda: self.read_with_kafka() >= KAFKA_HAS_READ * self.published,
            ),
        ]

    def join(self, name: str) -> None:
        self.cluster.spawn(
            name, "-m", "demo.member", self.cluster.nameserver, GROUP, name, str(self.notes(name))
        )  # fmt: skip
        self.cluster.wait_ready(name)

    def join_kafka(self, *names: str) -> None:
        """All at once."""
        for name in names:
            self.cluster.spawn(
                name, "-m", "demo.kafka_member", self.cluster.kafka_servers, kafka_group.GROUP,
                name, str(self.kafka_notes(name)),
            )  # fmt: skip
        for name in names:
            self.cluster.wait_ready(name)

    def newcomer_joins(self) -> None:
        self.newcomer_at = time.time_ns()
        self.join_kafka(kafka_group.NEWCOMER)

    def kafka_notes(self, name: str) -> Path:
        return self.cluster.folder / f"{name}.kafka"

    def read_with_kafka(self) -> int:
        """How many flights the Kafka group's members noted so far."""
        return self.tally.look(self.cluster.folder.glob("*.kafka"))

    def notes_of_kafka(self) -> kafka_group.Notes:
        names = (*kafka_group.MEMBERS, kafka_group.NEWCOMER)
        return kafka_group.Notes.of({name: self.kafka_notes(name) for name in names})

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
        events = self.events()
        for line in publisher.stdout:
            self.published = json.loads(line)["published"]
            yield ""
            while events and self._is_due(events[0]):
                event = events.pop(0)
                yield event.text
                event.act()
        if publisher.wait() != 0 or self.published != self.flights:
            raise SystemExit(f"the publisher failed; see {self.cluster.folder / 'publisher.log'}")
        for event in events:  # what was not due in time
            yield event.text
            event.act()

    def _is_due(self, event: Event) -> bool:
        return self.published >= event.share * self.flights and event.is_due()

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
