"""The Kafka consumer node: passes events on to its parts.

    part                        decides
    dispatcher                  what the application requests, and when it is answered
    calls                       connections, versions, time-outs
    metadata, coordinator       the brokers, the leaders of partitions, the group's coordinator
    membership                  the group: carries out the orders of the member's state machine
    held                        the partitions held, and the position in each
    lookups                     where to begin; offsets that the application requests
    fetching, decoding          what is fetched, and which of it the application gets
    progress, commits           when offsets are committed; the commits waiting and in flight

After each event every part does what it can do now (`act`), and one timer is set for the earliest
time at which one of them must act again.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.allocate.assignors.registry import assignor
from steelyard.config import KafkaConsumerConfig
from steelyard.errors import AuthenticationError, ClosedError, KafkaError, SteelyardError
from steelyard.groups.kafka.member.classic.machine import ClassicMember
from steelyard.groups.kafka.member.classic.states import ClassicMemberSettings
from steelyard.groups.kafka.member.consumer.machine import ConsumerMember
from steelyard.groups.kafka.member.consumer.states import ConsumerMemberSettings
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.consumer.kafka.commits import CommitAsked, Commits
from steelyard.nodes.consumer.kafka.coordinator import CoordinatorAsked, CoordinatorSearch
from steelyard.nodes.consumer.kafka.dispatcher import Dispatcher
from steelyard.nodes.consumer.kafka.fetching import FetchAsked, Fetching
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.nodes.consumer.kafka.lookups import LookupAsked, Lookups
from steelyard.nodes.consumer.kafka.membership import Member, MemberAsked, Membership
from steelyard.nodes.consumer.kafka.metadata import Metadata, MetadataAsked
from steelyard.nodes.consumer.kafka.progress import Progress
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Closed,
    Due,
    Effect,
    Event,
    Handled,
    Opened,
    Received,
    Refused,
    SetTimer,
    earliest,
)
from steelyard.nodes.starting import START_TIMER, Begin, Starting
from steelyard.sasl.login import Login
from steelyard.types import Random
from steelyard.wire.kafka.frame import RawReply
from steelyard.wire.kafka.messages.cluster import FindCoordinatorResponse, MetadataResponse
from steelyard.wire.kafka.messages.data import FetchResponse
from steelyard.wire.kafka.messages.logs import ListOffsetsResponse
from steelyard.wire.kafka.messages.offsets import OffsetCommitResponse, OffsetFetchResponse
from steelyard.wire.kafka.schema import ApiMessage

TURN_TIMER = "turn"


def member_maker(config: KafkaConsumerConfig, random: Random) -> Callable[[], Member]:
    """Return what creates the member's state machine, for each subscription anew.

    Raises ConfigError for an unknown assignor.
    """
    if config.group_protocol == "consumer":
        consumer = ConsumerMemberSettings(
            config.group_id,
            f"{random.randrange(1 << 128):032x}",
            config.group_remote_assignor or None,
            config.group_instance_id or None,
            config.client_rack or None,
            config.max_poll_interval_ms,
            config.request_timeout_ms,
            config.retry_backoff_ms,
        )
        return lambda: ConsumerMember(consumer)
    classic = ClassicMemberSettings(
        config.group_id,
        tuple(assignor(name) for name in config.assignors),
        config.group_instance_id or None,
        config.client_rack or None,
        config.session_timeout_ms,
        config.max_poll_interval_ms,
        config.heartbeat_interval_ms,
        config.request_timeout_ms,
        config.retry_backoff_ms,
    )
    return lambda: ClassicMember(classic)


class KafkaConsumerNode:
    """Dispatches events to its parts.

    `hooks`: notify the application of assigned and revoked partitions. `login`: at every broker.
    `random` must not be predictable then. Raises ConfigError.
    """

    def __init__(
        self,
        config: KafkaConsumerConfig,
        random: Random,
        *,
        software_version: str = "0",
        hooks: bool = False,
        login: Login | None = None,
    ) -> None:
        self._config = config
        make_member = member_maker(config, random)
        self._calls: KafkaCalls[object] = KafkaCalls(
            config.client_id,
            software_version,
            config.request_timeout_ms,
            login=login,
            random=random,
        )
        self._holdings = Holdings()
        self._metadata = Metadata(config, self._calls, random)
        self._coordinator = CoordinatorSearch(config, self._calls, self._metadata, random)
        self._commits = Commits(config, self._calls, self._coordinator)
        self._lookups = Lookups(
            config, self._calls, self._metadata, self._coordinator, self._holdings
        )
        self._fetching = Fetching(
            config, self._calls, self._metadata, self._holdings, self._lookups
        )
        self._membership = Membership(
            config,
            make_member,
            self._calls,
            self._metadata,
            self._coordinator,
            self._holdings,
            self._commits,
            hooks=hooks,
        )
        self._progress = Progress(config, self._holdings, self._commits, self._membership)
        self._dispatcher = Dispatcher(
            config,
            self._calls,
            self._metadata,
            self._coordinator,
            self._holdings,
            self._lookups,
            self._commits,
            self._membership,
            self._progress,
        )
        self._starting = Starting(f"Kafka broker {', '.join(config.bootstrap_servers)}")
        self._again = False
        self._timer_at: int | None = None

    # -- the seam ----------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        """Return the first effects; called once, before any event."""
        self._progress.start(now)
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle one event and return the effects."""
        effects: list[Effect] = []
        if self._dispatcher.stopped:
            if isinstance(event, Asked):
                effects.append(Answer(event.call_id, ClosedError("the consumer is closed")))
            return effects
        match event:
            case Opened():
                self._calls.opened(event, now, effects)
            case Refused():
                self._outcomes(self._calls.refused(event, effects), now, effects)
            case Closed():
                self._outcomes(self._calls.closed(event), now, effects)
            case Received(link=link, message=message):
                assert isinstance(message, RawReply)
                self._outcomes(self._calls.received(link, message, now, effects), now, effects)
            case Asked(call_id=call_id, call=Begin() as begin):
                self._starting.asked(call_id, begin, now, effects)
                if self._metadata.version:
                    self._starting.reached(effects)
            case Asked(call_id=call_id, call=call):
                self._dispatcher.take(call_id, call, now, effects)
            case Handled(ticket=ticket):
                self._membership.handled(ticket)
            case Due(key=key) if key == START_TIMER:
                self._starting.due(now, effects)
            case Due():
                self._timer_at = None
                self._outcomes(self._calls.expire(now, effects), now, effects)
            case _:
                raise AssertionError(f"a Kafka consumer cannot take {event!r}")
        self._act(now, effects)
        return effects

    def check(self) -> None:
        """Assert every invariant."""
        self._calls.check()
        self._holdings.check()
        self._membership.check()

    # -- everything that can go on now -------------------------------------------------------------

    def _act(self, now: int, effects: list[Effect]) -> None:
        self._again = False
        self._metadata.want(self._topics())
        self._metadata.act(now, effects)
        self._coordinator.act(now, effects)
        self._membership.act(now, effects)
        self._progress.act(now)
        membership = self._membership
        for ended in self._commits.act(
            membership.identity,
            self._holdings.by_partition,
            now,
            effects,
            joining=membership.joining,
            leaving=membership.leaving,
        ):
            self._again = True
            self._progress.committed(ended, -1, now, effects)
        self._lookups.act(membership.reader, now, effects)
        self._fetching.act(now, effects)
        self._outcomes(self._calls.pump(effects), now, effects)
        self._dispatcher.act(now, effects)
        if not self._dispatcher.stopped:
            self._set_timer(now, effects)

    def _topics(self) -> frozenset[str]:
        topics = self._membership.topics()
        topics.update(self._lookups.topics(), self._dispatcher.topics())
        topics.update([partition.topic for partition in self._holdings.by_partition])
        return frozenset(topics)

    def _set_timer(self, now: int, effects: list[Effect]) -> None:
        looks = self._holdings.by_partition or self._metadata.pattern or self._topics()
        times = [
            self._calls.due,
            self._metadata.due if looks else None,
            self._coordinator.due,
            self._membership.due,
            self._commits.due,
            self._progress.due,
            self._lookups.due,
            self._fetching.due,
            self._dispatcher.due,
            now if self._again else None,
        ]
        at = earliest(*times)
        if at is not None and at != self._timer_at:
            self._timer_at = at
            effects.append(SetTimer(TURN_TIMER, at))

    # -- outcomes ----------------------------------------------------------------------------------

    def _outcomes(self, outcomes: list[Outcome[object]], now: int, effects: list[Effect]) -> None:
        for outcome in outcomes:
            self._again = True
            reply = outcome.reply
            if isinstance(reply, SteelyardError) and not isinstance(reply, KafkaError):
                self._metadata.failed(outcome.lane.address)
            self._outcome(outcome.purpose, outcome.lane, reply, now, effects)

    def _outcome(
        self,
        purpose: object,
        lane: Lane,
        reply: ApiMessage | SteelyardError,
        now: int,
        effects: list[Effect],
    ) -> None:
        match purpose:
            case FetchAsked():
                assert isinstance(reply, FetchResponse | SteelyardError)
                self._fetching.answered(purpose, lane, reply, now)
            case MetadataAsked():
                if isinstance(reply, MetadataResponse):
                    self._metadata.answered(purpose, reply, now)
                    if self._starting.open:
                        self._starting.reached(effects)
                else:
                    assert isinstance(reply, SteelyardError)
                    self._metadata.unanswered(reply, now, effects)
                    if isinstance(reply, AuthenticationError):
                        # As Kafka's client: a login that was refused will be refused again.
                        if not self._starting.open or not self._starting.rejected(reply, effects):
                            self._dispatcher.refused(reply)
                    elif self._starting.open:
                        self._starting.failed(reply, effects)
            case CoordinatorAsked():
                assert isinstance(reply, FindCoordinatorResponse | SteelyardError)
                self._coordinator.answered(reply, now)
            case MemberAsked():
                self._membership.answered(purpose, reply, now, effects)
            case CommitAsked(generation=generation):
                assert isinstance(reply, OffsetCommitResponse | SteelyardError)
                for ended in self._commits.answered(purpose, reply, now):
                    self._progress.committed(ended, generation, now, effects)
            case LookupAsked():
                if isinstance(reply, OffsetFetchResponse):
                    self._lookups.offsets_fetched(purpose, reply, now, effects)
                elif isinstance(reply, ListOffsetsResponse):
                    self._lookups.offsets_listed(purpose, reply, now, effects)
                else:
                    assert isinstance(reply, SteelyardError)
                    self._lookups.unanswered(purpose, reply, now, effects)
            case _:
                raise AssertionError(f"nobody asked for {purpose!r}")
