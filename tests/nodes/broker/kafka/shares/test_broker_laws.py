"""The laws of share groups at a whole broker, whatever its members and the machine do.

Members fetch, acknowledge, go and come back; the broker is killed, loses power (with flush=sync), has a full
disk. 1. A record that a member has is given to nobody else before its lock ends. 2. A record whose acceptance
or rejection was answered is never delivered again. 3. In the end every record was
delivered to somebody who accepted or rejected it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.nodes.broker.kafka.conftest import batch
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.shares.members import (
    ACCEPT,
    REJECT,
    RELEASE,
    TOPIC,
    ShareMember,
    ShareRig,
    acquired,
    configure,
)

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import StorageError
from steelyard.nodes.broker.kafka.shares import in_flight, stored
from steelyard.nodes.broker.kafka.shares.in_flight import InFlight
from steelyard.nodes.seam import Closed
from steelyard.wire.kafka.messages.data import ProduceResponse
from steelyard.wire.kafka.messages.share_data import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
)

LOCK_MS = 2_000
PARTITIONS = 2
STEPS = 120

Record = tuple[int, int]
"""A partition and an offset."""


class History:
    """One history of a group, drawn from a seed. Breaking a law fails an assertion."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.is_sync = self.rng.random() < 0.5
        config = BrokerConfig(kafka=KafkaConfig(), flush="sync" if self.is_sync else "async")
        self.rig = ShareRig(config)
        self.rig.topic_id = self.rig.create_topic(TOPIC, PARTITIONS)
        configure(
            self.rig,
            "g",
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit=25,
        )
        self.members: dict[str, ShareMember] = {}
        self.serial = 0
        self.held: dict[Record, tuple[str, int]] = {}
        """Who has a record, and until when."""
        self.answered: set[Record] = set()
        """Records of which an acceptance or a rejection was answered."""
        self.stored: set[Record] = set()

    def run(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self.produce, 20),
            (self.fetch, 40),
            (self.acknowledge, 40),
            (self.wait, 15),
            (self.go, 5),
            (self.kill, 4),
            (self.fill_the_disk, 4),
        ]
        if self.is_sync:
            steps.append((self.lose_power, 3))
        for _ in range(STEPS):
            (step,) = self.rng.choices([each for each, _ in steps], [each for _, each in steps])
            step()
        self.end()

    # -- steps -------------------------------------------------------------------------------------

    def produce(self) -> None:
        partition, count = self.rng.randrange(PARTITIONS), self.rng.randint(1, 8)
        request = producing(TOPIC, partition, batch(*[b"x"] * count))
        answer = self.rig.ask(request, 9, ProduceResponse)
        part = answer.responses[0].partition_responses[0]
        if part.error_code:  # the disk was full just now, and the broker waits a little
            return
        first = part.base_offset
        self.stored |= {(partition, first + number) for number in range(count)}

    def member(self) -> ShareMember:
        """A member with a session, an existing one or a new one."""
        if len(self.members) < 3:
            self.serial += 1
            name = f"m{self.serial}"
            partitions = range(PARTITIONS)
            self.members[name] = ShareMember(self.rig, self.rig.topic_id, name, "g", partitions)
        return self.members[self.rng.choice(sorted(self.members))]

    def fetch(self) -> None:
        member = self.member()
        request = member.request(
            max_records=self.rng.randint(1, 12), share_acquire_mode=self.rng.randrange(2)
        )
        answer = self.rig.ask(request, 2, ShareFetchResponse, link=member.link)
        if answer.error_code:
            self.forget(member)
            return
        self.forget_expired()
        for topic in answer.responses:
            for part in topic.partitions:
                for first, last, _ in acquired(part):
                    for offset in range(first, last + 1):
                        self.gets(member.name, (part.partition_index, offset))

    def gets(self, member: str, record: Record) -> None:
        assert record not in self.held, f"{record} is given to {member}, {self.held[record]} has it"
        assert record not in self.answered, f"{record} comes again, it is finished"
        self.held[record] = (member, self.rig.now + LOCK_MS)

    def acknowledge(self) -> None:
        self.forget_expired()
        if not self.held:
            return
        partition, first = self.rng.choice(sorted(self.held))
        name = self.held[partition, first][0]
        last = first
        while self.held.get((partition, last + 1), ("", 0))[0] == name and self.rng.random() < 0.8:
            last += 1
        kind = self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT))
        if self.tell(self.members[name], partition, first, last, kind):
            for offset in range(first, last + 1):
                del self.held[partition, offset]
                if kind != RELEASE:
                    self.answered.add((partition, offset))

    def tell(self, member: ShareMember, partition: int, first: int, last: int, kind: int) -> bool:
        """Acknowledge; whether that was answered well."""
        topics = member.naming({partition: [(first, last, kind)]})
        request = ShareAcknowledgeRequest("g", member.name, member.epoch, topics=topics)
        answer = self.rig.ask(request, 2, ShareAcknowledgeResponse, link=member.link)
        assert not answer.error_code
        member.epoch += 1
        return not answer.responses[0].partitions[0].error_code

    def wait(self) -> None:
        self.rig.advance(self.rng.randint(1, LOCK_MS))

    def go(self) -> None:
        """A member's connection ends."""
        if self.members:
            member = self.members[self.rng.choice(sorted(self.members))]
            self.rig.event(Closed(member.link, "gone"))
            self.forget(member)

    def kill(self) -> None:
        self.rig.restart()
        self.members, self.held = {}, {}

    def lose_power(self) -> None:
        self.rig.lose_power()
        self.rig.link = self.rig.connect()
        self.members, self.held = {}, {}

    def fill_the_disk(self) -> None:
        """For one acknowledgement, and for time-outs."""
        self.rig.disk.room_bytes = 0
        self.acknowledge()
        self.wait()
        self.rig.disk.room_bytes = None

    def forget(self, member: ShareMember) -> None:
        self.members.pop(member.name, None)
        self.held = {one: held for one, held in self.held.items() if held[0] != member.name}

    def forget_expired(self) -> None:
        self.held = {one: held for one, held in self.held.items() if held[1] > self.rig.now}

    def end(self) -> None:
        """One member reads everything that is left."""
        for member in list(self.members.values()):
            self.rig.event(Closed(member.link, "gone"))
            self.forget(member)
        for _ in range(4 * len(self.stored) + 40):
            self.fetch()
            for partition, offset in sorted(self.held):
                member = self.members[self.held[partition, offset][0]]
                assert self.tell(member, partition, offset, offset, ACCEPT)
                self.answered.add((partition, offset))
            self.held = {}
            if self.answered >= self.stored:
                return
        raise AssertionError(f"never finished: {sorted(self.stored - self.answered)}")


