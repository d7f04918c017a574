"""Models of Kafka clients, each written as one script: a generator that asks brokers and waits.

A script yields requests, and gets their answers when all have come, in the order of the requests;
or it yields a `ScriptPause`. `ScriptedNode` runs it as a node. Requests to one broker go over one
connection, in order, as those of Java's clients do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from steelyard.errors import SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.seam import (
    Address,
    Closed,
    Due,
    Effect,
    Event,
    Opened,
    Received,
    Refused,
    SetTimer,
    earliest,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

AGAIN_MS = 300
"""Pause before the next attempt after one that failed."""
REQUEST_TIMEOUT_MS = 3_000
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""Types of coordinators."""
TIMER = "script"

ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors after which a client looks for its coordinator again."""

NOBODY = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,  # all its members had expired, and so did the group
)
"""Errors after which a client joins its group anew."""


class ClientRequest(NamedTuple):
    """A request to a broker."""

    address: Address
    api: Api
    message: ApiMessage


class ScriptPause(NamedTuple):
    ms: int


R = TypeVar("R")
P = TypeVar("P")
Reply = ApiMessage | SteelyardError
Script = Generator[ScriptPause | Sequence[ClientRequest], Sequence[Reply], R]


def outcomes_of(
    calls: KafkaCalls[P], event: Event, now: int, effects: list[Effect]
) -> list[Outcome[P]]:
    """Pass an event to the calls of a model client; return the requests that have ended."""
    match event:
        case Opened():
            calls.opened(event, now, effects)
            return []
        case Refused():
            return calls.refused(event, effects)
        case Closed():
            return calls.closed(event)
        case Received(link, message):
            assert isinstance(message, RawReply)
            return calls.received(link, message, now, effects)
        case Due():
            return calls.expire(now, effects)
        case _:
            raise AssertionError(f"not expected here: {event!r}")


def coordinator_in(reply: Reply) -> Address | None:
    """Return the coordinator that FindCoordinator found; None if it found none."""
    if not isinstance(reply, FindCoordinatorResponse):
        return None
    (found,) = reply.coordinators
    return None if found.error_code else f"{found.host}:{found.port}"


class ScriptedNode:
    """A client that follows the script `life`, and knows where a topic and coordinators are."""

    def __init__(self, name: str, bootstrap: Sequence[Address], topic: str, rng: Random) -> None:
        self.rng = rng
        self.topic = topic
        self.now = 0
        """The time of its clock."""
        self.leaders: dict[int, Address] = {}
        """By partition, as the latest metadata said."""
        self._bootstrap = tuple(bootstrap)
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._calls: KafkaCalls[int] = KafkaCalls(name, "0", REQUEST_TIMEOUT_MS)
        self._script = self.life()
        self._is_begun = False
        self._replies: list[Reply | None] = []
        """To what the script has asked; None: not yet."""
        self._goes_on_at: int | None = None
        """When its pause is over."""

    def life(self) -> Script[None]:
        """Do what the client does. Never returns."""
        raise NotImplementedError

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        self._goes_on_at = now
        return self._settled(now, [], [])

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        return self._settled(now, outcomes_of(self._calls, event, now, effects), effects)

    def _settled(
        self, now: int, outcomes: list[Outcome[int]], effects: list[Effect]
    ) -> list[Effect]:
        """Take outcomes, let the script go on as far as it can, and set the timer."""
        self.now = now
        while True:
            for outcome in outcomes:
                self._replies[outcome.purpose] = outcome.reply
            self._go_on(effects)
            outcomes = self._calls.pump(effects)
            if not outcomes:
                break
        at = earliest(self._goes_on_at, self._calls.due)
        if at is not None:
            effects.append(SetTimer(TIMER, max(at, now + 1)))
        return effects

    def _go_on(self, effects: list[Effect]) -> None:
        """Let the script take its next step if what it waits for has happened."""
        replies = [reply for reply in self._replies if reply is not None]
        if self._goes_on_at is not None:
            if self.now < self._goes_on_at:
                return
        elif len(replies) < len(self._replies):
            return
        step = self._script.send(replies) if self._is_begun else next(self._script)
        self._is_begun = True
        self._goes_on_at = None
        self._replies = []
        if isinstance(step, ScriptPause):
            self._goes_on_at = self.now + max(1, step.ms)
            return
        assert step, "a script asks nothing"
        self._replies = [None] * len(step)
        for number, (address, api, message) in enumerate(step):
            lane = Lane(address, "client")
            self._calls.call(lane, api, message, number, self.now, REQUEST_TIMEOUT_MS, effects)

    def check(self) -> None:
        self._calls.check()
        assert self._goes_on_at is not None or None in self._replies

    # -- where things are --------------------------------------------------------------------------

    def refresh(self) -> Script[None]:
        """Ask some broker who leads the topic's partitions."""
        address = self.rng.choice(self._bootstrap)
        request = MetadataRequest((MetadataRequestTopic(name=self.topic),), False)
        (reply,) = yield (ClientRequest(address, METADATA, request),)
        if not isinstance(reply, MetadataResponse):
            return
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in reply.brokers}
        for topic in reply.topics:
            if not topic.error_code:
                self.leaders = {
                    part.partition_index: brokers[part.leader_id]
                    for part in topic.partitions
                    if part.leader_id in brokers
                }

    def coordinated(
        self, key_type: int, key: str, api: Api, message: ApiMessage
    ) -> Script[ApiMessage | None]:
        """Ask the coordinator of a group or a transactional id once; None if it did not answer."""
        address = self._coordinators.get((key_type, key))
        if address is None:
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
            (reply,) = yield (
                ClientRequest(self.rng.choice(self._bootstrap), FIND_COORDINATOR, find),
            )
            address = coordinator_in(reply)
            if address is None:
                return None
            self._coordinators[key_type, key] = address
        (reply,) = yield (ClientRequest(address, api, message),)
        if isinstance(reply, SteelyardError):
            self.forget(key_type, key)
            return None
        return reply

    def forget(self, key_type: int, key: str) -> None:
        """Look for this coordinator anew before the next request to it."""
        self._coordinators.pop((key_type, key), None)
