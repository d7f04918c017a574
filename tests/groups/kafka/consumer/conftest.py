"""Groups of the new protocol in virtual time: a world of topics, a store in memory, clients that do as they are told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka import flapping
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Cause, Effects, Joined, Left, Replied
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

GROUP = "g"
NOW = 1_700_000_000_000
BEAT_MS = 5_000
ASKER = Asker("app", "/10.0.0.1", 1)


class World:
    """A `TopicsView`. Topics that are made again have another id; `label` tells them apart."""

    def __init__(self, **topics: int) -> None:
        self._topics = topics
        self._deleted: dict[str, int] = {}
        self.version = 0

    def set(self, topic: str, partitions: int) -> None:
        """Make a topic, or give it more partitions; 0 deletes it."""
        self._topics[topic] = partitions
        if not partitions:
            del self._topics[topic]
            self._deleted[topic] = self._deleted.get(topic, 0) + 1
        self.version += 1

    def label(self, topic: str) -> str:
        """The topic's name, with # and a number if there were others of that name before."""
        times = self._deleted.get(topic, 0)
        return f"{topic}#{times}" if times else topic

    def latest_label(self, topic: str) -> str:
        """The label of the topic of this name that is there, or was deleted last.

        A `former_name` has the id of its topic.
        """
        _, is_former, topic_id = topic.partition("\0")
        if is_former:
            return label_of(bytes.fromhex(topic_id))
        times = self._deleted.get(topic, 0) - (topic not in self._topics)
        return f"{topic}#{times}" if times else topic

    def partitions(self, topic: str) -> int:
        return self._topics.get(topic, 0)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def id_of(self, topic: str) -> bytes:
        return id_of(self.label(topic)) if topic in self._topics else NO_ID

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self._topics if self.id_of(name) == topic_id), None)


def id_of(label: str) -> bytes:
    return label.encode().ljust(16, b"\0")


def label_of(topic_id: bytes) -> str:
    return topic_id.rstrip(b"\0").decode()


