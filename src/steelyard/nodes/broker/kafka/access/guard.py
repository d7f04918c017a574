"""Checks every request before its handler sees it, where there is an authorizer.

What a request needs is a function of `needs.NEEDS`, by API key. It returns an `AccessVerdict`: what
of the request may be served, and how the handler's answer becomes the client's. So handlers know
nothing of access, but for Fetch: the partitions of its sessions are not in the request, so it asks
`may` for each topic that it reads. Requests of other brokers come to the RocketMQ listener, and
were checked where the client sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

import msgspec

from steelyard.acl.bindings import CLUSTER_NAME, AclOperation, ResourceType
from steelyard.acl.rules import Rules
from steelyard.errors import ProtocolError
from steelyard.nodes.broker.acls import AclStore
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import Handler, Handlers, OpenRequest
from steelyard.nodes.broker.kafka.requests.completing import Complete, completed
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.printable import printable
from steelyard.types import LogLine
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

TOLD_MS = 60_000
"""Shortest time between two log lines about the same denial."""
TOLD_MAX = 1_000
"""Most denials that are remembered for that."""


class AccessVerdict(msgspec.Struct, frozen=True):
    """What becomes of a request.

    `served`: what the handler gets; None if there is nothing left. `complete`: turns the answer
    into the client's; without a handler it gets an empty answer. `broken`: if not empty, the link
    is closed after the handler, because the client wants no answers.
    """

    served: ApiMessage | None
    complete: Complete | None = None
    broken: str = ""


class Check:
    """One request, and who sent it."""

    def __init__(
        self,
        call: OpenRequest,
        rules: Rules,
        cluster: Cluster,
        principal: str,
        *,
        creates_topics: bool,
    ) -> None:
        self.message = call.message
        self.version = call.version
        self.cluster = cluster
        self.creates_topics = creates_topics
        """Whether topics are created when clients ask for them."""
        self.principal = principal
        self.host = host_of(call.peer)
        self.denied: dict[tuple[AclOperation, ResourceType, str], None] = {}
        self._empty = call.request.api.response
        self._rules = rules

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return whether the client may do something."""
        return self._rules.allows(self.principal, self.host, operation, kind, name)

    def needs(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return the same, and note a denial for the log."""
        allowed = self.may(operation, kind, name)
        if not allowed:
            self.denied[operation, kind, name] = None
        return allowed

    def needs_cluster(self, operation: AclOperation) -> bool:
        return self.needs(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_some(self, operation: AclOperation, kind: ResourceType) -> bool:
        return self._rules.allows_some(self.principal, self.host, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return what the client may do with a resource, as Kafka's bits."""
        found = self._rules.operations(self.principal, self.host, kind, name)
        return sum(1 << operation for operation in found)

    def topic_name(self, name: str | None, topic_id: bytes) -> str | None:
        """Return the name of a topic that is named by its id or its name; None if unknown."""
        return name if topic_id == NO_ID else self.cluster.name_of(topic_id)

    def empty(self) -> ApiMessage:
        return self._empty()


Need = Callable[[Check], AccessVerdict]


class Principals(Protocol):
    """Knows who clients are: `logins.links`."""

    def principal_of(self, peer: Peer) -> str: ...


def host_of(peer: Peer) -> str:
    """Return the IP address of a client, as rules name it."""
    return peer.address.rpartition(":")[0].strip("[]")


class Guard:
    """The checks of all requests; see the module docstring."""

    def __init__(
        self,
        acls: AclStore,
        cluster: Cluster,
        logins: Principals,
        *,
        creates_topics: bool,
    ) -> None:
        self._acls = acls
        self._cluster = cluster
        self._logins = logins
        self._creates_topics = creates_topics
        self._told: dict[tuple[object, ...], int] = {}

    def may(self, call: OpenRequest, operation: AclOperation, topic: str) -> bool:
        """Return whether the sender of a request may do something with a topic."""
        principal, host = self._logins.principal_of(call.peer), host_of(call.peer)
        return self._acls.rules.allows(principal, host, operation, ResourceType.TOPIC, topic)

    def may_create(self, call: OpenRequest, topic: str) -> bool:
        """Return whether the sender of a request may create a topic."""
        principal, host = self._logins.principal_of(call.peer), host_of(call.peer)
        everywhere = (ResourceType.CLUSTER, CLUSTER_NAME)
        return self._acls.rules.allows(
            principal, host, AclOperation.CREATE, *everywhere
        ) or self.may(call, AclOperation.CREATE, topic)

    def may_read(self, call: OpenRequest, topic: str) -> bool:
        return self.may(call, AclOperation.READ, topic)

    def guarded(self, handlers: Handlers, needs: Mapping[int, Need | None]) -> dict[int, Handler]:
        """Return handlers that check first; those that need nothing are as they were."""
        missing: Collection[int] = handlers.keys() - needs.keys()
        assert not missing, f"no access rules for the APIs {sorted(missing)}"
        found: dict[int, Handler] = {}
        for key, handler in handlers.items():
            need = needs[key]
            found[key] = handler if need is None else partial(self._handle, handler, need)
        return found

    def _handle(
        self, handler: Handler, need: Need, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | Steps[ApiMessage] | None:
        check = Check(
            call,
            self._acls.rules,
            self._cluster,
            self._logins.principal_of(call.peer),
            creates_topics=self._creates_topics,
        )
        verdict = need(check)
        if check.denied:
            self._tell(check, now, effects)
        complete = verdict.complete
        if verdict.served is None:
            if verdict.broken:
                raise ProtocolError(verdict.broken)
            empty = check.empty()
            return empty if complete is None else complete(empty)
        if verdict.served is call.message and complete is None:
            return handler(call, now, effects)
        complete = complete or _unchanged
        answer = completed(handler, call, verdict.served, complete, now, effects)
        if verdict.broken:
            raise ProtocolError(verdict.broken)
        return answer

    def _tell(self, check: Check, now: int, effects: list[Effect]) -> None:
        """Log denials, each once a minute."""
        for operation, kind, name in check.denied:
            key = check.principal, check.host, operation, kind, name
            if now - self._told.get(key, now - TOLD_MS) < TOLD_MS:
                continue
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[key] = now
            text = (
                f"{printable(check.principal)[:200]} at {check.host} is denied {operation.name} of"
                f" {kind.name.lower()} {printable(name)[:200]!r}"
            )
            effects.append(LogLine("INFO", text))


def _unchanged(answer: ApiMessage) -> ApiMessage:
    return answer
