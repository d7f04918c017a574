"""9010, a request of our own between brokers: every broker has all quotas (`cluster/spreading`)."""

from __future__ import annotations

from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.spreading import RecordKind, RecordNews, Spreading
from steelyard.nodes.broker.peers.requests import QUOTAS, PeerRequests
from steelyard.nodes.broker.quotas import QuotaStore, QuotaValues, check_quota
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.command import Command

_QUOTAS = RecordKind(QUOTAS, "quotas", RecordNews[QuotaValues], check_quota)


class QuotaSpreading(Spreading[QuotaValues]):
    """The quotas of this broker and of the others."""

    def __init__(
        self, quotas: QuotaStore, cluster: Cluster, peer_requests: PeerRequests, faults: Faults
    ) -> None:
        super().__init__(_QUOTAS, quotas, cluster, peer_requests, faults, is_used=False)

    @serves(QUOTAS)
    def asked(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9010, from another broker. Raises ProtocolError or StorageError."""
        return self.requested(request)