@pytest.mark.parametrize("seed", range(40))
def test_histories(seed: int) -> None:
    History(seed).run()


# -- planted defects: the laws find them -----------------------------------------------------------


def fails(law: str) -> None:
    """One of the histories breaks this law."""

    def run_all() -> None:
        for seed in range(40):
            History(seed).run()

    with pytest.raises(AssertionError, match=law):
        run_all()


def test_what_is_not_stored_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored.SharePartitions, "store", lambda self, keys: None)
    fails("it is finished")


def test_a_lock_that_ends_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_early(first: int, last: int, member: str, locked_until: int) -> InFlight:
        return in_flight.fetched(first, last, member, locked_until - LOCK_MS // 2)

    monkeypatch.setattr("steelyard.nodes.broker.kafka.shares.share_partition.fetched", too_early)
    fails("has it")


def test_a_released_record_that_is_dropped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "steelyard.nodes.broker.kafka.shares.share_partition.SharePartition.next_offset",
        lambda self: self.end,
    )
    fails("never finished")


def test_a_refused_write_that_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored.SharePartitions.store

    def careless(self: stored.SharePartitions, keys: list[stored.ShareKey]) -> None:
        try:
            store(self, keys)
        except StorageError:
            return

    monkeypatch.setattr(stored.SharePartitions, "store", careless)
    fails("it is finished")
