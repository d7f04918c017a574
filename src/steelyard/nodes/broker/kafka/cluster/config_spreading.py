"""9011, a request of our own between brokers: every broker has all settings changed at run time."""

from __future__ import annotations

from steelyard.nodes.broker.dynamic_configs import DynamicConfig, DynamicConfigs, check_config
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.spreading import RecordKind, RecordNews, Spreading
from steelyard.nodes.broker.peers.requests import CONFIGS, PeerRequests
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.command import Command

_CONFIGS = RecordKind(CONFIGS, "settings", RecordNews[DynamicConfig], check_config)


class ConfigSpreading(Spreading[DynamicConfig]):
    """The settings of brokers and groups that this broker and the others have."""

    def __init__(
        self, configs: DynamicConfigs, cluster: Cluster, peer_requests: PeerRequests, faults: Faults
    ) -> None:
        super().__init__(_CONFIGS, configs, cluster, peer_requests, faults, is_used=False)

    @serves(CONFIGS)
    def asked(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9011, from another broker. Raises ProtocolError or StorageError."""
        return self.requested(request)
