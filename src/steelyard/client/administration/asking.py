"""Requests of an administrator: to an address, nameservers, or a topic's or group's brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from steelyard.addresses import BROKER_PORT
from steelyard.checks import Int32
from steelyard.client.settings import (
    check_address,
    nameserver_addresses,
    tls_context,
)
from steelyard.config import ClientConfig, check
from steelyard.driver.driver import Driver
from steelyard.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    RemotingError,
    RouteError,
)
from steelyard.nodes.admin import AdminNode, Invoke
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import BrokerData, ClusterInfo, TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import MASTER_ID, retry_topic
from steelyard.wire.strangers import not_a_nameserver

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

ROUTE_REQUESTS = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)
"""Requests that every nameserver knows and no broker does."""

TIMEOUT_MS = 5_000
"""Default time-out, that of DefaultMQAdminExt."""


class Asking:
    """An async context manager. `config`: the settings in use; `nameservers`: their addresses.

    All methods raise RemotingError (unreachable, no reply), BrokerError (an error reply),
    RouteError (no nameserver knows the topic, group or cluster) or ClosedError.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        access_key: str = "",
        secret_key: str = "",
        security_token: str = "",
        tls: bool | ssl.SSLContext | None = None,
        timeout_ms: int = TIMEOUT_MS,
        address_translation: Sequence[str] = (),
    ) -> None:
        self.config = ClientConfig(
            nameservers=nameserver_addresses(nameservers),
            call_timeout_ms=timeout_ms,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            address_translation=tuple(address_translation),
        )
        check(self.config)
        self._tls = tls_context(tls)
        self._driver: Driver | None = None
        self._closed = False

    @property
    def nameservers(self) -> tuple[str, ...]:
        return self.config.nameservers

    async def start(self) -> Self:
        """Start the administrator; `async with` calls this."""
        if self._closed:
            raise ClosedError("the admin was closed; create a new one")
        if self._driver is None:
            self._driver = Driver(
                AdminNode(self.config),
                name="admin",
                tls=self._tls,
                address_translation=self.config.address_translation,
            )
            self._driver.start()
        return self

    async def close(self) -> None:
        """Close all connections; `async with` calls this. May be called again."""
        self._closed = True
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    stop = close

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- requests ----------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: Int32,
        header: headers.Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        """Send a request to one address. Raises BrokerError for every reply that is not SUCCESS."""
        if self._driver is None:
            raise ClosedError("the admin is not running; use `async with` or start()")
        command = Command(int(code), ext=headers.write(header) if header else {}, body=body)
        invoke = Invoke(
            check_address(address, BROKER_PORT), command, timeout_ms or self.config.call_timeout_ms
        )
        reply = await self._driver.ask(invoke)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark, address)
        return reply

    async def ask_nameserver(self, code: Int32, header: headers.Header | None = None) -> Command:
        """Send a request to the first nameserver that answers."""
        for address in self.nameservers[:-1]:
            try:
                return await self._ask_nameserver(address, code, header)
            except RemotingError:
                continue
        return await self._ask_nameserver(self.nameservers[-1], code, header)

    async def _ask_nameserver(
        self, address: str, code: int, header: headers.Header | None
    ) -> Command:
        try:
            return await self.ask(address, code, header)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in ROUTE_REQUESTS:
                raise ConnectError(not_a_nameserver(address)) from error
            raise

    async def tell_nameservers(self, code: Int32, header: headers.Header) -> list[Command]:
        """Send a request to every nameserver, because they do not communicate with each other."""
        return [await self.ask(address, code, header) for address in self.nameservers]

    async def _each(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
        """Ask several brokers, one after the other; return their answers in this order.

        Raises the RemotingError of the first that does not answer, unless `_unanswered` allows to
        continue without it.
        """
        answers: list[T] = []
        for address in addresses:
            try:
                answers.append(await ask(address))
            except RemotingError as error:
                self._unanswered(error)
        return answers

    def _unanswered(self, error: RemotingError) -> None:
        """One of several brokers did not answer: raise, so that no result is only a part."""
        raise error

    # -- who is where ------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRouteData:
        """Return queues and brokers of a topic. Raises RouteError if no nameserver knows it."""
        header = headers.GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            reply = await self.ask_nameserver(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise RouteError(
                    f"no route for topic {topic}: the nameserver does not know it"
                ) from None
            raise
        return fastjson.read(TopicRouteData, reply.body)

    async def clusters(self) -> ClusterInfo:
        """Return all clusters and brokers that the nameserver knows."""
        reply = await self.ask_nameserver(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.read(ClusterInfo, reply.body)

    async def masters(self, cluster: str) -> list[str]:
        """Return the masters of a cluster by broker name.

        Raises RouteError for an unknown cluster.
        """
        info = await self.clusters()
        names = info.cluster_addr_table.get(cluster)
        if names is None:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise RouteError(f"the nameserver knows no cluster {cluster}; it knows: {known}")
        return [address for name, address in masters_of(info).items() if name in names]

    async def _chosen(self, cluster: str | None, broker: str | None) -> list[str]:
        """Return the addresses for a request to a cluster or a broker.

        Without either, these are the masters of the only cluster.
        """
        if broker is None:
            return await self.masters(await self._cluster(cluster))
        if cluster is not None:
            raise ConfigError("give either the name of a cluster or the address of a broker")
        return [check_address(broker, BROKER_PORT)]

    async def _cluster(self, given: str | None) -> str:
        """Return the cluster of this name, or the only one that exists."""
        if given is not None:
            return given
        names = sorted((await self.clusters()).cluster_addr_table)
        if len(names) != 1:
            raise ConfigError(f"which cluster? the nameserver knows: {', '.join(names) or 'none'}")
        return names[0]

    async def _route_or_none(self, topic: str) -> TopicRouteData | None:
        try:
            return await self.route(topic)
        except RouteError:
            return None

    async def _group_route(self, group: str) -> TopicRouteData:
        try:
            return await self.route(retry_topic(group))
        except RouteError:
            raise RouteError(f"no broker knows group {group}: it has had no member yet") from None


def queue_name(queue: MessageQueue) -> str:
    """Return a queue as people name it in a sentence."""
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


def masters_of(info: ClusterInfo) -> dict[str, str]:
    """Return the address of each broker's master by the broker's name, in the order of the names.

    Brokers that have only slaves are left out.
    """
    table = info.broker_addr_table
    found = {name: table[name].broker_addrs.get(MASTER_ID) for name in sorted(table)}
    return {name: address for name, address in found.items() if address is not None}


def broker_addresses(route: TopicRouteData) -> dict[str, str]:
    """Return the address for each broker name of a route: the master's, otherwise any replica's."""
    return {b.broker_name: _address_of(b) for b in route.broker_datas if b.broker_addrs}


def _address_of(broker: BrokerData) -> str:
    master = broker.broker_addrs.get(MASTER_ID)
    return master or next(iter(broker.broker_addrs.values()))
