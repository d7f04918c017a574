"""A member of a classic consumer group as a state machine; `states` has its table.

Offsets are committed before the group is joined, never during a rebalance. An eager member revokes
everything in PREPARING. A cooperative one keeps its partitions, revokes in ADOPTING what the new
assignment lacks, and rejoins at once, so that others get it. A member that lost its membership (the
coordinator does not know it, or it was silent for longer than `max.poll.interval.ms`) has *lost*
its partitions: others may have them, so nothing is committed.

Heartbeats are sent in PREPARING, ADOPTING and STABLE, by `due`, whatever the application does.
While JoinGroup or SyncGroup is in flight the coordinator needs none.

An error that a member cannot handle is passed to the application (`Fail`); the member is then out
of the group, and starts over when the application polls again (`Retried`). A member whose instance
id belongs to another one is gone.

Static members (`instance`) do not leave when they close or fall silent: their session expires.
Source: clients/consumer/internals/AbstractCoordinator.java, ConsumerCoordinator.java,
Heartbeat.java; KIP-62, 345, 394, 429, 800.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic import requests
from steelyard.groups.kafka.member.classic.answers import (
    Verdict,
    heartbeat_verdict,
    join_verdict,
    sync_verdict,
)
from steelyard.groups.kafka.member.classic.heartbeats import Heartbeats
from steelyard.groups.kafka.member.classic.leading import Lead
from steelyard.groups.kafka.member.classic.share import Share, read_share
from steelyard.groups.kafka.member.classic.states import (
    ASKING,
    BEATING,
    JOIN_GRACE_MS,
    MEMBERS,
    NO_GENERATION,
    ClassicMemberSettings,
    ClassicMemberState,
    Move,
)
from steelyard.groups.kafka.member.polls import Polls
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE
from steelyard.wire.kafka.messages.groups import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)


class ClassicMember:
    """A member of a group. `handle` takes an event and returns the effects."""

    def __init__(self, settings: ClassicMemberSettings) -> None:
        self.state = MEMBERS.move(None, Move.MADE)
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol = ""
        """The assignor on which the group agreed."""
        self.leads = False
        self.topics: tuple[str, ...] | None = None
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in settings.assignors}
        self._share = Share(settings.assignors)
        self._lead: Lead | None = None
        """The leadership of this member, from its JoinGroup response until it rejoins."""
        self._heartbeats = Heartbeats(settings)
        self._polls = Polls(settings.rebalance_timeout_ms)
        self._coordinator = False
        self._turn = 0
        self._rejoin = False
        self._refused = False
        """True from a `Fail` to the following `Retried`."""
        self._reason = ""
        self._joined_topics: tuple[str, ...] = ()
        self._retry_at = 0

    # -- what others may know ----------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Return whether it will never be a member again."""
        return self.state is ClassicMemberState.GONE

    @property
    def is_joining(self) -> bool:
        """Return whether a JoinGroup or SyncGroup waits at the coordinator."""
        return self.state in (*ASKING, ClassicMemberState.ASSIGNING)

    @property
    def owned(self) -> events.Partitions:
        """Return the partitions that the application holds."""
        return self._share.owned

    @property
    def due(self) -> int | None:
        """Return when the member needs `TimePassed`."""
        if self.state is ClassicMemberState.READY and self._coordinator and not self._refused:
            return self._retry_at
        if self.generation >= 0 and self.state in BEATING:
            times = [] if self._polls.until is None else [self._polls.until]
            if self._coordinator:
                times.append(self._heartbeats.due)
            return min(times, default=None)
        return None

    @property
    def watched(self) -> tuple[str, ...]:
        """Return the topics whose partitions the leader watches: those of all members."""
        return () if self._lead is None else self._lead.watched

    def check(self) -> None:
        """Assert the invariants of every state."""
        assert self._turn >= 0
        if self.state in (
            ClassicMemberState.STABLE,
            ClassicMemberState.SYNCING,
            ClassicMemberState.ASSIGNING,
        ):
            assert self.generation >= 0
        if self.generation >= 0:
            assert self.member_id
        if (
            self.state in (ClassicMemberState.READY, ClassicMemberState.JOINING)
            and not self._share.is_cooperative
        ):
            assert not self.owned, "an eager member joins with empty hands"
        if self.state is ClassicMemberState.READY and self.generation < 0:
            assert not self.owned, "who lost its membership holds nothing"

    # -- events ------------------------------------------------------------------------------------

    def handle(self, event: events.Event, now: int) -> list[events.Effect]:
        """Handle an event and return the effects."""
        orders: list[events.Effect] = []
        if self.state is ClassicMemberState.GONE:
            return orders
        self._take(event, now, orders)
        self._go_on(now, orders)
        return orders

    def _take(self, event: events.Event, now: int, orders: list[events.Effect]) -> None:
        match event:
            case events.Subscribed():
                self._subscribed(event)
            case events.CoordinatorFound():
                self._coordinator = True
                self._heartbeats.coordinator_found(now)
            case events.CoordinatorLost():
                self._coordinator_lost(event.reason, orders)
            case events.Prepared():
                self._prepared(event)
            case events.TopicsKnown():
                self._topics_known(event, orders)
            case events.TopicsChanged(partitions=partitions):
                if self._lead is not None and self._lead.is_outdated(partitions):
                    self._want_rejoin("cached metadata has changed")
            case events.Answered():
                self._answered(event, now, orders)
            case events.Unanswered():
                self._unanswered(event, now, orders)
            case events.Adopted():
                self._adopted(event)
            case events.TopicsNamed():
                pass  # its leader gives topics by name
            case events.Retried():
                self._refused = False
            case events.PollBegan():
                self._polls.began()
            case events.PollEnded():
                self._polls.ended(now)
            case events.CommitRefused():
                self._commit_refused(event.code, now, orders)
            case events.RejoinWanted():
                self._want_rejoin(event.reason)
            case events.TimePassed():
                self._time_passed(now, orders)
            case events.Closing():
                self._leave(event.reason, orders)
                self._move(Move.CLOSED)
            case _:
                assert_never(event)

    def _go_on(self, now: int, orders: list[events.Effect]) -> None:
        """Continue as far as possible without another event."""
        if self._refused:
            return
        if (
            self.state is ClassicMemberState.OUT
            and self.topics is not None
            and not self._polls.silent
        ) or (self.state is ClassicMemberState.STABLE and self._rejoin):
            self._prepare(orders)
        elif self.state is ClassicMemberState.READY and self._coordinator and now >= self._retry_at:
            self._join(orders)

    # -- joining -----------------------------------------------------------------------------------

    def _subscribed(self, event: events.Subscribed) -> None:
        if event.topics == self.topics:
            return
        self.topics = event.topics
        if self.state not in (
            ClassicMemberState.OUT,
            ClassicMemberState.PREPARING,
            ClassicMemberState.READY,
        ):
            self._want_rejoin(event.reason)

    def _want_rejoin(self, reason: str) -> None:
        """Rejoin as soon as the state allows."""
        if not self._rejoin:
            self._rejoin = True
            self._reason = reason

    def _prepare(self, orders: list[events.Effect]) -> None:
        """Enter PREPARING: give up what must be given up before joining."""
        assert self.topics is not None
        self._move(Move.BEGAN)
        orders.append(self._share.prepare(self.topics, is_member=self.generation >= 0))

    def _prepared(self, event: events.Prepared) -> None:
        self._share.release(event.released)
        if self.state is not ClassicMemberState.PREPARING:
            return
        membership_lost_meanwhile = self.generation < 0 and self.owned
        self._move(
            Move.PREPARED,
            ClassicMemberState.OUT if membership_lost_meanwhile else ClassicMemberState.READY,
        )

    def _join(self, orders: list[events.Effect]) -> None:
        assert self.topics is not None
        self._move(Move.ASKED)
        self._rejoin = False
        self._joined_topics = self.topics
        self._lead = None
        request = requests.join_group(
            self._settings,
            self.member_id,
            self.generation,
            self.topics,
            self._share,
            self._reason,
        )
        self._ask(request, orders)

    def _ask(
        self, request: JoinGroupRequest | SyncGroupRequest, orders: list[events.Effect]
    ) -> None:
        self._turn += 1
        self._heartbeats.beating = None
        timeout_ms = self._settings.rebalance_timeout_ms + JOIN_GRACE_MS
        orders.append(events.Ask(self._turn, request, timeout_ms))

    def _joined(self, response: JoinGroupResponse, now: int, orders: list[events.Effect]) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED and response.member_id:
            self.member_id = response.member_id
            self._move(Move.REFUSED)
            self._retry_at = 0
            self._reason = f"need to re-join with the given member-id: {self.member_id}"
            return
        if response.error_code:
            self._obey(join_verdict(response.error_code), response.error_code, now, orders)
            return
        self.member_id = response.member_id
        protocol_type = response.protocol_type
        if (
            protocol_type not in (None, PROTOCOL_TYPE)
            or response.protocol_name not in self._assignors
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            text = f"the group uses {protocol_type} {response.protocol_name}"
            self._fail(code, text, now, orders)
            return
        self.generation = response.generation_id
        self.protocol = response.protocol_name or ""
        if not self._rejoin:  # otherwise it is the reason for the next JoinGroup
            self._reason = ""
        self.leads = response.leader == response.member_id
        self._alive(now)
        if not self.leads:
            self._sync(Move.FOLLOWS, (), orders)
            return
        try:
            self._lead = Lead(response)
        except ProtocolError as error:
            text = f"a member's metadata: {error}"
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, text, now, orders)
            return
        self._move(Move.LEADS)
        orders.append(events.NeedTopics(self._lead.topics))

    def _topics_known(self, event: events.TopicsKnown, orders: list[events.Effect]) -> None:
        if self.state is ClassicMemberState.ASSIGNING:
            assert self._lead is not None
            assignor = self._assignors[self.protocol]
            self._sync(Move.ASSIGNED, self._lead.shares(assignor, event.partitions), orders)

    def _sync(
        self,
        event: Move,
        shares: Sequence[SyncGroupRequestAssignment],
        orders: list[events.Effect],
    ) -> None:
        self._move(event)
        request = requests.sync_group(
            self._settings, self.member_id, self.generation, self.protocol, shares
        )
        self._ask(request, orders)

    def _synced(self, response: SyncGroupResponse, now: int, orders: list[events.Effect]) -> None:
        if response.error_code:
            self._obey(sync_verdict(response.error_code), response.error_code, now, orders)
            return
        try:
            share = read_share(response.assignment)
        except ProtocolError as error:
            text = f"the assignment: {error}"
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, text, now, orders)
            return
        wanted = set(self._joined_topics)
        self._move(Move.SYNCED)
        self._alive(now)
        if any(part.topic not in wanted for part in share):
            share = tuple(part for part in share if part.topic in wanted)
            self._want_rejoin("the assignment has topics that are not subscribed to")
        adopt = self._share.assign(share, self.generation)
        if adopt.revoked:
            self._want_rejoin("need to revoke partitions and re-join")
        orders.append(adopt)

    def _alive(self, now: int) -> None:
        self._heartbeats.alive(now)
        self._polls.watch(now)

    def _adopted(self, event: events.Adopted) -> None:
        self._share.owned = event.owned
        if self.state is ClassicMemberState.ADOPTING:
            self._move(
                Move.ADOPTED,
                ClassicMemberState.STABLE if self.generation >= 0 else ClassicMemberState.OUT,
            )

    # -- answers -----------------------------------------------------------------------------------

    def _answered(self, event: events.Answered, now: int, orders: list[events.Effect]) -> None:
        response = event.response
        match response:
            case HeartbeatResponse():
                if event.turn == self._heartbeats.beating:
                    self._heartbeats.beating = None
                    self._beaten(response.error_code, now, orders)
            case JoinGroupResponse():
                if event.turn == self._turn and self.state is ClassicMemberState.JOINING:
                    self._joined(response, now, orders)
            case SyncGroupResponse():
                if event.turn == self._turn and self.state is ClassicMemberState.SYNCING:
                    self._synced(response, now, orders)
            case ConsumerGroupHeartbeatResponse():
                raise AssertionError("a classic member sends no ConsumerGroupHeartbeat")
            case _:
                assert_never(response)

    def _unanswered(self, event: events.Unanswered, now: int, orders: list[events.Effect]) -> None:
        if event.turn == self._heartbeats.beating:
            self._heartbeats.beating = None
            self._coordinator_lost(event.reason, orders)
        elif event.turn == self._turn and self.state in ASKING:
            self._coordinator_lost(event.reason, orders)
            self._ask_again(f"rebalance failed: {event.reason}", now)

    def _beaten(self, code: int, now: int, orders: list[events.Effect]) -> None:
        verdict = heartbeat_verdict(code)
        if verdict in (Verdict.FINE, Verdict.REJOIN):
            self._heartbeats.beaten(now)
            self._polls.watch(now)
        self._obey(verdict, code, now, orders)

    def _obey(self, verdict: Verdict, code: int, now: int, orders: list[events.Effect]) -> None:
        """Act on an error; see `answers`."""
        name = code_name(code)
        match verdict:
            case Verdict.FINE:
                pass
            case Verdict.REJOIN if self.state is ClassicMemberState.STABLE:
                self._want_rejoin("group is already rebalancing")
            case Verdict.REJOIN | Verdict.RETRY:
                self._ask_again(f"rebalance failed due to {name}", now)
            case Verdict.FIND_COORDINATOR:
                self._coordinator_lost(name, orders)
                self._ask_again(f"rebalance failed due to {name}", now)
            case Verdict.NEW_GENERATION | Verdict.NEW_MEMBER:
                orders.append(LogLine("WARNING", f"the membership was lost: {name}"))
                self._retry_at = now + self._settings.retry_backoff_ms
                self._lose(keep_id=verdict is Verdict.NEW_GENERATION)
                self._reason = f"rebalance failed due to {name}"
            case Verdict.GIVE_UP:
                self._fail(code, f"{name} from the coordinator", now, orders)
            case _:
                assert_never(verdict)

    def _ask_again(self, reason: str, now: int) -> None:
        """Send JoinGroup again after a moment, if a request of the rebalance is in flight."""
        if self.state in ASKING:
            self._retry_at = now + self._settings.retry_backoff_ms
            self._reason = reason
            self._move(Move.REFUSED)

    def _commit_refused(self, code: int, now: int, orders: list[events.Effect]) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is ClassicMemberState.STABLE:
                self._want_rejoin("offset commit failed since group is already rebalancing")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(code, "another consumer has this group instance id", now, orders)
        elif self.state in BEATING and self.generation >= 0:
            self._lose(keep_id=code == ErrorCode.ILLEGAL_GENERATION)

    # -- membership --------------------------------------------------------------------------------

    def _time_passed(self, now: int, orders: list[events.Effect]) -> None:
        if self.generation < 0 or self.state not in BEATING:
            return
        settings, heartbeats = self._settings, self._heartbeats
        if self._polls.fell_silent(now):
            self._fell_silent(orders)
        elif not self._coordinator:
            return
        elif heartbeats.session_is_over(now):
            self._coordinator_lost("no heartbeat was answered in a session's time", orders)
        elif heartbeats.may_beat(now):
            self._turn += 1
            heartbeats.beat(self._turn, now)
            request = requests.heartbeat(settings, self.member_id, self.generation)
            timeout_ms = min(settings.request_timeout_ms, settings.session_timeout_ms)
            orders.append(events.Ask(self._turn, request, timeout_ms))

    def _fell_silent(self, orders: list[events.Effect]) -> None:
        interval_ms = self._settings.rebalance_timeout_ms
        text = f"no poll for {interval_ms} ms (max_poll_interval_ms): the member leaves its group"
        orders.append(LogLine("WARNING", text))
        self._leave("consumer poll timeout has expired.", orders)
        self._lose(keep_id=self._settings.instance is not None)

    def _coordinator_lost(self, reason: str, orders: list[events.Effect]) -> None:
        if self._coordinator:
            self._coordinator = False
            self._heartbeats.beating = None
            orders.append(events.FindCoordinator(reason))

    def _lose(self, *, keep_id: bool) -> None:
        """Leave this generation; held partitions stay until `Prepared` reports them as lost."""
        self.generation = NO_GENERATION
        self.leads = False
        self._rejoin = False
        self._heartbeats.beating = None
        self._lead = None
        self._share.forget_assigned()
        self._turn += 1
        if not keep_id:
            self.member_id = ""
        # PREPARING and ADOPTING end by themselves first: the application is being notified.
        if self.state not in (
            ClassicMemberState.OUT,
            ClassicMemberState.PREPARING,
            ClassicMemberState.ADOPTING,
        ):
            self._move(Move.LOST)

    def _leave(self, reason: str, orders: list[events.Effect]) -> None:
        """Tell the coordinator, if possible. Static members stay until their session ends."""
        settings = self._settings
        if self._coordinator and self.member_id and settings.instance is None:
            request = requests.leave_group(settings, self.member_id, reason)
            orders.append(events.Ask(0, request, settings.request_timeout_ms))

    def _fail(self, code: int, text: str, now: int, orders: list[events.Effect]) -> None:
        orders.append(events.Fail(code, text))
        if code == ErrorCode.FENCED_INSTANCE_ID:
            # Rejoining with this instance id would fence the other in turn.
            self.generation = NO_GENERATION
            self._move(Move.FENCED)
            return
        self._refused = True
        self._retry_at = now + self._settings.retry_backoff_ms
        self._lose(keep_id=True)

    def _move(self, event: Move, to: ClassicMemberState | None = None) -> None:
        self.state = MEMBERS.move(self.state, event, to)
