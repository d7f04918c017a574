"""What nameservers know, over connections that are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError, SteelyardError
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.access import Access
from steelyard.spark.servers.link import Link
from steelyard.spark.servers.wrong_port import explained
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ClusterInfo, KVTable, TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import MASTER_ID, PERM_WRITE
from steelyard.wire.strangers import Stranger, not_a_nameserver

T = TypeVar("T")


class WritableRoute(NamedTuple):
    """The writable queues of a topic, in order, and the addresses of their brokers' masters."""

    queues: Sequence[QueueName]
    addresses: Mapping[str, str]


class ServerLinks:
    """Routes, and connections to servers.

    Every method raises RemotingError, BrokerError or ProtocolError.
    """

    def __init__(self, nameservers: Sequence[str], timeout_ms: int, access: Access) -> None:
        self._nameservers = nameservers
        self._timeout_ms = timeout_ms
        self._access = access
        self._links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def drop(self, address: str, link: Link | None = None) -> None:
        """Close the connection to a server, if it is `link` or that is None."""
        known = self._links.get(address)
        if known is not None and link in (None, known):
            known.close()
            del self._links[address]

    def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.

        Raises RouteError if there is none, RemotingError if no broker has registered yet: a
        nameserver that has just started knows no topic.
        """
        header = headers.GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=headers.write(header))
        try:
            return self.any_nameserver(
                lambda link: fastjson.read(TopicRouteData, link.call(request).body)
            )
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            self.cluster()
            raise RouteError(
                f"{error.address} knows no topic {topic!r}: check its name, or create it"
                " (steelyard admin updateTopic)"
            ) from None

    def writable(self, topic: str) -> WritableRoute:
        """Return what writers need of a topic's route. Raises RouteError if there is nothing."""
        found = self.route(topic)
        addresses = {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in found.broker_datas
            if MASTER_ID in broker.broker_addrs
        }
        queues = [
            (topic, data.broker_name, queue_id)
            for data in sorted(found.queue_datas, key=lambda data: data.broker_name)
            if data.perm & PERM_WRITE and data.broker_name in addresses
            for queue_id in range(data.write_queue_nums)
        ]
        if not queues:
            raise RouteError(f"topic {topic!r} has no queue that may be written to")
        return WritableRoute(queues, addresses)

    def cluster(self) -> ClusterInfo:
        """Return the brokers that are registered. Raises RemotingError if there are none yet."""
        request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
        found = self.any_nameserver(
            lambda link: fastjson.read(ClusterInfo, link.call(request).body)
        )
        if not found.broker_addr_table:
            raise RemotingError(f"no broker has registered with {', '.join(self._nameservers)} yet")
        return found

    def settings(self, namespace: str) -> dict[str, str]:
        """Return what nameservers keep in a namespace; nothing if there is none."""
        ext = headers.write(headers.KVConfigHeader(namespace=namespace))
        request = Command(RequestCode.GET_KVLIST_BY_NAMESPACE, ext=ext)
        try:
            return self.any_nameserver(
                lambda link: fastjson.read(KVTable, link.call(request).body).table
            )
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return {}

    def setting(self, namespace: str, key: str) -> str | None:
        """Return what nameservers keep under a key of a namespace."""
        ext = headers.write(headers.KVConfigHeader(namespace=namespace, key=key))
        request = Command(RequestCode.GET_KV_CONFIG, ext=ext)
        try:
            return self.any_nameserver(lambda link: link.call(request).ext.get("value"))
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None

    def any_nameserver(self, ask: Callable[[Link], T]) -> T:
        """Ask the first nameserver that answers; raise the last one's error if none does.

        The one that answered is asked first from then on: to ask a machine that is gone takes a
        time-out. Raises ConfigError for an address that is a broker's, or of a server of Kafka's.
        """
        failure: SteelyardError | None = None
        for address in self._nameservers:
            try:
                found = ask(self.link(address))
            except RemotingError as error:
                self.drop(address)
                failure = explained(
                    error, address, Stranger.REMOTING, self._timeout_ms, self._access
                )
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                failure = ConfigError(not_a_nameserver(address))
            else:
                others = (one for one in self._nameservers if one != address)
                self._nameservers = (address, *others)
                return found
        assert failure is not None, "the options have at least one nameserver"
        raise failure

    def link(self, address: str) -> Link:
        """Return the connection to a server, opened if there is none."""
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._timeout_ms, self._access)
        return link
