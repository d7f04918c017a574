"""What the brokers of a cluster ask each other for their Kafka listeners, in requests of our own over the RocketMQ listeners.

| code | request | answer |
|---|---|---|
| 9001 | to the controller: a Kafka client's request that only it may grant (`forwarding`) | the frame of the answer |
| 9002 | to the controller: topics of mine whose queues are not partitions yet (`changes`) | when they are |
| 9003 | here I am, and these topics are new, changed or gone (`changes`) | when that is taken in |
| 9004 | who reads which of your partitions, in groups that I coordinate (`announcing`) | QUERY_NOT_FOUND: tell me of all groups |
| 9005 | what do you know of these topics (`surveys`) | the attributes of those that are known, and which were deleted |
| 9006 | what do you keep of groups or transactions that I coordinate now (`handover`) | that |
| 9007 | I am this broker; who are you (`nodes/broker/peers/joining`) | the same of the other |
"""

from __future__ import annotations

import base64
from typing import TypeVar

import msgspec

from steelyard.errors import ProtocolError, RemotingError
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting.command import Command

T = TypeVar("T")

FORWARD = 9001
QUEUES_WANTED = 9002
NEWS = 9003
READERS = 9004
SURVEY = 9005
HANDOVER = 9006
IDENTIFY = 9007

TIMEOUT_MS = 5_000


class BrokerEntry(msgspec.Struct, frozen=True):
    """What a broker says of itself: to the nameservers, as JSON, and to other brokers."""

    name: str
    node_id: int
    address: str
    remoting: str

    def __post_init__(self) -> None:
        if not 0 <= self.node_id < 2**31:
            raise ValueError(f"{self.node_id} is not a node id")
        for address in (self.address, self.remoting):
            host, _, port = address.rpartition(":")
            if not host or not (port.isascii() and port.isdigit() and len(port) <= 5):
                raise ValueError(f"{address[:100]!r} is not an address")


class QueuesWanted(msgspec.Struct, frozen=True):
    """Body of 9002: how many queues the broker has of each topic."""

    broker: str
    queues: dict[str, int]


class News(msgspec.Struct, frozen=True):
    """Body of 9003. `changed`: the attributes of each topic, by name. `deleted_ids`: of those in `deleted`, by name.

    `claimed`: which of `changed` are not made yet: the broker numbers their partitions, by its claim of this number.
    """

    broker: BrokerEntry
    changed: dict[str, dict[str, str]] = {}
    deleted: tuple[str, ...] = ()
    deleted_ids: dict[str, str] = {}
    claimed: tuple[str, ...] = ()
    claim: int = 0


NAME_MAX = 1_000
"""Characters of a group's or member's id, a client id or a host in 9004; who has a longer one is not told of."""


class ReaderEntry(msgspec.Struct, frozen=True):
    """A member with partitions of the broker that is told, by topic."""

    member: str
    client: str
    host: str
    partitions: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        if max(map(len, (self.member, self.client, self.host))) > NAME_MAX:
            raise ValueError(f"a name is longer than {NAME_MAX} characters")


class GroupReaders(msgspec.Struct, frozen=True):
    """All who read partitions of the broker that is told; without any, it is to forget the group."""

    group: str
    readers: tuple[ReaderEntry, ...] = ()

    def __post_init__(self) -> None:
        if len(self.group) > NAME_MAX:
            raise ValueError(f"a group's id is longer than {NAME_MAX} characters")


class ReaderNews(msgspec.Struct, frozen=True):
    """Body of 9004: what is now true of these groups of the broker. `complete`: of others nothing is true any more."""

    broker: str
    groups: tuple[GroupReaders, ...] = ()
    complete: bool = False


class Survey(msgspec.Struct, frozen=True):
    """Body of 9005. `topics`: by name, the id that the asking broker knows; empty for one that it does not know.

    `claim`: the number of its claim, where it asks in order to number their partitions; else 0.
    """

    broker: BrokerEntry
    topics: dict[str, str]
    claim: int = 0


class SurveyAnswer(msgspec.Struct, frozen=True):
    """The answer to 9005, by topic. `known`: attributes. `deleted`: that the id was deleted; False: the part of `broker` only."""

    broker: str
    known: dict[str, dict[str, str]] = {}
    deleted: dict[str, bool] = {}


class PeerRequests:
    """Sends requests to other brokers and to nameservers."""

    def __init__(self, calls: Calls[Purpose]) -> None:
        self._calls = calls

    def ask(
        self,
        address: str,
        code: int,
        pending: PendingCall,
        now: int,
        effects: list[Effect],
        *,
        body: bytes = b"",
        ext: dict[str, str] | None = None,
    ) -> bool:
        """Send a request; its outcome comes back under the errand. False where too many are under way."""
        request = Command(code, ext=ext or {}, body=body)
        try:
            self._calls.call(address, request, pending, now, TIMEOUT_MS, effects)
        except RemotingError:
            return False
        return True


def read_body(body: bytes, kind: type[T]) -> T:
    """Raises ProtocolError for a body that is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"no {kind.__name__}: {error}") from None


def encode_id(topic_id: bytes) -> str:
    """A topic's id in a body; empty for NO_ID."""
    return "" if topic_id == NO_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def read_id(text: str) -> bytes:
    """The id that `encode_id` wrote. Raises ProtocolError."""
    if not text:
        return NO_ID
    try:
        return base64.urlsafe_b64decode(text + "==")
    except ValueError:
        raise ProtocolError(f"{text[:100]!r} is not a topic id") from None
