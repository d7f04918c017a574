"""Streams groups in virtual time: topics, a store in memory, and threads of applications that do as they are told."""

from __future__ import annotations

import random
from collections.abc import Iterable

from msgspec.structs import replace
from tests.groups.kafka.consumer.conftest import World

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Effects, Replied
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.groups.kafka.streams.group import StreamsGroup
from steelyard.groups.kafka.streams.groups import StreamsGroups
from steelyard.groups.kafka.waiting import JAVA
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

GROUP = "app"
NOW = 1_700_000_000_000
BEAT_MS = 5_000
ASKER = Asker("client", "/10.0.0.1", 1)

COMPACTED = [KeyValue("cleanup.policy", "compact")]

READS = Subtopology("0", ["in"], repartition_sink_topics=["app-words-repartition"])
COUNTS = Subtopology(
    "1",
    repartition_source_topics=[TopicInfo("app-words-repartition")],
    state_changelog_topics=[TopicInfo("app-counts-changelog", topic_configs=COMPACTED)],
    copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
)
WORD_COUNT = Topology(0, [READS, COUNTS])
"""As Kafka Streams sends it of a word count: two subtopologies with a repartition topic between them."""

INTERNAL = ("app-words-repartition", "app-counts-changelog")


def tasks(text: str) -> frozenset[TaskId]:
    """Tasks as Kafka Streams writes them: 0_1."""
    pairs = (word.split("_") for word in text.split())
    return frozenset(TaskId(name, int(number)) for name, number in pairs)


