"""The consumer as a member of its group: carries out the orders of `groups.kafka.member`.

Partitions are revoked, and hooks of the application called, only while the application waits in a
poll or a call that leaves: it then processes no records of a partition that another member gets.
That poll returns nothing until this is done. The steps of each change, in order:

    Prepare   commit, if automatic; on_revoked, or on_lost; drop; Prepared
    Adopt     commit what goes; on_revoked; drop it; hold what comes; on_assigned; Adopted
    leaving   commit; on_revoked, or on_lost; drop; LeaveGroup, or the last heartbeat

The last step of each, by which the coordinator learns of it, waits for commits of the application
that are under way, if partitions are revoked: afterwards they would be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import KafkaError, SteelyardError
from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic.machine import ClassicMember
from steelyard.groups.kafka.member.consumer.machine import ConsumerMember
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.changes import Change, Move, Stage
from steelyard.nodes.consumer.kafka.commits import (
    LEAVE_MS_MAX,
    PREPARING,
    Commits,
    ConsumerGroupMetadata,
)
from steelyard.nodes.consumer.kafka.contract import (
    Assigned,
    Lost,
    MemberState,
    Revoked,
)
from steelyard.nodes.consumer.kafka.coordinator import CoordinatorSearch
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.nodes.consumer.kafka.metadata import DATA, Metadata
from steelyard.nodes.seam import Deliver, Effect, earliest
from steelyard.types import LogLine
from steelyard.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from steelyard.wire.kafka.messages.groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from steelyard.wire.kafka.schema import ApiMessage

_APIS = {
    JoinGroupRequest: JOIN_GROUP,
    SyncGroupRequest: SYNC_GROUP,
    HeartbeatRequest: HEARTBEAT,
    LeaveGroupRequest: LEAVE_GROUP,
    ConsumerGroupHeartbeatRequest: CONSUMER_GROUP_HEARTBEAT,
}

Member = ClassicMember | ConsumerMember

_COMMIT_MS_MAX = 5_000
"""Time limit of a rebalance for its commit."""


class MemberAsked(msgspec.Struct, frozen=True):
    """Purpose of a request of the member; `turn` is the member's, 0 for one that leaves."""

    turn: int


