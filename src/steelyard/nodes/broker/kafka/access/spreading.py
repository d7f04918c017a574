"""9009, a request of our own between brokers: every broker has all access rules.

They spread as users do (`cluster/spreading`).
"""

from __future__ import annotations

from steelyard.nodes.broker.acls import AclEntry, AclStore, check_entry
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.spreading import RecordKind, RecordNews, Spreading
from steelyard.nodes.broker.peers.requests import ACLS, PeerRequests
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.command import Command

_ACLS = RecordKind(ACLS, "access rules", RecordNews[AclEntry], check_entry)


class AclSpreading(Spreading[AclEntry]):
    """The access rules of this broker and of the others. `is_used`: whether they apply here."""

    def __init__(
        self,
        acls: AclStore,
        cluster: Cluster,
        peer_requests: PeerRequests,
        faults: Faults,
        *,
        is_used: bool,
    ) -> None:
        super().__init__(_ACLS, acls, cluster, peer_requests, faults, is_used=is_used)

    @serves(ACLS)
    def asked(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9009, from another broker. Raises ProtocolError or StorageError."""
        return self.requested(request)
