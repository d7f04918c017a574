"""A member of a KIP-848 group as a state machine; `states` has its table.

Everything is said with heartbeats. The first one, of epoch 0, makes the client a member, and its
answer has an assignment, as have later answers when the assignment changes. The member adopts one
after the other: it commits and revokes what it lacks, takes what is new, and only then tells the
coordinator what it owns. So others get a partition when its old owner has let it go, and whoever
keeps partitions reads on.

Heartbeats go on meanwhile, whatever the application does (see `heartbeats`). A member that the
coordinator does not know in its epoch, or that was silent for longer than `max.poll.interval.ms`,
has *lost* its partitions: others may have them, so nothing is committed. When the application has
given them up, it joins again.

An error that a member cannot handle is passed to the application (`Fail`); the member is then out
of the group, and starts over when the application polls again (`Retried`). One whose instance id
belongs to another one is gone. A static member (`instance`) leaves only for now when it closes or
falls silent: nobody gets its partitions until its session ends.

Source: clients/consumer/internals/AbstractMembershipManager.java, ConsumerMembershipManager.java,
ConsumerHeartbeatRequestManager.java; KIP-848, 1082.
"""

from __future__ import annotations

from typing import assert_never

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.heartbeats import HeartbeatState, HeartbeatTimer
from steelyard.groups.kafka.member.consumer.share import AssignedShare
from steelyard.groups.kafka.member.consumer.states import (
    MEMBERS,
    ConsumerMemberSettings,
    ConsumerMemberState,
    Move,
)
from steelyard.groups.kafka.member.polls import Polls
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

NO_EPOCH = -1

_BEATING = (
    ConsumerMemberState.JOINING,
    ConsumerMemberState.STABLE,
    ConsumerMemberState.ADOPTING,
    ConsumerMemberState.ACKNOWLEDGING,
)
"""States in which a member sends heartbeats, unless it lost its membership while adopting."""

UNSUPPORTED = (
    "this broker does not support group_protocol='consumer'; use group_protocol='classic', or"
    " brokers of Apache Kafka 4.0 or later"
)
CLASSIC_GROUP = (
    "the group has members of the classic protocol; use group_protocol='classic', or try again when"
    " they have left"
)


