"""Unmodified clients that come in numbers, or come and go again and again, which is counted in rebalances of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running
from tests.waiting import until

from steelyard import Admin
from steelyard.groups.flapping import FLAPS_MIN
from steelyard.groups.kafka.report import KafkaGroupReport

PARTITIONS = 12
NEWCOMERS = 8
ROUNDS = 3
"""How often the client returns once it flaps."""

PROTOCOLS = {
    "classic": {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 1_000},
    "consumer": {},
}


class Member:
    """A consumer in a thread of its own; `assigned`: how often it was told its partitions."""

    def __init__(self, running: Running, topic: str, name: str, protocol: str) -> None:
        self.assigned = 0
        self.partitions: set[int] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": topic,
                "group.protocol": protocol,
                "client.id": name,
                "log_level": 0,
                **PROTOCOLS[protocol],
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assign)
        self._ends = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _assign(self, consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assigned += 1

    def _run(self) -> None:
        while not self._ends.is_set():
            self._consumer.poll(0.05)
            self.partitions = {one.partition for one in self._consumer.assignment()}
        self._consumer.close()

    def has_share(self) -> bool:
        return bool(self.partitions)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


class Group:
    """A group and its topic, which have one name."""

    def __init__(self, running: Running, name: str, protocol: str) -> None:
        self.name = name
        self.running = running
        self.protocol = protocol
        self.members: list[Member] = []
        client = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        client.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)

    def start(self, name: str) -> Member:
        member = Member(self.running, self.name, name, self.protocol)
        self.members.append(member)
        return member

    def stop(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def close(self) -> None:
        for member in list(self.members):
            self.stop(member)

    def report(self) -> KafkaGroupReport:
        with Admin(self.running.nameserver) as admin:
            return admin.kafka_group(self.name)

    def until_shared(self) -> None:
        """Wait until each member has its share, as it and the coordinator know."""

        def shared() -> bool:
            sizes = [len(one.partitions) for one in self.members]
            each = PARTITIONS // len(self.members)
            if sum(sizes) != PARTITIONS or min(sizes) < each:
                return False
            report = self.report()
            return report.state == "Stable" and len(report.members) == len(self.members)

        until(shared, self.name)


@contextmanager
def group(folder: Path, name: str, protocol: str, **settings: int) -> Iterator[Group]:
    options = [
        word for key, value in settings.items() for word in ("--kafka-set", f"{key}={value}")
    ]
    with ExitStack() as stack:
        running = stack.enter_context(
            servers.run_steelyard(folder, "--set", "delayed_answers=true", *options)
        )
        made = Group(running, name, protocol)
        stack.callback(made.close)
        yield made


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_that_flaps_disturbs_the_others_less_if_it_is_damped(
    protocol: str, tmp_path: Path
) -> None:
    """Until it flaps, each of its lives costs the others two rebalances; after that none while it waits.

    1. Two members share a topic, and a third client joins and leaves three times.
    2. It returns three times more: each time it is kept waiting, which the report shows, and ends again.
    3. The coordinator has begun no rebalance meanwhile, and the others were told of none.
    """
    settings = {"group_flapping_delay_max_ms": 20_000}
    with group(tmp_path, f"flaps-{protocol}", protocol, **settings) as damped:
        for name in ("one", "two"):
            damped.start(name)
        damped.until_shared()
        before = damped.report().generation
        for number in range(FLAPS_MIN + 4):  # delays of 8 s: longer than a join on a busy machine
            life = damped.start("loop")
            if number < FLAPS_MIN:
                damped.until_shared()
            else:
                until(life.has_share, "its share, after the delay")
            damped.stop(life)
            damped.until_shared()
        each = damped.report().generation
        assert each >= before + 2 * FLAPS_MIN
        told = [one.assigned for one in damped.members]
        for _ in range(ROUNDS):
            life = damped.start("loop")
            (flapper,) = until(
                lambda: [one for one in damped.report().flapping if one.until is not None],
                "a client that waits",
            )
            assert flapper.name.startswith("loop/")
            damped.stop(life)
            assert not life.partitions
        damped.until_shared()
        assert damped.report().generation == each
        assert [one.assigned for one in damped.members] == told


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_start_together_all_get_their_share(protocol: str, tmp_path: Path) -> None:
    """Most of them are collected; how few rebalances that makes is counted in virtual time."""
    with group(tmp_path, f"joins-{protocol}", protocol, group_join_window_max_ms=5_000) as joined:
        joined.start("first")
        joined.until_shared()
        for number in range(NEWCOMERS):
            joined.start(f"newcomer-{number}")
        joined.until_shared()