def told(owned: Iterable[TaskId]) -> list[TaskIds]:
    """As a request names them."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(owned):
        found.setdefault(name, []).append(number)
    return [TaskIds(name, numbers) for name, numbers in found.items()]


def named(given: Iterable[TaskIds]) -> frozenset[TaskId]:
    return frozenset(
        TaskId(each.subtopology_id, number) for each in given for number in each.partitions
    )


class Thread:
    """One member, which does what its coordinator tells it: it runs its tasks, and reports them when they change."""

    def __init__(self, rig: Rig, member_id: str, process: str, endpoint: Endpoint | None) -> None:
        self.rig, self.member_id, self.process, self.endpoint = rig, member_id, process, endpoint
        self.epoch = 0
        self.active: frozenset[TaskId] = frozenset()
        self.standby: frozenset[TaskId] = frozenset()
        self.reported: tuple[frozenset[TaskId], frozenset[TaskId]] | None = None
        self.last = StreamsGroupHeartbeatResponse()

    def request(self, **changes: object) -> StreamsGroupHeartbeatRequest:
        request = StreamsGroupHeartbeatRequest(GROUP, self.member_id, self.epoch)
        owned = (self.active, self.standby)
        if self.epoch == 0:
            request = replace(
                request,
                rebalance_timeout_ms=10_000,
                topology=self.rig.topology,
                process_id=self.process,
                user_endpoint=self.endpoint,
                active_tasks=(),
                standby_tasks=(),
                warmup_tasks=(),
            )
        elif owned != self.reported:
            active, standby = map(told, owned)
            request = replace(request, active_tasks=active, standby_tasks=standby, warmup_tasks=())
        return replace(request, **changes)

    def beat(self, *, lost: bool = False, **changes: object) -> StreamsGroupHeartbeatResponse:
        """A heartbeat; with `lost` the answer does not arrive, and the next one says everything."""
        response = self.rig.ask(self.request(**changes))
        if lost:
            self.reported = None
            return response
        self.take(response)
        return response

    def take(self, response: StreamsGroupHeartbeatResponse) -> None:
        """Do what an answer says. After any error the next heartbeat tells all tasks."""
        if response.error_code:
            self.reported = None
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = 0
            self.active = self.standby = frozenset()
        elif not response.error_code:
            self.reported = (self.active, self.standby)
            self.epoch, self.last = response.member_epoch, response
            if response.active_tasks is not None and response.standby_tasks is not None:
                self.active = named(response.active_tasks)
                self.standby = named(response.standby_tasks)

    def leave(self, **changes: object) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(GROUP, self.member_id, -1)
        return self.rig.ask(replace(request, **changes))

    def wait(self, *, link: int = 1, software: str = JAVA, **changes: object) -> object:
        """Send a heartbeat, whose answer may wait; its handle."""
        handle = object()
        asker = Asker("client", "/10.0.0.1", link, software)
        rig = self.rig
        result = rig.streams.heartbeat(self.request(**changes), asker, rig.now, rig.effects, handle)
        if result is not None:
            rig.effects.append(Replied(handle, result.response))
        rig.wake()
        return handle

    @property
    def statuses(self) -> list[int]:
        return [each.status_code for each in self.last.status or ()]


class Rig:
    """A coordinator with one group, `GROUP`, and the clock."""

    def __init__(self, world: World | None = None, **config: int) -> None:
        self.world = world or World(**{"in": 2, **dict.fromkeys(INTERNAL, 2)})
        usual = {
            "offsets_retention_check_interval_ms": 10**12,
            "group_streams_initial_rebalance_delay_ms": 0,
            "group_streams_assignment_interval_ms": 0,
        }
        self.config = KafkaConfig(**usual | config)  # type: ignore[arg-type]
        self.topology = WORD_COUNT
        self.disk = MemoryDisk()
        self.now = NOW
        self.effects: Effects = []
        self.threads: dict[str, Thread] = {}
        self.start()

    def start(self) -> None:
        self.groups = CoordinatedGroups()
        self.store = Store(self.disk, StoreConfig())
        self.store.open(self.now)
        self.coordinator = Coordinator(
            self.config,
            self.groups,
            self.world,
            self.store.table("kafka_groups"),
            self.store.table("kafka_offsets"),
            random.Random(1071),
            self.now,
        )
        self.table = self.store.table("kafka_streams_groups")
        self.streams = StreamsGroups(self.config, self.world, self.groups, self.table)
        self.streams.load(self.now)

    def restart(self) -> None:
        """The process dies without a word, and another one takes over the disk."""
        self.disk = self.disk.copy()
        self.start()

    @property
    def group(self) -> StreamsGroup:
        group = self.groups.get(GROUP)
        assert isinstance(group, StreamsGroup)
        return group

    def state(self) -> str:
        return self.group.state

    @property
    def causes(self) -> list[str]:
        return [bump.cause.text for bump in self.group.bumps]

    def ask(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        result = self.streams.heartbeat(request, ASKER, self.now, self.effects)
        assert result is not None
        self.wake()
        self.missing = dict(result.missing)
        return result.response

    def wake(self) -> None:
        self.streams.wake(self.now, self.effects)
        self.streams.check()

    def answer(self, handle: object) -> StreamsGroupHeartbeatResponse | None:
        """The answer to a heartbeat of `Thread.wait`; None while it waits."""
        found = [one for one in self.effects if isinstance(one, Replied) and one.handle is handle]
        if not found:
            return None
        (reply,) = found
        assert isinstance(reply.message, StreamsGroupHeartbeatResponse)
        return reply.message

    def thread(self, name: str, endpoint: Endpoint | None = None) -> Thread:
        """The thread `process.thread`."""
        if name not in self.threads:
            self.threads[name] = Thread(self, name, name.partition(".")[0], endpoint)
        return self.threads[name]

    def join(self, name: str, endpoint: Endpoint | None = None) -> Thread:
        thread = self.thread(name, endpoint)
        response = thread.beat()
        assert not response.error_code, response
        return thread

    def settle(self) -> None:
        """All threads send heartbeats until nothing changes any more."""
        for _ in range(20):
            before = [(one.epoch, one.active, one.standby) for one in self.threads.values()]
            for thread in self.threads.values():
                thread.beat()
            if before == [(one.epoch, one.active, one.standby) for one in self.threads.values()]:
                return
        raise AssertionError("it does not settle")

    def wait(self, time_ms: int) -> None:
        """Time passes, without a heartbeat."""
        end = self.now + time_ms
        while self.streams.next_at is not None and self.streams.next_at <= end:
            self.now = max(self.now, self.streams.next_at)
            self.streams.due(self.now, self.effects)
            self.wake()
        self.now = end
