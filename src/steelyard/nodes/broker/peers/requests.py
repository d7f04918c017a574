"""Requests that the brokers of a cluster send each other, mostly for their Kafka listeners.

They are not RocketMQ's, but go to the RocketMQ listeners:

- 9001, to the controller: a Kafka client's request that only it may grant (`forwarding`). The
  answer is the frame for the client.
- 9002, to the controller: topics of the sender whose queues are not partitions yet (`changes`).
  Answered when they are.
- 9003: the sender is there, and these topics are new, changed or deleted (`changes`). Answered when
  that is taken over.
- 9004: who reads partitions of the receiver in groups that the sender coordinates (`announcing`).
  The answer QUERY_NOT_FOUND asks for all groups.
- 9005: what does the receiver know of these topics (`surveys`)? The answer has the attributes of
  those that it knows, and says which were deleted.
- 9006: what does the receiver store of groups or transactions that the sender coordinates now
  (`handover`)? The answer has that.
- 9007: who the sender is (`nodes/broker/peers/joining`). The answer says who the receiver is.
- 9008: changed users, or the digest of all (`logins/spreading`). The answer has all users of the
  receiver if its digest differs.
- 9009: the same for access rules (`access/spreading`).
- 9010: the same for quotas (`quotas/spreading`).
- 9011: the same for settings of brokers and groups (`cluster/config_spreading`).
"""

from __future__ import annotations

import base64
from typing import TypeVar

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError, RemotingError
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.seam import Effect
from steelyard.routes.brokers import BrokerEntry
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
USERS = 9008
ACLS = 9009
QUOTAS = 9010
CONFIGS = 9011

PEER_CODES = (
    *(FORWARD, QUEUES_WANTED, NEWS, READERS, SURVEY, HANDOVER, IDENTIFY),
    *(USERS, ACLS, QUOTAS, CONFIGS),
)
"""All of them; with access control they need an administrator's account, as brokers have one."""

TIMEOUT_MS = 5_000


class QueuesWanted(msgspec.Struct, frozen=True):
    """Body of 9002: how many queues the broker has of each topic."""

    broker: str
    queues: dict[str, int]


class News(msgspec.Struct, frozen=True):
    """Body of 9003.

    `changed`: the attributes of each topic, by name. `deleted_ids`: ids of the topics in `deleted`,
    by name. `claimed`: those of `changed` whose layouts are only proposed, under the broker's claim
    with the number `claim`: the receiver stores them, but does not use them yet.
    """

    broker: BrokerEntry
    changed: dict[str, dict[str, str]] = {}
    deleted: tuple[str, ...] = ()
    deleted_ids: dict[str, str] = {}
    claimed: tuple[str, ...] = ()
    claim: int = 0


NAME_MAX = 1_000
"""Maximum characters of a group id, member id, client id or host in 9004.

Members and groups with longer ones are not announced.
"""


class ReaderEntry(msgspec.Struct, frozen=True):
    """A member that reads partitions of the receiver, by topic."""

    member: str
    client: str
    host: str
    partitions: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        if max(map(len, (self.member, self.client, self.host))) > NAME_MAX:
            raise ValueError(f"a name is longer than {NAME_MAX} characters")


class GroupReaders(msgspec.Struct, frozen=True):
    """All members of a group that read the receiver's partitions; it forgets groups without any."""

    group: str
    readers: tuple[ReaderEntry, ...] = ()

    def __post_init__(self) -> None:
        if len(self.group) > NAME_MAX:
            raise ValueError(f"a group's id is longer than {NAME_MAX} characters")


class ReaderNews(msgspec.Struct, frozen=True):
    """Body of 9004: what is now true of these groups.

    `broker`: the sender, which coordinates them. `complete`: it has no others.
    """

    broker: str
    groups: tuple[GroupReaders, ...] = ()
    complete: bool = False


class Survey(msgspec.Struct, frozen=True):
    """Body of 9005.

    `topics`: by name, the id that the sender knows; empty for a topic that it does not know.
    `claim`: the number of its claim if it asks in order to assign their partitions, else 0.
    """

    broker: BrokerEntry
    topics: dict[str, str]
    claim: int = 0


class ProposedTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic with a proposed layout, as attributes, and the claim under which it was proposed."""

    number: int
    broker: str
    attributes: dict[str, str]


class SurveyAnswer(msgspec.Struct, frozen=True):
    """Answer to 9005, by topic.

    `known`: the attributes. `deleted`: True if the topic with that id was deleted, False if only
    the part of `broker` was. `proposed`: layouts stored but not in use. `promised`: the number of a
    later claim than the asker's, which is therefore refused; else 0.
    """

    broker: str
    known: dict[str, dict[str, str]] = {}
    deleted: dict[str, bool] = {}
    proposed: dict[str, ProposedTopic] = {}
    promised: int = 0


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
        """Send a request, whose outcome has the purpose `pending`; False if too many wait."""
        request = Command(code, ext=ext or {}, body=body)
        try:
            self._calls.call(address, request, pending, now, TIMEOUT_MS, effects)
        except RemotingError:
            return False
        return True


def read_body(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body. Raises ProtocolError."""
    try:
        return msgspec.json.decode(body, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"no {kind.__name__}: {error}") from None


def encode_id(topic_id: bytes) -> str:
    """Encode a topic's id for a body; empty for NO_ID."""
    return "" if topic_id == NO_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def read_id(text: str) -> bytes:
    """Decode an id written by `encode_id`. Raises ProtocolError."""
    if not text:
        return NO_ID
    try:
        return base64.urlsafe_b64decode(text + "==")
    except ValueError:
        raise ProtocolError(f"{text[:100]!r} is not a topic id") from None
