"""The parts that decide who clients are and what they may do, composed for the Kafka listener."""

from __future__ import annotations

from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.access.changes import AclChanges
from steelyard.nodes.broker.kafka.access.guard import Guard
from steelyard.nodes.broker.kafka.access.needs import NEEDS
from steelyard.nodes.broker.kafka.access.spreading import AclSpreading
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.logins.credentials import UserCredentials
from steelyard.nodes.broker.kafka.logins.links import ANONYMOUS, LinkLogins
from steelyard.nodes.broker.kafka.logins.mechanisms import Mechanisms
from steelyard.nodes.broker.kafka.logins.spreading import UserSpreading
from steelyard.nodes.broker.kafka.operations.tokens import DelegationTokens
from steelyard.nodes.broker.kafka.requests.channel import Handlers
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.requests import PeerRequests


class Security:
    """Logins, and the authorizer with its rules; each may be missing."""

    def __init__(
        self, parts: Parts, cluster: Cluster, peer_requests: PeerRequests, faults: Faults
    ) -> None:
        config, users, acls = parts.config.kafka, parts.users, parts.acls
        assert config is not None
        has_logins, is_guarded = bool(config.sasl_enabled_mechanisms), config.authorizer == "acl"
        mechanisms = Mechanisms(config, users, parts.tokens, parts.secrets) if has_logins else None
        self.logins = LinkLogins(config, mechanisms, parts.statistics.kafka_logins)
        self.gate = self.logins if has_logins else None
        """What links pass before anything else is served on them."""
        self._guard: Guard | None = None
        if is_guarded:
            creates_topics = config.auto_create_topics_enable
            self._guard = Guard(acls, cluster, self.logins, creates_topics=creates_topics)
        # What others ask the authorizer; None if there is none.
        self.may_create = None if self._guard is None else self._guard.may_create
        self.may_read = None if self._guard is None else self._guard.may_read
        user_spreading = UserSpreading(users, cluster, peer_requests, faults, has_logins=has_logins)
        acl_spreading = AclSpreading(acls, cluster, peer_requests, faults, is_used=is_guarded)
        self.spreading = (user_spreading, acl_spreading)
        """Parts whose records go from broker to broker."""
        self.serving = (
            self.logins,
            UserCredentials(users, user_spreading, parts.durability, faults),
            DelegationTokens(self.logins.principal_of, ANONYMOUS),
            AclChanges(acls, acl_spreading, parts.durability, faults, is_enabled=is_guarded),
        )
        """Parts that serve requests of Kafka clients."""

    @property
    def is_guarded(self) -> bool:
        """Return whether there is an authorizer."""
        return self._guard is not None

    def guarded(self, handlers: Handlers) -> Handlers:
        """Return handlers that serve what their clients may do."""
        return handlers if self._guard is None else self._guard.guarded(handlers, NEEDS)