class ConsumerMember:
    """A member of a group. `handle` takes an event and returns the effects."""

    protocol = ""
    """Not known: the coordinator chooses the assignor."""
    leads = False
    watched: tuple[str, ...] = ()
    is_joining = False
    """Its requests hold up no others: the coordinator answers a waiting one when another comes."""

    def __init__(self, settings: ConsumerMemberSettings) -> None:
        self.state = MEMBERS.move(None, Move.MADE)
        self.member_id = settings.member_id
        self.generation = NO_EPOCH
        """The member's epoch; -1 while it is not a member."""
        self.topics: tuple[str, ...] | None = None
        self.owned: events.Partitions = ()
        """The partitions that the application holds."""
        self._settings = settings
        self._share = AssignedShare()
        self._timer = HeartbeatTimer()
        self._said = HeartbeatState(settings)
        self._polls = Polls(settings.rebalance_timeout_ms)
        self._coordinator = False
        self._turn = 0
        self._may_be_member = False
        """Whether the coordinator may have it as a member: it was sent a heartbeat of epoch 0."""
        self._released = False
        """Whether it has given up its own instance id in order to join."""
        self._refused = False
        """True from a `Fail` to the following `Retried`."""

    # -- what others may know ----------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Return whether it will never be a member again."""
        return self.state is ConsumerMemberState.GONE

    @property
    def due(self) -> int | None:
        """Return when the member needs `TimePassed`."""
        if not self._beats:
            return None
        times = [self._polls.until, self._timer.due if self._coordinator else None]
        return min((time for time in times if time is not None), default=None)

    @property
    def _beats(self) -> bool:
        joins = self.state is ConsumerMemberState.JOINING
        return self.state in _BEATING and not self._refused and (joins or self.generation > 0)

    def check(self) -> None:
        """Assert the invariants of every state."""
        if self.state in (ConsumerMemberState.STABLE, ConsumerMemberState.ACKNOWLEDGING):
            assert self.generation > 0
        if self.state in (
            ConsumerMemberState.OUT,
            ConsumerMemberState.LOSING,
            ConsumerMemberState.JOINING,
        ):
            assert self.generation == NO_EPOCH
            assert not self._share.adopted
        if self.state is ConsumerMemberState.JOINING:
            assert not self.owned, "who joins holds nothing"
        if self._timer.beating is not None:
            assert self._beats

    # -- events ------------------------------------------------------------------------------------

    def handle(self, event: events.Event, now: int) -> list[events.Effect]:
        """Handle an event and return the effects."""
        orders: list[events.Effect] = []
        if self.state is not ConsumerMemberState.GONE:
            self._take(event, now, orders)
            self._go_on(now, orders)
        return orders

    def _take(self, event: events.Event, now: int, orders: list[events.Effect]) -> None:
        match event:
            case events.Subscribed(topics=topics):
                if topics != self.topics:
                    self.topics = topics
                    self._timer.hurry()
            case events.CoordinatorFound():
                self._coordinator = True
            case events.CoordinatorLost():
                self._coordinator_lost(event.reason, now, orders)
            case events.Prepared():
                self._prepared(event)
            case events.TopicsNamed(names=names):
                self._share.name(names)
                self._ask_for_names(orders)
            case events.Answered():
                self._answered(event, now, orders)
            case events.Unanswered():
                self._unanswered(event, now, orders)
            case events.Adopted():
                self._adopted(event)
            case events.Retried():
                self._refused = False
            case events.PollBegan():
                self._polls.began()
            case events.PollEnded():
                self._polls.ended(now)
            case events.CommitRefused():
                self._commit_refused(event.code, now, orders)
            case events.TimePassed():
                if self._beats and self._polls.fell_silent(now):
                    self._fell_silent(orders)
            case events.Closing():
                self._leave(orders)
                self._forget()
                self._move(Move.CLOSED)
            case events.TopicsKnown() | events.TopicsChanged() | events.RejoinWanted():
                pass  # these concern the leader of a classic group
            case _:
                assert_never(event)

    def _go_on(self, now: int, orders: list[events.Effect]) -> None:
        """Continue as far as possible without another event."""
        if self._refused or self.topics is None:
            return
        if self.state is ConsumerMemberState.OUT and not self._polls.silent:
            self._begin(orders)
        due = self._timer.due
        if self._beats and self._coordinator and due is not None and now >= due:
            self._beat(self.topics, now, orders)
        if self.state is ConsumerMemberState.STABLE and self._share.is_outdated(self.topics):
            self._move(Move.ASSIGNED)
            orders.append(self._share.adopt(self.topics, self.owned))

    # -- joining -----------------------------------------------------------------------------------

    def _begin(self, orders: list[events.Effect]) -> None:
        if self.owned:
            self._move(Move.BEGAN, ConsumerMemberState.LOSING)
            orders.append(events.Prepare((), self.owned, commit=False))
        else:
            self._move(Move.BEGAN, ConsumerMemberState.JOINING)

    def _prepared(self, event: events.Prepared) -> None:
        gone = set(event.released)
        self.owned = tuple(part for part in self.owned if part not in gone)
        if self.state is ConsumerMemberState.LOSING:
            self._move(Move.RELEASED)

    def _beat(self, topics: tuple[str, ...], now: int, orders: list[events.Effect]) -> None:
        if self.state is ConsumerMemberState.JOINING:
            self._may_be_member = True
            request = self._said.join(self.member_id, topics)
        else:
            tells = self.state is ConsumerMemberState.ACKNOWLEDGING
            claimed = self._share.claimed(topics)
            request = self._said.beat(self.member_id, self.generation, topics, claimed, tells=tells)
            if tells:
                self._move(Move.ACKNOWLEDGED)
        self._turn += 1
        self._timer.sent(self._turn, now)
        self._ask(self._turn, request, orders)

    def _ask(
        self, turn: int, request: ConsumerGroupHeartbeatRequest, orders: list[events.Effect]
    ) -> None:
        orders.append(events.Ask(turn, request, self._settings.request_timeout_ms))

    # -- adopting ----------------------------------------------------------------------------------

    def _ask_for_names(self, orders: list[events.Effect]) -> None:
        if self._share.is_nameless():
            orders.append(events.RefreshTopics())

    def _adopted(self, event: events.Adopted) -> None:
        self.owned = event.owned
        if self.state is not ConsumerMemberState.ADOPTING:
            return
        if self.generation == NO_EPOCH:
            self._move(Move.ADOPTED, ConsumerMemberState.OUT)
            return
        self._share.end_adoption()
        self._timer.hurry()
        self._move(Move.ADOPTED, ConsumerMemberState.ACKNOWLEDGING)

    # -- answers -----------------------------------------------------------------------------------

    def _answered(self, event: events.Answered, now: int, orders: list[events.Effect]) -> None:
        response = event.response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if event.turn != self._timer.beating:
            return
        if response.error_code:
            self._refuse(response.error_code, response.error_message, now, orders)
            return
        if response.member_epoch <= 0:
            text = f"the coordinator told the member epoch {response.member_epoch}"
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, text, orders)
            return
        self._timer.answered(response.heartbeat_interval_ms, now)
        self._polls.watch(now)
        self.member_id = response.member_id or self.member_id
        self.generation = response.member_epoch
        self._released = False
        if self.state is ConsumerMemberState.JOINING:
            self._move(Move.JOINED)
        if response.assignment is not None:
            self._share.assign(response.assignment)
            self._ask_for_names(orders)

    def _unanswered(self, event: events.Unanswered, now: int, orders: list[events.Effect]) -> None:
        if event.turn != self._timer.beating:
            return
        if event.code:
            self._refuse(event.code, None, now, orders)
        else:
            self._coordinator_lost(event.reason, now, orders)

    def _refuse(
        self, code: int, message: str | None, now: int, orders: list[events.Effect]
    ) -> None:
        """Act on an error of the coordinator, or on one that kept a heartbeat from being sent."""
        name = code_name(code)
        retry_at = now + self._settings.retry_backoff_ms
        joins = self.state is ConsumerMemberState.JOINING
        self._failed(retry_at)
        match code:
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._coordinator_lost(name, now, orders)
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self._lost(name, orders)
            case ErrorCode.GROUP_ID_NOT_FOUND if not joins:
                self._lost(name, orders)
            case ErrorCode.UNRELEASED_INSTANCE_ID if joins and not self._released:
                # Perhaps by this member itself: it was fenced, or an answer was lost.
                self._released = True
                self._leave(orders)
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self._fail(code, _with(CLASSIC_GROUP, message), orders)
            case ErrorCode.UNSUPPORTED_VERSION:
                self._fail(code, _with(UNSUPPORTED, message), orders)
            case _:
                self._fail(code, _with(f"{name} from the coordinator", message), orders)

    def _commit_refused(self, code: int, now: int, orders: list[events.Effect]) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(code, "another consumer has this group instance id", orders)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID and self.generation != NO_EPOCH:
            self._failed(now + self._settings.retry_backoff_ms)
            self._lost(code_name(code), orders)

    # -- membership --------------------------------------------------------------------------------

    def _fell_silent(self, orders: list[events.Effect]) -> None:
        interval_ms = self._settings.rebalance_timeout_ms
        text = f"no poll for {interval_ms} ms (max_poll_interval_ms): the member leaves its group"
        orders.append(LogLine("WARNING", text))
        self._leave(orders)
        self._lose()

    def _coordinator_lost(self, reason: str, now: int, orders: list[events.Effect]) -> None:
        self._failed(now)
        if self._coordinator:
            self._coordinator = False
            orders.append(events.FindCoordinator(reason))

    def _failed(self, retry_at: int) -> None:
        """Expect no answer any more; the next heartbeat is complete."""
        self._timer.failed(retry_at)
        self._said.forget()

    def _lost(self, name: str, orders: list[events.Effect]) -> None:
        orders.append(LogLine("WARNING", f"the membership was lost: {name}"))
        self._lose()

    def _forget(self) -> None:
        self.generation = NO_EPOCH
        self._may_be_member = False
        self._share.forget()
        self._timer.beating = None

    def _lose(self) -> None:
        """Leave this membership; held partitions stay until `Prepared` reports them as lost."""
        self._forget()
        # ADOPTING ends by itself first: the application is being notified.
        if self.state in _BEATING and self.state is not ConsumerMemberState.ADOPTING:
            self._move(Move.LOST)

    def _leave(self, orders: list[events.Effect]) -> None:
        """Tell the coordinator, if possible."""
        if self._coordinator and self._may_be_member:
            self._ask(0, self._said.leave(self.member_id), orders)

    def _fail(self, code: int, text: str, orders: list[events.Effect]) -> None:
        orders.append(events.Fail(code, text))
        if code == ErrorCode.FENCED_INSTANCE_ID:
            # Rejoining with this instance id would fence the other in turn.
            self._forget()
            self._move(Move.FENCED)
            return
        self._refused = True
        self._lose()

    def _move(self, event: Move, to: ConsumerMemberState | None = None) -> None:
        self.state = MEMBERS.move(self.state, event, to)


def _with(text: str, message: str | None) -> str:
    """Return a text with the words of whoever refused."""
    return f"{text} ({message})" if message else text
