"""Servers seen from their clients: what can be asked of them over the wire.

`steelyard.Server` adds what only their starter can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from steelyard.checks import PositiveInt32
from steelyard.client.arguments import checked
from steelyard.client.blocking.admin import Admin
from steelyard.embedded import groups
from steelyard.embedded.administrator import OperatorAccess, administrator
from steelyard.embedded.costs import LedgerReader
from steelyard.embedded.kafka_connection import KafkaConnection
from steelyard.embedded.topics import create_kafka_topic
from steelyard.errors import CallTimeoutError, ConfigError, RouteError
from steelyard.ledger.tables import Handoff, Rebalance
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

KNOWN_SECONDS = 30.0
"""Time until all clients can find a new broker or topic."""

LOOK_AGAIN_SECONDS = 0.01


def _until(look: Callable[[], bool], what: str) -> None:
    """Wait until that is true. Raises CallTimeoutError, which says what is not known."""
    deadline = time.monotonic() + KNOWN_SECONDS
    while not look():
        if time.monotonic() >= deadline:
            raise CallTimeoutError(f"{what} was not known everywhere after {KNOWN_SECONDS:.0f} s")
        time.sleep(LOOK_AGAIN_SECONDS)


@checked
class AttachedServer:
    """Running servers that somebody else starts and stops.

    - `nameserver`: address of the nameserver, host:port, for RocketMQ clients.
    - `bootstrap_servers`: addresses of the brokers for Kafka clients, joined by commas; empty if
      they have no Kafka listeners.
    - `log`: the file with the servers' log, if there is one.

    Methods raise RemotingError for servers that do not answer, and ClosedError if they do not run.
    """

    def __init__(
        self,
        nameserver: str,
        bootstrap_servers: str = "",
        log: Path | None = None,
        *,
        access: OperatorAccess | None = None,
    ) -> None:
        """`access`: how the servers are asked; default: plainly, without an account."""
        self._nameserver = nameserver
        self._bootstrap_servers = bootstrap_servers
        self._log_path = log
        self._access = access or OperatorAccess(nameserver)
        self._ledger = LedgerReader(self._access)

    @property
    def nameserver(self) -> str:
        """The nameserver's address, host:port, for RocketMQ clients."""
        return self._nameserver

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for Kafka clients, host:port joined by commas; empty for none."""
        return self._bootstrap_servers

    def _operators(self) -> OperatorAccess:
        """Return how the servers are asked."""
        return self._access

    def create_topic(self, topic: str, *, queues: PositiveInt32 = 4) -> str:
        """Create a topic with `queues` queues on every broker; return its name.

        For Kafka clients these are `queues` partitions for each broker. Returns when clients of
        either dialect find all of them. A name with a dot is Kafka's: RocketMQ's producers refuse
        it. Raises BrokerError or KafkaError for a name that is not allowed, and
        BrokerError for one with a dot without Kafka listeners.
        """
        if "." in topic and self.bootstrap_servers:
            count = create_kafka_topic(self._operators(), self.bootstrap_servers, topic, queues)
            _until(lambda: self._leads(topic, count), f"topic {topic}")
            return topic
        with administrator(self._operators()) as admin:
            expected = len(admin.create_topic(topic, queues=queues)) * queues
            _until(
                lambda: self._has_queues(admin, topic, expected) and self._leads(topic, expected),
                f"topic {topic}",
            )
        return topic

    def _await_brokers(self, names: Sequence[str]) -> None:
        """Wait until RocketMQ clients find these brokers."""
        with administrator(self._operators()) as admin:
            _until(
                lambda: set(names) <= set(admin.clusters().broker_addr_table),
                f"each of the brokers {', '.join(names)}",
            )

    def _await_each_other(self, expected: int) -> None:
        """Wait until every broker tells Kafka clients of so many brokers."""
        _until(lambda: self._know_each_other(expected), "each broker")

    def _know_each_other(self, expected: int) -> bool:
        access = self._operators()
        for address in filter(None, self.bootstrap_servers.split(",")):
            with KafkaConnection(address, access) as connection:
                found = connection.call(METADATA, MetadataRequest(), MetadataResponse).brokers
            if len(found) != expected:
                return False
        return True

    @staticmethod
    def _has_queues(admin: Admin, topic: str, expected: int) -> bool:
        try:
            return len(admin.queues(topic)) == expected
        except RouteError:
            return False

    def _leads(self, topic: str, expected: int) -> bool:
        """Return whether all brokers tell Kafka clients of all partitions and their leaders."""
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        access = self._operators()
        for address in filter(None, self.bootstrap_servers.split(",")):
            with KafkaConnection(address, access) as link:
                (found,) = link.call(METADATA, request, MetadataResponse).topics
            leading = [each for each in found.partitions if each.error_code == ErrorCode.NONE]
            if len(leading) != expected:
                return False
        return True

    # -- groups ------------------------------------------------------------------------------------

    def rebalances(self, group: str | None = None) -> list[Rebalance]:
        """Return what each rebalance cost, of one group or of all, by group and time.

        The rows are those of the table `rebalances` in docs/LEDGER.md, and contain everything that
        happened before the call. The last rebalance of a group is still open: its row changes with
        later calls. Brokers that are down are left out.
        """
        return self._ledger.costs(group).rebalances

    def handoffs(self, group: str | None = None) -> list[Handoff]:
        """Return the queues that moved or stood still in these rebalances, by group and time.

        The rows are those of the table `handoffs` in docs/LEDGER.md.
        """
        return self._ledger.costs(group).handoffs

    def lose_member(self, group: str, member: str | None = None) -> str:
        """Make the coordinator of a Kafka group forget a member; return its member id.

        To the others it is as if the member's session had ended; the member itself is told so by
        its next request, and joins again. `member`: a member id, or a client or instance id that
        only one member has; default: the first by member id. Raises ArgumentError for an unknown
        one, RouteError if there is no such Kafka group with members. RocketMQ groups cannot lose a
        member in this way.
        """
        return groups.lose_member(self._operators(), self.bootstrap_servers, group, member)

    def force_rebalance(self, group: str) -> None:
        """Make a group of either dialect rebalance: a member without queues joins and leaves.

        In groups of Kafka's classic protocol every member joins again; in those of the consumer
        protocol (KIP-848) each gets new epochs and keeps its partitions; in RocketMQ groups each
        allocates the queues anew. Returns when that has begun. Raises RouteError if the group has
        no members, ArgumentError for a Kafka Streams group, which needs a member with its topology.
        """
        groups.force_rebalance(self._operators(), self.bootstrap_servers, group)

    # -- the log -----------------------------------------------------------------------------------

    def log(self, start: int = 0) -> str:
        """Return the servers' log from this byte on; empty if there is none."""
        if self._log_path is None:
            return ""
        try:
            with self._log_path.open("rb") as file:
                file.seek(start)
                return file.read().decode(errors="replace")
        except OSError as error:
            raise ConfigError(f"the log cannot be read: {error.strerror}") from None

    def log_size(self) -> int:
        """Return the size of the log in bytes, for a later `log(start)`."""
        return self._log_path.stat().st_size if self._log_path is not None else 0
