"""The application of one Kafka member: polls, processes records, commits, polls again.

It commits after processing, or leaves that to the consumer (`kafka_auto_commit`), and when
partitions are revoked. While frozen it does not poll: its consumer's heartbeats continue until
max.poll.interval.ms is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from steelyard.config import KafkaConsumerConfig
from steelyard.nodes.consumer.kafka.contract import (
    Assigned,
    Commit,
    ConsumerRecord,
    Lost,
    Poll,
    Revoked,
    Stop,
    Subscribe,
)
from steelyard.nodes.seam import Address, Handled, Link
from steelyard.sim.kafka.witness import KafkaWitness, Seen
from steelyard.sim.scenario import Scenario
from steelyard.sim.world import Process, Violation
from steelyard.types import TopicPartition
from steelyard.wire.kafka.frame import Request
from steelyard.wire.kafka.messages.cluster import FindCoordinatorRequest
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from steelyard.wire.kafka.messages.groups import HeartbeatRequest, SyncGroupRequest
from steelyard.wire.kafka.messages.offsets import OffsetCommitRequest, OffsetFetchRequest

KAFKA_GROUP = "kafka-group"
POLL_MS = 1_000
AGAIN_MS = 1_000
"""Delay after a failed poll."""


def member_config(
    scenario: Scenario, name: str, bootstrap: tuple[Address, ...], rng: Random
) -> KafkaConsumerConfig:
    """Return the configuration of the member `name`, with a protocol that it may draw."""
    config = KafkaConsumerConfig(
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id=KAFKA_GROUP,
        group_instance_id=name if scenario.kafka_static else "",
        auto_offset_reset="earliest",
        enable_auto_commit=scenario.kafka_auto_commit,
        max_poll_interval_ms=scenario.kafka_max_poll_interval_ms,
        max_poll_records=scenario.kafka_poll_records,
        metadata_max_age_ms=5_000,
    )
    protocol, assignor = scenario.kafka_protocol, scenario.kafka_assignor
    if protocol == "both":
        protocol = rng.choice(("classic", "consumer"))
    if protocol == "consumer":
        return replace(config, group_protocol="consumer", group_remote_assignor=assignor)
    if assignor == "uniform":  # of a group with members of both protocols
        assignor = "cooperative-sticky"
    session_ms = scenario.kafka_session_timeout_ms
    return replace(config, assignors=(assignor,), session_timeout_ms=session_ms)


class KafkaApplication:
    """The application. `run` counts the runs of a member."""

    def __init__(
        self,
        scenario: Scenario,
        witness: KafkaWitness,
        process: Process,
        run: int,
        topics: tuple[str, ...],
    ) -> None:
        self.busy = False
        """Whether it is processing the records of a poll."""
        self._world = process.world
        self._scenario = scenario
        self._witness = witness
        self._process = process
        self._who = f"{process.name} {run}"
        self._rng = process.world.rng(f"application {self._who}")
        self._polls = 0
        self._frozen_until = 0
        self._stopping: Callable[[object], None] | None = None
        witness.joined(self._who, lambda: process.alive)
        process.on_hand = self._hand
        process.on_send = self._sends
        process.ask(Subscribe(topics), lambda result: self._poll())

    # -- what faults do ----------------------------------------------------------------------------

    def freeze(self, for_ms: int) -> None:
        """Stop polling for a while."""
        self._frozen_until = max(self._frozen_until, self._world.now + for_ms)

    def leave(self, then: Callable[[object], None]) -> None:
        """Stop properly as soon as the current poll or processing has ended.

        `then` gets the result.
        """
        self._stopping = then
        self._frozen_until = 0

    # -- the loop ----------------------------------------------------------------------------------

    def _poll(self) -> None:
        if not self._process.alive:
            return
        if self._stopping is not None:
            self._process.ask(Stop(), self._stopping)
        elif self._world.now < self._frozen_until:
            self._world.after(min(POLL_MS, self._frozen_until - self._world.now), self._poll)
        else:
            self._polls += 1
            poll = Poll(self._scenario.kafka_poll_records, POLL_MS, self._polls)
            self._process.ask(poll, self._polled)

    def _polled(self, result: object) -> None:
        if not isinstance(result, tuple):  # an error, which the next poll may not have
            self._world.after(AGAIN_MS, self._poll)
            return
        if not result:
            self._poll()
            return
        seen = tuple(_seen(record) for record in result)
        self._witness.delivered(self._who, seen)
        self.busy = True
        work_ms = self._rng.randrange(self._scenario.process_ms_max + 1)
        if self._rng.randrange(100) < self._scenario.slow_of_100:
            work_ms *= 1 + self._rng.randrange(100)
        self._world.after(work_ms, partial(self._worked, seen))

    def _worked(self, seen: tuple[Seen, ...]) -> None:
        if not self._process.alive:
            return
        self.busy = False
        self._witness.done(seen)
        if self._scenario.kafka_auto_commit:
            self._poll()
        else:
            self._process.ask(Commit(), self._committed)

    def _committed(self, result: object) -> None:
        self._witness.answered(self._who, well=result is None)
        self._poll()

    # -- what it is told ---------------------------------------------------------------------------

    def _hand(self, process: Process, ticket: int, told: object) -> None:
        self._world.trace.note(self._world.now, process.name, f"> Hand {ticket} {told!r}")
        if self.busy:
            raise Violation(f"{self._who} is at work, and told {told!r}")
        done = lambda result: process.deliver(Handled(ticket, None))  # noqa: E731
        match told:
            case Assigned(partitions):
                self._witness.assigned(self._who, partitions)
            case Revoked(partitions):
                self._witness.taken(self._who, partitions)
                if not self._scenario.kafka_auto_commit:
                    process.ask(Commit(), partial(self._committed_last, done))
                    return
            case Lost(partitions):
                self._witness.taken(self._who, partitions)
            case _:
                raise AssertionError(f"not expected here: {told!r}")
        self._world.after(
            self._rng.randrange(self._scenario.process_ms_max + 1), partial(done, None)
        )

    def _committed_last(self, then: Callable[[object], None], result: object) -> None:
        self._witness.answered(self._who, well=result is None)
        then(result)

    def _sends(self, process: Process, link: Link, message: object) -> None:
        match message:
            case Request(message=SyncGroupRequest() as sync):
                self._witness.synchronized(self._who, sync.generation_id)
            case Request(message=HeartbeatRequest() as heartbeat):
                self._witness.heartbeats(self._who, heartbeat.generation_id)
            case Request(message=ConsumerGroupHeartbeatRequest() as heartbeat):
                is_complete = heartbeat.rebalance_timeout_ms >= 0
                self._witness.beats(self._who, heartbeat.member_epoch, is_complete=is_complete)
            case Request(message=FindCoordinatorRequest()):
                self._witness.searches(self._who)
            case Request(message=OffsetFetchRequest() as fetch):
                for group in fetch.groups:
                    for wanted in group.topics or ():
                        numbers = wanted.partition_indexes
                        partitions = (TopicPartition(wanted.name, number) for number in numbers)
                        self._witness.asked(self._who, partitions)
            case Request(message=OffsetCommitRequest() as commit):
                for topic in commit.topics:
                    for part in topic.partitions:
                        partition = TopicPartition(topic.name, part.partition_index)
                        self._witness.committed(partition, part.committed_offset, self._who)


def _seen(record: object) -> Seen:
    assert isinstance(record, ConsumerRecord)
    assert record.value is not None
    return Seen(TopicPartition(record.topic, record.partition), record.offset, record.value)