def of(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def told(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """As a request names them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [TopicPartitions(id_of(topic), numbers) for topic, numbers in topics.items()]


class Rig:
    """A coordinator with one group, `GROUP`, and the clock."""

    def __init__(self, world: World | None = None, **config: int | str) -> None:
        self.world = world or World(t=4)
        usual = {
            "offsets_retention_check_interval_ms": 10
            ** 12,  # an empty group that expires begins anew
            "group_consumer_migration_policy": "bidirectional",
            "group_join_window_max_ms": 0,  # each join has its effect at once
        }
        self.config = KafkaConfig(**usual | config)  # type: ignore[arg-type]
        self.disk = MemoryDisk()
        self.now = NOW
        self.rng = random.Random(848)
        self.asker = ASKER
        self.effects: Effects = []
        self.noted = 0
        """How many of them have been looked at."""
        self.links = 1_000
        self.replies: dict[object, ApiMessage] = {}
        """Answers to requests of the classic protocol that are yet to be read, by their handles."""
        self.start()

    def start(self) -> None:
        self.groups = CoordinatedGroups()
        self.store = Store(self.disk, StoreConfig())
        self.store.open(self.now)
        table = self.store.table("kafka_consumer_groups")
        self.coordinator = Coordinator(
            self.config,
            self.groups,
            self.world,
            self.store.table("kafka_groups"),
            self.store.table("kafka_offsets"),
            self.rng,
            self.now,
        )
        self.consumers = ConsumerGroups(
            self.config, self.world, self.groups, table, self.rng, self.coordinator
        )
        self.consumers.load(self.now)

    def asker_of(self, client_id: str) -> Asker:
        """A client for `asker`."""
        return Asker(client_id, "/10.0.0.1", 1)

    def restart(self) -> None:
        """The process dies without a word, and another one takes over the disk."""
        self.disk = self.disk.copy()
        self.start()

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.get(GROUP)
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def causes(self) -> list[str]:
        return [bump.cause.text for bump in self.group.bumps]

    @property
    def last_cause(self) -> Cause:
        return self.group.bumps[-1].cause

    def ask(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        response = self.consumers.heartbeat(request, version, self.asker, self.now, self.effects)
        assert response is not None
        self.took([])
        return response

    def new_link(self) -> int:
        """Return the number of a new connection."""
        self.links += 1
        return self.links

    def wait(
        self,
        member: str,
        epoch: int,
        *,
        link: int,
        software: str = "",
        instance: str | None = None,
    ) -> object:
        """Send a heartbeat without news, which may wait; its handle."""
        request = ConsumerGroupHeartbeatRequest(GROUP, member, epoch, instance)
        handle = object()
        asker = Asker("app", "/10.0.0.1", link, software)
        response = self.consumers.heartbeat(request, 1, asker, self.now, self.effects, handle)
        if response is not None:
            self.effects.append(Replied(handle, response))
        self.took([])
        return handle

    def waited(self, handle: object) -> ConsumerGroupHeartbeatResponse | None:
        """The answer to a heartbeat; None while it waits."""
        self.took([])
        found = self.replies.get(handle)
        assert found is None or isinstance(found, ConsumerGroupHeartbeatResponse)
        return found

    def took(self, effects: Effects) -> None:
        """Sort out what the coordinators did, and check them."""
        self.effects += effects
        self.consumers.wake(self.now, self.effects)
        for effect in self.effects:
            if isinstance(effect, Replied):
                assert effect.handle not in self.replies, "answered twice"
                self.replies[effect.handle] = effect.message
        told: Effects = []
        for effect in self.effects[self.noted :]:
            if isinstance(effect, Joined):
                flapping.joined(self.coordinator.flapping, effect, self.now, told)
            elif isinstance(effect, Left):
                flapping.left(self.coordinator.flapping, effect, self.now)
        self.effects = [one for one in self.effects if not isinstance(one, Replied)]
        self.noted = len(self.effects)
        self.consumers.check()
        self.coordinator.check()

    def join(
        self, member: str, topics: Sequence[str] | None = ("t",), version: int = 1, **fields: object
    ) -> ConsumerGroupHeartbeatResponse:
        return self.ask(join_request(member, topics, **fields), version)

    def beat(
        self,
        member: str,
        epoch: int,
        owned: Iterable[TopicPartition] | None = None,
        **fields: object,
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            GROUP, member, epoch, topic_partitions=None if owned is None else told(owned)
        )
        return self.ask(msgspec.structs.replace(request, **fields))

    def pass_time(self, ms: int) -> None:
        """Let timers fire at their times on the way."""
        end = self.now + ms
        while (at := self.next_at) is not None and at <= end:
            self.now = max(self.now, at)
            self.consumers.due(self.now, self.effects)
            self.coordinator.due(self.now, self.effects)
            self.took([])
            assert self.next_at is None or self.next_at > self.now
        self.now = end

    @property
    def next_at(self) -> int | None:
        times = (self.consumers.next_at, self.coordinator.next_at)
        return min((at for at in times if at is not None), default=None)


def join_request(
    member: str, topics: Sequence[str] | None = ("t",), **fields: object
) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        GROUP,
        member,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=[],
    )
    return msgspec.structs.replace(request, **fields)


def assigned(response: ConsumerGroupHeartbeatResponse) -> set[TopicPartition] | None:
    """What a response tells its member to read; None where it tells nothing."""
    assert response.error_code == ErrorCode.NONE, response.error_message
    if response.assignment is None:
        return None
    return {
        TopicPartition(label_of(part.topic_id), partition)
        for part in response.assignment.topic_partitions
        for partition in part.partitions
    }


class Client:
    """A member as a client library keeps it: its epoch, and what it reads.

    `lazy`: it reads on what it should give up until `finish`.
    """

    def __init__(
        self,
        rig: Rig,
        member_id: str,
        topics: Sequence[str],
        *,
        instance: str | None = None,
        assignor: str | None = None,
        lazy: bool = False,
    ) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topics = list(topics)
        self.instance = instance
        self.assignor = assignor
        self.lazy = lazy
        self.epoch = 0
        self.owned: set[TopicPartition] = set()
        self.given: set[TopicPartition] | None = None
        self.full = False
        self.codes: list[int] = []
        self.link = rig.new_link()
        self.waiting: object | None = None
        """The handle of a heartbeat that may wait, and whose answer was not read yet."""

    def wait(self) -> None:
        """Send a heartbeat without news, which may wait, unless one already does."""
        if self.waiting is None and self.epoch and not self.full:
            self.waiting = self.rig.wait(
                self.member_id, self.epoch, link=self.link, instance=self.instance
            )

    def read(self) -> None:
        """Take in the answer to the heartbeat that waits, if there is one by now."""
        response = None if self.waiting is None else self.rig.waited(self.waiting)
        if response is not None:
            self.waiting = None
            self.heard(response)

    def reconnect(self, *, known: bool) -> None:
        """Lose the connection, with the answer that waits. `known`: to the broker as well."""
        if known:
            self.rig.consumers.closed(self.link, self.rig.now, self.rig.effects)
            self.rig.took([])
        self.link = self.rig.new_link()
        self.waiting, self.full = None, True

    def beat(self, *, lost: bool = False, silent: bool = False) -> None:
        """One heartbeat. `lost`: the answer does not arrive; `silent`: it does not say what it owns.

        One that waits is released, and its answer comes first.
        """
        if self.waiting is not None:
            self.rig.consumers.released(self.link, self.rig.now, self.rig.effects)
            self.read()
            assert self.waiting is None
        joins = self.epoch == 0
        full = joins or self.full
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            self.member_id,
            self.epoch,
            self.instance,
            None,
            60_000 if full else -1,
            self.topics if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=None if silent and not full else told(self.owned),
        )
        response = self.rig.ask(request)
        if lost:
            self.full = True
            return
        self.full = False
        self.heard(response)

    def heard(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Act on an answer."""
        self.codes.append(response.error_code)
        if response.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.epoch, self.owned, self.given = 0, set(), None
            return
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert response.error_code == ErrorCode.NONE, response.error_message
        assert response.member_epoch >= self.epoch
        self.epoch = response.member_epoch
        given = assigned(response)
        if given is not None:
            self.given = given
            if not self.lazy or self.owned <= given:
                self.finish()

    def finish(self) -> None:
        """It has given up what it was to, and takes up what is new."""
        if self.given is not None:
            self.owned = self.given

    def resubscribe(self, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self.full = True

    def leave(self) -> None:
        if self.epoch:
            epoch = -1
            self.rig.ask(ConsumerGroupHeartbeatRequest(GROUP, self.member_id, epoch, self.instance))
        self.epoch, self.owned, self.given = 0, set(), None
