"""A coordinator in virtual time, with clients that ask it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka import flapping
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Effect, Effects, Joined, Left, Replied
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.groups.kafka.report import KafkaAwaited, report_classic
from steelyard.nodes.broker.turns import finish
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

START = 1_700_000_000_000
GROUP = "g"
TOPIC = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Topics:
    """A `TopicsView`."""

    def __init__(self) -> None:
        self.version = 1
        self.counts = {TOPIC: 4, "invoices": 2}

    def partitions(self, topic: str) -> int:
        return self.counts.get(topic, 0)

    def names(self) -> Iterable[str]:
        return list(self.counts)

    def id_of(self, topic: str) -> bytes:
        return topic.encode().ljust(16, b".") if topic in self.counts else NO_ID

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if self.id_of(name) == topic_id), None)


def subscription(topics: Sequence[str] = (TOPIC,), owned: Sequence[int] = ()) -> bytes:
    held = (TopicPartitions(TOPIC, tuple(owned)),) if owned else ()
    return write_subscription(ConsumerProtocolSubscription(tuple(topics), None, held))


def assignment(partitions: Sequence[int]) -> bytes:
    return write_assignment(
        ConsumerProtocolAssignment((TopicPartitions(TOPIC, tuple(partitions)),))
    )


class Seen(NamedTuple):
    """How a classic group stands. `trigger`, `cause`: of the latest rebalance."""

    state: str
    since: int
    generation: int
    protocol: str
    leader: str
    members: tuple[str, ...]
    trigger: str
    cause: str
    waiting: tuple[KafkaAwaited, ...]


class Rig:
    """`replies`: by the handles of requests. Every event is followed by a check of all invariants."""

    def __init__(
        self, disk: MemoryDisk | None = None, *, delayed_answers: bool = True, **settings: int
    ) -> None:
        self.delayed_answers = delayed_answers
        self.links: dict[str, int] = {}
        usual = {"group_join_window_max_ms": 0}  # each join has its effect at once
        self.config = KafkaConfig(**usual | settings)  # type: ignore[arg-type]
        self.topics = Topics()
        self.disk = disk or MemoryDisk()
        self.now = START
        self.handles = 0
        self.replies: dict[object, ApiMessage] = {}
        self.told: list[LogLine] = []
        self.events: list[Effect] = []
        self.rng = random.Random(1)
        self.restart()

    def restart(self) -> None:
        """A new coordinator on what the disk holds; nobody gets an answer to what was parked."""
        self.store = Store(self.disk, StoreConfig())
        self.store.open(self.now)
        self.groups = CoordinatedGroups()
        self.coordinator = Coordinator(
            self.config,
            self.groups,
            self.topics,
            self.store.table("kafka_groups"),
            self.store.table("kafka_offsets"),
            self.rng,
            self.now,
            delayed_answers=self.delayed_answers,
        )
        self.coordinator.check()

    def took(self, effects: Effects) -> None:
        self.coordinator.check()
        told: Effects = []
        for effect in effects:
            match effect:
                case Replied(handle, message):
                    assert handle not in self.replies, f"{handle} was answered twice"
                    self.replies[handle] = message
                case LogLine():
                    self.told.append(effect)
                case Joined():
                    self.events.append(effect)
                    flapping.joined(self.coordinator.flapping, effect, self.now, told)
                case Left():
                    self.events.append(effect)
                    flapping.left(self.coordinator.flapping, effect, self.now)
                case _:
                    self.events.append(effect)
        self.told += [one for one in told if isinstance(one, LogLine)]
        self.coordinator.flapping.check()

    def handle(self) -> int:
        self.handles += 1
        return self.handles

    # -- time ------------------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        """Let time pass, with everything that falls due meanwhile."""
        end = self.now + ms
        while (at := self.coordinator.next_at) is not None and at <= end:
            self.now = max(self.now, at)
            effects: Effects = []
            self.coordinator.due(self.now, effects)
            self.took(effects)
        self.now = end

    # -- requests --------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        version: int = 9,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session: int = SESSION_MS,
        rebalance: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        reason: str | None = None,
        client: str = "client",
        host: str = "/10.0.0.1",
        software: str = "",
        link: int = 1,
    ) -> int:
        """Sends JoinGroup; its handle."""
        wanted = {"range": subscription()} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=tuple(JoinGroupRequestProtocol(*pair) for pair in wanted.items()),
            reason=reason,
        )
        handle = self.handle()
        effects: Effects = []
        asker = Asker(client, host, link, software)
        self.coordinator.join(request, version, asker, handle, self.now, effects)
        self.took(effects)
        return handle

    def joined(self, handle: object) -> JoinGroupResponse:
        """The answer to a JoinGroup, which is there."""
        reply = self.replies[handle]
        assert isinstance(reply, JoinGroupResponse)
        return reply

    def join_error(self, handle: object) -> ErrorCode:
        return ErrorCode(self.joined(handle).error_code)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        version: int = 4,
        software: str = "",
    ) -> int:
        """Sends SyncGroup; its handle."""
        request = SyncGroupRequest(
            group,
            generation,
            member_id,
            instance,
            protocol_type,
            protocol,
            tuple(SyncGroupRequestAssignment(*pair) for pair in (assignments or {}).items()),
        )
        handle = self.handle()
        effects: Effects = []
        asker = Asker("client", "/10.0.0.1", self.link_of(member_id), software)
        self.coordinator.sync(request, version, asker, handle, self.now, effects)
        self.took(effects)
        return handle

    def synced(self, handle: object) -> SyncGroupResponse:
        reply = self.replies[handle]
        assert isinstance(reply, SyncGroupResponse)
        return reply

    def sync_error(self, handle: object) -> ErrorCode:
        return ErrorCode(self.synced(handle).error_code)

    def beat(
        self, member_id: str, generation: int, instance: str | None = None, group: str = GROUP
    ) -> ErrorCode:
        """A Heartbeat of a client that does not wait; its error."""
        reply = self.replies[self.wait(member_id, generation, instance, group, software="sarama")]
        assert isinstance(reply, HeartbeatResponse)
        return ErrorCode(reply.error_code)

    def wait(
        self,
        member_id: str,
        generation: int,
        instance: str | None = None,
        group: str = GROUP,
        *,
        software: str = "",
        version: int = 4,
        link: int | None = None,
    ) -> int:
        """Sends a Heartbeat, which may wait; its handle."""
        request = HeartbeatRequest(group, generation, member_id, instance)
        handle = self.handle()
        effects: Effects = []
        number = self.link_of(member_id) if link is None else link
        asker = Asker("client", "/10.0.0.1", number, software)
        self.coordinator.heartbeat(request, version, asker, handle, self.now, effects)
        self.took(effects)
        return handle

    def waited(self, handle: object) -> ErrorCode | None:
        """The error of a Heartbeat or SyncGroup; None while it waits."""
        reply = self.replies.get(handle)
        assert reply is None or isinstance(reply, HeartbeatResponse | SyncGroupResponse)
        return None if reply is None else ErrorCode(reply.error_code)

    def link_of(self, member_id: str) -> int:
        """The connection of a member."""
        return self.links.setdefault(member_id, 100 + len(self.links))

    def release(self, link: int) -> None:
        """Something else comes on a connection."""
        effects: Effects = []
        self.coordinator.released(link, self.now, effects)
        self.took(effects)

    def close(self, link: int) -> None:
        """A connection is closed."""
        effects: Effects = []
        self.coordinator.closed(link, self.now, effects)
        self.took(effects)

    def leave(
        self, *members: MemberIdentity | str, group: str = GROUP, version: int = 5
    ) -> LeaveGroupResponse:
        named = tuple(
            MemberIdentity(member) if isinstance(member, str) else member for member in members
        )
        request = LeaveGroupRequest(group, named[0].member_id, named)
        effects: Effects = []
        answer = self.coordinator.leave(request, version, self.now, effects)
        self.took(effects)
        return answer

    def commit(
        self,
        offset: int = 5,
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        version: int = 9,
        topic: str = TOPIC,
        partition: int = 0,
        metadata: str | None = "",
        instance: str | None = None,
        retention: int = -1,
    ) -> ErrorCode:
        """OffsetCommit of one partition; its error."""
        one = OffsetCommitRequestPartition(partition, offset, 3, metadata)
        named = OffsetCommitRequestTopic(topic, self.topics.id_of(topic), (one,))
        request = OffsetCommitRequest(group, generation, member_id, instance, retention, (named,))
        effects: Effects = []
        answer = self.coordinator.commits.commit(request, version, self.now, effects)
        self.took(effects)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetch(
        self, partition: int = 0, *, group: str = GROUP, topic: str = TOPIC, stable: bool = False
    ) -> tuple[int, ErrorCode]:
        """OffsetFetch of one partition: its offset, and its error."""
        asked = OffsetFetchRequestGroup(
            group, topics=(OffsetFetchRequestTopic(topic, NO_ID, (partition,)),)
        )
        request = OffsetFetchRequest(groups=(asked,), require_stable=stable)
        answer = finish(self.coordinator.fetches.fetch(request, 9, {}))
        found = answer.groups[0].topics[0].partitions[0]
        return found.committed_offset, ErrorCode(found.error_code)

    # -- whole groups ----------------------------------------------------------------------------

    def stable(self, count: int = 2, *, group: str = GROUP, **settings: object) -> list[str]:
        """A stable group of so many dynamic members, the leader first; orders/i goes to member i."""
        handles = []
        for number in range(count):
            wanted = self.join(group=group, client=f"client-{number}", **settings)  # type: ignore[arg-type]
            member_id = self.joined(wanted).member_id
            handles.append(
                self.join(member_id, group=group, client=f"client-{number}", **settings)  # type: ignore[arg-type]
            )
        self.run(self.config.group_initial_rebalance_delay_ms * 2)
        members = [self.joined(handle).member_id for handle in handles]
        self.settle(members, group=group)
        return members

    def settle(self, members: Sequence[str], *, group: str = GROUP, software: str = "") -> None:
        """All members, the leader first, sync."""
        generation = self.state(group).generation
        shares = {member: assignment([number]) for number, member in enumerate(members)}
        followers = [
            self.sync(member, generation, group=group, software=software) for member in members[1:]
        ]
        lead = self.sync(members[0], generation, shares, group=group, software=software)
        for handle in (lead, *followers):
            assert self.sync_error(handle) is ErrorCode.NONE

    def state(self, group: str = GROUP) -> Seen:
        seen = self.seen(group)
        assert seen is not None
        return seen

    def seen(self, group_id: str = GROUP) -> Seen | None:
        """None where there is no such group of the classic kind."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return None
        report = report_classic(group, "")
        members = tuple(member.member_id for member in report.members)
        last = report.rebalances[-1] if report.rebalances else None
        return Seen(
            report.state,
            group.since,
            report.generation,
            report.assignor,
            report.leader,
            members,
            last.trigger if last else "",
            last.cause if last else "",
            report.awaited,
        )
