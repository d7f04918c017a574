"""9008, a request of our own between brokers: every broker has all users (`cluster/spreading`)."""

from __future__ import annotations

from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.spreading import RecordKind, RecordNews, Spreading
from steelyard.nodes.broker.peers.requests import USERS, PeerRequests
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.users import User, UserStore, check_user
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.command import Command

_USERS = RecordKind(USERS, "users", RecordNews[User], check_user)


class UserSpreading(Spreading[User]):
    """The users of this broker and of the others. `has_logins`: whether clients log in here."""

    def __init__(
        self,
        users: UserStore,
        cluster: Cluster,
        peer_requests: PeerRequests,
        faults: Faults,
        *,
        has_logins: bool,
    ) -> None:
        super().__init__(_USERS, users, cluster, peer_requests, faults, is_used=has_logins)

    @serves(USERS)
    def asked(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9008, from another broker. Raises ProtocolError or StorageError."""
        return self.requested(request)