class Membership:
    """The member and its changes. `make_member`: creates a state machine for each subscription."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        make_member: Callable[[], Member],
        calls: KafkaCalls[object],
        metadata: Metadata,
        coordinator: CoordinatorSearch,
        holdings: Holdings,
        commits: Commits,
        *,
        hooks: bool,
    ) -> None:
        self.failed: KafkaError | None = None
        """Why this consumer is not a member; raised by the next poll."""
        self.active = False
        """Whether the partitions are assigned by the group, rather than by `Assign`."""
        self.member = make_member()
        self._config = config
        self._make_member = make_member
        self._calls = calls
        self._metadata = metadata
        self._coordinator = coordinator
        self._holdings = holdings
        self._commits = commits
        self._hooks = hooks
        self._tickets = count(1)
        self._change: Change | None = None
        self._leave_reason: str | None = None
        self._topics: tuple[str, ...] = ()
        self._needed: tuple[str, ...] | None = None
        self._seen_version = -1
        self._polling = False
        self._failure_heard = False
        """Whether the application was told why it is not a member, and has not polled since."""
        self._coordinator_known = False
        self._leaves = 0
        """Requests to leave without a response yet."""

    # -- what others may know ----------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """Return when to call `act` again."""
        if not self.active:
            return None
        until = None if self._change is None else self._change.until
        return earliest(self.member.due, until or None)

    @property
    def withholds(self) -> bool:
        """Return whether the poll must wait, because the assignment is about to change."""
        change = self._change
        if change is None or change.stage is Stage.WAITING:
            return False
        return self._is_felt(change)

    @property
    def leaving(self) -> bool:
        return self._leave_reason is not None or self._leaves > 0

    @property
    def joining(self) -> bool:
        """Return whether a JoinGroup or SyncGroup waits at the coordinator."""
        return self.member.is_joining

    @property
    def identity(self) -> ConsumerGroupMetadata:
        """Return the identity with which offsets are committed."""
        member = self.member
        if not self.active or member.generation < 0:
            return ConsumerGroupMetadata()
        return ConsumerGroupMetadata(
            member.generation, member.member_id, self._config.group_instance_id or None
        )

    @property
    def reader(self) -> ConsumerGroupMetadata:
        """Return the identity with which committed offsets are looked up.

        Classic members need none (OffsetFetchRequest.json: versions 9 and later, KIP-848).
        """
        is_named = self._config.group_protocol == "consumer"
        return self.identity if is_named else ConsumerGroupMetadata()

    def topics(self) -> set[str]:
        """Return the topics that must be known."""
        return {*self._topics, *(self._needed or ()), *self.member.watched}

    def describe(self) -> MemberState:
        member = self.member
        return MemberState(
            member.state.value,
            member.member_id,
            member.generation,
            member.protocol,
            member.leads,
            self._coordinator.address or "",
        )

    # -- what the application wants ----------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...], now: int, effects: list[Effect]) -> None:
        """Join as a reader of these topics; those of a pattern come with the metadata."""
        self.active = True
        self._coordinator.wanted = True
        if self._metadata.pattern is None:
            self._topics = tuple(sorted(set(topics)))
            self._tell(events.Subscribed(self._topics), now, effects)
        else:
            self._topics = ()
            self._seen_version = -1

    def leave(self, reason: str) -> None:
        """Give up everything and leave once what is in progress has ended; see `leaving`."""
        assert self.active
        self._leave_reason = reason
        if self._change is not None and self._change.stage is Stage.WAITING:
            self._change = None

    def rejoin(self, reason: str, now: int, effects: list[Effect]) -> None:
        self._tell(events.RejoinWanted(reason), now, effects)

    def poll_began(self, now: int, effects: list[Effect]) -> None:
        self._polling = True
        if self.active:
            if self._failure_heard:
                self._tell(events.Retried(), now, effects)
            self._tell(events.PollBegan(), now, effects)
        self._failure_heard = False

    def poll_ended(self, now: int, effects: list[Effect]) -> None:
        self._polling = False
        if self.active:
            self._tell(events.PollEnded(), now, effects)

    def commit_refused(self, generation: int, code: int, now: int, effects: list[Effect]) -> None:
        """Handle the coordinator's refusal of a commit of that generation."""
        if self.active and generation == self.member.generation:
            self._tell(events.CommitRefused(code), now, effects)

    # -- what happens ------------------------------------------------------------------------------

    def act(self, now: int, effects: list[Effect]) -> None:
        """Continue whatever can continue now."""
        if not self.active:
            return
        self._follow_coordinator(now, effects)
        self._follow_metadata(now, effects)
        due = self.member.due
        if due is not None and now >= due:
            self._tell(events.TimePassed(), now, effects)
        if self._change is None and self._leave_reason is not None:
            held = self._holdings.partitions()
            if self.member.generation < 0:
                self._change = Change(None, (), (), held, ())
            else:
                self._change = Change(None, held, held, (), ())
        while self._change is not None and self._go_on(self._change, now, effects):
            pass

    def answered(
        self,
        purpose: MemberAsked,
        reply: ApiMessage | SteelyardError,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Take the outcome of a request of the member."""
        if not purpose.turn:
            self._leaves -= 1
            return
        if isinstance(reply, KafkaError):
            self.failed = reply
        if isinstance(reply, SteelyardError):
            code = reply.code if isinstance(reply, KafkaError) else 0
            self._tell(events.Unanswered(purpose.turn, str(reply), code), now, effects)
        elif isinstance(reply, events.Response):
            self._tell(events.Answered(purpose.turn, reply), now, effects)

    def take_failure(self, now: int) -> KafkaError | None:
        """Return why the member cannot continue, for the application.

        It is told once, and its next poll tries again (as in Java,
        AbstractCoordinator.joinGroupIfNeeded). Fatal errors are returned to every poll.
        """
        error = self.failed
        if error is None or self.member.is_gone:
            return error
        self.failed = None
        self._failure_heard = True
        if error is self._coordinator.refused:
            self._coordinator.search_again(now)
        return error

    def handled(self, ticket: int) -> None:
        """Note that the application has handled a hook."""
        if self._change is not None and self._change.ticket == ticket:
            self._change.ticket = 0

    def _follow_coordinator(self, now: int, effects: list[Effect]) -> None:
        known = self._coordinator.address is not None
        if self._coordinator.refused is not None:
            self.failed = self._coordinator.refused
        if known != self._coordinator_known:
            self._coordinator_known = known
            lost = events.CoordinatorLost("looking for the coordinator")
            self._tell(events.CoordinatorFound() if known else lost, now, effects)

    def _follow_metadata(self, now: int, effects: list[Effect]) -> None:
        metadata = self._metadata
        if self._needed is not None and metadata.knows(self._needed):
            needed, self._needed = self._needed, None
            self._tell(events.TopicsKnown(metadata.counts(needed)), now, effects)
        if metadata.version == self._seen_version or metadata.version == 0:
            return
        if metadata.pattern is not None and not metadata.all_known:
            return
        self._seen_version = metadata.version
        self._tell(events.TopicsNamed(metadata.names), now, effects)
        if metadata.pattern is not None:
            self._topics = metadata.matching()
            reason = "the topics that match the pattern have changed"
            self._tell(events.Subscribed(self._topics, reason), now, effects)
        watched = self.member.watched
        if watched and metadata.knows(watched):
            counts = metadata.counts(watched)
            partitions = {topic: counts.get(topic, 0) for topic in watched}
            self._tell(events.TopicsChanged(partitions), now, effects)

    def _tell(self, event: events.Event, now: int, effects: list[Effect]) -> None:
        for order in self.member.handle(event, now):
            self._obey(order, now, effects)

    def _obey(self, order: events.Effect, now: int, effects: list[Effect]) -> None:
        match order:
            case events.Ask():
                self._ask(order, now, effects)
            case events.FindCoordinator():
                self._coordinator.lost(now)
                self._coordinator_known = False
                effects.append(LogLine("INFO", f"looking for the coordinator: {order.reason}"))
            case events.NeedTopics(topics=topics):
                self._needed = topics
            case events.RefreshTopics():
                self._metadata.refresh()
            case events.Prepare() | events.Adopt() if self._leave_reason is not None:
                pass  # everything is given up anyway
            case events.Prepare(revoked=revoked, lost=lost, commit=commit):
                held = self._holdings.partitions() if commit else ()
                self._change = Change(events.Prepare, held, revoked, lost, ())
            case events.Adopt(revoked=revoked, assigned=assigned):
                self._change = Change(events.Adopt, revoked, revoked, (), assigned)
            case events.Fail(code=code, text=text):
                self.failed = KafkaError(code, f"group {self._config.group_id}: {text}")
            case LogLine(level=level, text=text):
                effects.append(LogLine(level, f"group {self._config.group_id}: {text}"))

    def _ask(self, order: events.Ask, now: int, effects: list[Effect]) -> None:
        lane = self._coordinator.lane
        if lane is None:
            self._tell(events.Unanswered(order.turn, "no coordinator"), now, effects)
            return
        if isinstance(order.message, LeaveGroupRequest):
            lane = Lane(lane.address, DATA)  # a JoinGroup may wait on the other lane
        if not order.turn:
            self._leaves += 1
        api = _APIS[type(order.message)]
        purpose = MemberAsked(order.turn)
        self._calls.call(lane, api, order.message, purpose, now, order.timeout_ms, effects)

    # -- changes -----------------------------------------------------------------------------------

    def _go_on(self, change: Change, now: int, effects: list[Effect]) -> bool:
        """Take the next step of a change. False: it has to wait, or is done."""
        match change.stage:
            case Stage.WAITING:
                return self._begin(change, now)
            case Stage.COMMITTING:
                if self._commits.waits(PREPARING):
                    return False
                change.move(Move.COMMITTED)
                if change.taken and self._hooks:
                    handed = Revoked(change.revoked) if change.revoked else Lost(change.lost)
                    self._hand(change, handed, effects)
            case Stage.TAKING:
                if change.ticket:
                    return False
                self._holdings.drop(change.taken)
                change.move(Move.TAKEN)
                self._holdings.hold(change.assigned)
                if change.assigned and self._hooks:
                    self._holdings.waiting.update(change.assigned)
                    self._hand(change, Assigned(change.assigned), effects)
            case Stage.GIVING:
                if change.ticket:
                    return False
                self._holdings.waiting.clear()
                change.move(Move.GIVEN)
                if change.kind is None or change.revoked:
                    change.until = now + LEAVE_MS_MAX
            case Stage.DONE:
                if self._commits.pending and now < change.until:
                    return False
                self._change = None
                self._end(change, now, effects)
        return True

    def _begin(self, change: Change, now: int) -> bool:
        if change.kind is not None and self._is_felt(change) and not self._polling:
            return False
        if self.member.generation < 0 and change.kind is events.Prepare:
            # the membership was lost in the meantime
            change.lost, change.revoked = change.taken, ()
            change.commit = ()
        if self.member.generation < 0 and change.kind is events.Adopt:
            change.revoked = change.assigned = change.commit = ()
        change.move(Move.BEGAN)
        offsets = self._holdings.consumed(change.commit)
        if offsets and self._config.enable_auto_commit:
            generation = self.identity.generation
            self._commits.add(PREPARING, offsets, generation, now, _COMMIT_MS_MAX)
        return True

    def _is_felt(self, change: Change) -> bool:
        """Return whether the application loses something, or is notified."""
        return bool(change.taken) or (self._hooks and bool(change.assigned))

    def _hand(self, change: Change, handed: object, effects: list[Effect]) -> None:
        change.ticket = next(self._tickets)
        effects.append(Deliver(change.ticket, handed))

    def _end(self, change: Change, now: int, effects: list[Effect]) -> None:
        if change.kind is events.Prepare:
            self._tell(events.Prepared(change.taken), now, effects)
        elif change.kind is events.Adopt:
            self._tell(events.Adopted(self._holdings.partitions()), now, effects)
        else:
            assert self._leave_reason is not None
            self._tell(events.Closing(self._leave_reason), now, effects)
            self.active = False
            self.failed = None
            self.member = self._make_member()
            self._topics, self._needed, self._leave_reason = (), None, None
            self._coordinator_known = False
            self._seen_version = -1

    def check(self) -> None:
        """Assert that nothing is held that the member does not know of."""
        self.member.check()
        if self.active and self._change is None:
            assert set(self._holdings.by_partition) == set(self.member.owned)
