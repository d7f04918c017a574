"""A client of the classic protocol in virtual time, in groups of either kind; eager: it gives up all to rejoin."""

from __future__ import annotations

from collections.abc import Sequence

from tests.groups.kafka.consumer.conftest import GROUP, Rig

from steelyard.groups.kafka.classic.joining import Join
from steelyard.groups.kafka.effects import Effects, Replied
from steelyard.groups.kafka.groups import Asker
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

SESSION_MS = 20_000
REBALANCE_MS = 30_000

OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


class ClassicClient:
    """`beat` does what is next: join, sync or a heartbeat. `errors`: all that it was told.

    `protocol`: the one that it expects the group to use; `protocols`: all that it supports.
    """

    def __init__(
        self,
        rig: Rig,
        name: str,
        topics: Sequence[str],
        *,
        instance: str | None = None,
        protocol: str = "range",
        protocols: Sequence[str] = (),
    ) -> None:
        self.rig = rig
        self.asker = Asker(name, "/10.0.0.2", rig.new_link())
        self.topics = list(topics)
        self.instance = instance
        self.protocol = protocol
        self.protocols = protocols or (protocol,)
        self.member_id = ""
        self.generation = -1
        self.owned: set[TopicPartition] = set()
        self.phase = "join"
        self.led: tuple[JoinGroupResponseMember, ...] = ()
        self.handle: object = None
        self.waiting: object = None
        """The handle of a heartbeat that may wait, and whose answer was not read yet."""
        self.errors: list[ErrorCode] = []

    # -- requests, as `GroupRequests` hands them on ----------------------------------------------

    def _put(self, effects: Effects) -> ApiMessage | None:
        """Note the answers to all clients; that to this one, if it is there."""
        self.rig.took(effects)
        return self.rig.replies.pop(self.handle, None)

    def join_group(
        self, member_id: str, version: int = 9, *, claims: Sequence[TopicPartitions] = ()
    ) -> JoinGroupResponse | None:
        """`claims`: what it reports to have, as members with cooperative assignors do."""
        subscription = ConsumerProtocolSubscription(self.topics, owned_partitions=list(claims))
        wanted = write_subscription(subscription)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=tuple(JoinGroupRequestProtocol(name, wanted) for name in self.protocols),
        )
        self.handle = object()
        effects: Effects = []
        members = self.rig.consumers.classic
        group = members.group(GROUP)
        answer = None
        if group is not None:
            join = Join(request, version, self.asker, self.handle)
            answer = members.join(group, join, self.rig.now, effects)
        if answer is None:
            words = (request, version, self.asker, self.handle)
            self.rig.coordinator.join(*words, self.rig.now, effects)
            found = self._put(effects)
            assert found is None or isinstance(found, JoinGroupResponse)
            return found
        self._put(effects)
        return answer

    def sync_group(self, generation: int) -> SyncGroupResponse | None:
        shares = _shares(self.led, self.rig) if self.led else {}
        request = SyncGroupRequest(
            GROUP,
            generation,
            self.member_id,
            self.instance,
            "consumer",
            self.protocol,
            tuple(SyncGroupRequestAssignment(*pair) for pair in shares.items()),
        )
        self.handle = object()
        members = self.rig.consumers.classic
        group = members.group(GROUP)
        if group is not None:
            return members.sync(group, request, self.rig.now)
        effects: Effects = []
        self.rig.coordinator.sync(request, 5, self.asker, self.handle, self.rig.now, effects)
        found = self._put(effects)
        assert found is None or isinstance(found, SyncGroupResponse)
        return found

    def send_heartbeat(self, generation: int, version: int = 4) -> object:
        """Send a heartbeat, which may wait; its handle."""
        request = HeartbeatRequest(GROUP, generation, self.member_id, self.instance)
        handle = object()
        effects: Effects = []
        members = self.rig.consumers.classic
        group = members.group(GROUP)
        words = (request, version, self.asker, handle, self.rig.now, effects)
        if group is None:
            self.rig.coordinator.heartbeat(*words)
        elif (error := members.heartbeat(group, *words)) is not None:
            effects.append(Replied(handle, HeartbeatResponse(error_code=error)))
        self.rig.took(effects)
        return handle

    def told(self, handle: object) -> ErrorCode | None:
        """The answer to a heartbeat, once; None while it waits."""
        found = self.rig.replies.pop(handle, None)
        assert found is None or isinstance(found, HeartbeatResponse)
        return None if found is None else ErrorCode(found.error_code)

    def release(self) -> None:
        """Another request comes on its link."""
        effects: Effects = []
        for groups in (self.rig.consumers, self.rig.coordinator):
            groups.released(self.asker.link, self.rig.now, effects)
        self.rig.took(effects)

    def heartbeat(self, generation: int) -> ErrorCode:
        """Send a heartbeat, and return its answer; another request follows at once."""
        handle = self.send_heartbeat(generation)
        self.release()
        error = self.told(handle)
        assert error is not None
        return error

    def leave(self) -> LeaveGroupResponse:
        self.release()
        leaver = MemberIdentity(self.member_id, self.instance)
        request = LeaveGroupRequest(GROUP, self.member_id, (leaver,))
        effects: Effects = []
        members = self.rig.consumers.classic
        group = members.group(GROUP)
        if group is not None:
            answer = members.leave(group, request, 5, self.rig.now, effects)
        else:
            answer = self.rig.coordinator.leave(request, 5, self.rig.now, effects)
        self._put(effects)
        return answer

    # -- what a client does ----------------------------------------------------------------------

    def wait(self) -> None:
        """Send a heartbeat that may wait, unless one already does."""
        if self.phase == "stable" and self.waiting is None:
            self.waiting = self.send_heartbeat(self.generation)

    def read(self) -> None:
        """Take in the answer to the heartbeat that waits, if there is one by now."""
        error = None if self.waiting is None else self.told(self.waiting)
        if error is not None:
            self.waiting = None
            self._heard(error)

    def beat(self) -> None:
        """One step. A heartbeat that waits is released, and its answer comes first."""
        if self.waiting is not None:
            self.release()
            self.read()
            assert self.waiting is None
        if self.phase == "join":
            self._join()
        if self.phase == "sync":
            self._sync()
        elif self.phase == "stable":
            self._heard(self.heartbeat(self.generation))

    def _join(self) -> None:
        answer = self.rig.replies.pop(self.handle, None) if self.handle is not None else None
        if answer is None and self.handle is not None:
            return  # it waits
        if answer is None:
            answer = self.join_group(self.member_id)
            if answer is None:
                return
        assert isinstance(answer, JoinGroupResponse)
        self.handle = None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif self._heard(error):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.led = tuple(answer.members)
            self.phase = "sync"

    def _sync(self) -> None:
        answer = self.rig.replies.pop(self.handle, None) if self.handle is not None else None
        if answer is None and self.handle is not None:
            return
        if answer is None:
            answer = self.sync_group(self.generation)
            if answer is None:
                return
        assert isinstance(answer, SyncGroupResponse)
        self.handle = None
        if self._heard(ErrorCode(answer.error_code)):
            self.owned = {
                TopicPartition(self.rig.world.label(topic.topic), number)
                for topic in read_assignment(answer.assignment).assigned_partitions
                for number in topic.partitions
            }
            self.phase = "stable"

    def _heard(self, error: ErrorCode) -> bool:
        """Whether all is well; otherwise it joins again, with nothing."""
        if error is ErrorCode.NONE:
            return True
        self.errors.append(error)
        if error in OUT:
            self.member_id, self.generation = "", -1
        elif error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise AssertionError("all clients have the same protocols")
        self.owned, self.phase, self.handle = set(), "join", None
        return False

    def reset(self) -> None:
        """The broker was restarted: what waited is lost."""
        self.handle = self.waiting = None


def _shares(members: Sequence[JoinGroupResponseMember], rig: Rig) -> dict[str, bytes]:
    """What a leader assigns: each partition in turn to the next of those who want its topic."""
    given: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
    wants = {one.member_id: set(read_subscription(one.metadata).topics) for one in members}
    for topic in sorted(set().union(*wants.values())):
        those = [one for one in given if topic in wants[one]]
        for number in range(rig.world.partitions(topic)):
            given[those[number % len(those)]].append(TopicPartition(topic, number))
    return {
        member_id: write_assignment(
            ConsumerProtocolAssignment(
                [
                    TopicPartitions(topic, numbers)
                    for topic, numbers in numbers_by_topic(sorted(held)).items()
                ]
            )
        )
        for member_id, held in given.items()
    }
