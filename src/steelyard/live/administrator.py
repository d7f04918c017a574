"""Asks nameservers and brokers on behalf of an operator: routes, clusters, statistics, topics.

Source: DefaultMQAdminExtImpl.java, for which request goes where.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from steelyard.errors import BrokerError, RemotingError, RouteError
from steelyard.live.driver import Driver
from steelyard.live.settings import check_address, nameserver_addresses
from steelyard.nodes.admin import AdminNode, Invoke
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    Body,
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    KVTable,
    OffsetWrapper,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

RETRY_PREFIX = "%RETRY%"
"""MixAll.RETRY_GROUP_TOPIC_PREFIX: a group's retry topic is on every broker that knows the group."""

MASTER_ID = 0

TIMEOUT_MS = 5_000
"""DefaultMQAdminExt."""

B = TypeVar("B", bound=Body)


class Administrator:
    """An async context manager; see the module's text.

    All methods raise RemotingError (nobody there, no reply), BrokerError (an error reply) or RouteError.
    """

    def __init__(
        self, nameservers: str | Sequence[str] | None = None, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.nameservers = nameserver_addresses(nameservers)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> Self:
        self._driver = Driver(AdminNode(), name="admin")
        self._driver.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._driver.close()

    # -- requests ----------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: headers.Header | None = None,
        body: bytes = b"",
    ) -> Command:
        """One request to one address. Raises BrokerError for every reply that is not SUCCESS."""
        command = Command(code, ext=headers.write(header) if header else {}, body=body)
        reply = await self._driver.ask(Invoke(check_address(address), command, self._timeout_ms))
        assert isinstance(reply, Command)
        if reply.code != ResponseCode.SUCCESS:
            raise BrokerError(reply.code, reply.remark, address)
        return reply

    async def ask_nameserver(
        self, code: RequestCode, header: headers.Header | None = None
    ) -> Command:
        """One request to the first nameserver that answers."""
        for address in self.nameservers[:-1]:
            try:
                return await self.ask(address, code, header)
            except RemotingError:
                continue
        return await self.ask(self.nameservers[-1], code, header)

    # -- nameserver --------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRouteData:
        """Queues and brokers of a topic. Raises RouteError where nobody knows it."""
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

    async def cluster(self) -> ClusterInfo:
        reply = await self.ask_nameserver(RequestCode.GET_BROKER_CLUSTER_INFO)
        return fastjson.read(ClusterInfo, reply.body)

    async def topics(self) -> tuple[str, ...]:
        """All topics, in the nameserver's order."""
        reply = await self.ask_nameserver(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return fastjson.read(TopicList, reply.body).topic_list

    async def masters(self, cluster_name: str) -> list[str]:
        """Addresses of the cluster's masters, by broker name. Raises RouteError for an unknown cluster."""
        info = await self.cluster()
        names = info.cluster_addr_table.get(cluster_name)
        if names is None:
            raise RouteError(f"the nameserver knows no cluster {cluster_name}")
        brokers = [info.broker_addr_table[name] for name in sorted(names)]
        return [broker.broker_addrs[MASTER_ID] for broker in brokers]

    # -- brokers -----------------------------------------------------------------------------------

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Offsets of every queue of a topic, from all brokers of its route."""
        table: dict[MessageQueue, TopicOffset] = {}
        header = headers.TopicRequestHeader(topic=topic)
        for address in broker_addresses(await self.route(topic)):
            reply = await self.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
            table.update(fastjson.read(TopicStatsTable, reply.body).offset_table)
        return table

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Offsets of a group, added up over all brokers that know it."""
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        header = headers.ConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        for address in broker_addresses(await self._group_route(group)):
            reply = await self.ask(address, RequestCode.GET_CONSUME_STATS, header)
            stats = fastjson.read(ConsumeStats, reply.body)
            table.update(stats.offset_table)
            rate += stats.consume_tps
        if not table:
            raise RouteError(f"group {group} has not consumed anything yet")
        return ConsumeStats(offset_table=table, consume_tps=rate)

    async def consumer_connection(
        self, group: str, address: str | None = None
    ) -> ConsumerConnection:
        """The group's members as one broker sees them: the one at `address`, or the first of its route."""
        if address is None:
            address = broker_addresses(await self._group_route(group))[0]
        header = headers.ConsumerGroupHeader(consumer_group=group)
        reply = await self.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return fastjson.read(ConsumerConnection, reply.body)

    async def queues_held(self, group: str, client_id: str) -> list[MessageQueue]:
        """Queues that a member says it holds; the group's broker passes the question on to it."""
        address = broker_addresses(await self._group_route(group))[0]
        header = headers.ConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        reply = await self.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = fastjson.loads(reply.body)
        table = info.get("mqTable", {}) if isinstance(info, dict) else {}
        return sorted(queue for queue in table if isinstance(queue, MessageQueue))

    async def groups_of(self, topic: str) -> tuple[str, ...]:
        """Groups that consume a topic, by the first broker of its route."""
        address = broker_addresses(await self.route(topic))[0]
        header = headers.TopicRequestHeader(topic=topic)
        reply = await self.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return fastjson.read(GroupList, reply.body).group_list

    async def runtime(self, address: str) -> dict[str, str]:
        """A broker's figures by name."""
        reply = await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return fastjson.read(KVTable, reply.body).table

    async def create_topic(self, address: str, topic: TopicConfig) -> None:
        """Create a topic on one broker, or change its queues."""
        header = headers.CreateTopicRequestHeader(
            topic=topic.topic_name,
            default_topic="TBW102",
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
        )
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic_on_brokers(self, cluster_name: str, topic: str) -> None:
        header = headers.TopicRequestHeader(topic=topic)
        for address in await self.masters(cluster_name):
            await self.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def delete_topic_on_nameservers(self, cluster_name: str, topic: str) -> None:
        header = headers.DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster_name)
        for address in self.nameservers:
            await self.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def _group_route(self, group: str) -> TopicRouteData:
        try:
            return await self.route(RETRY_PREFIX + group)
        except RouteError:
            raise RouteError(f"no broker knows a group {group}: it has had no member yet") from None


def broker_addresses(route: TopicRouteData) -> list[str]:
    """The address to ask per broker of a route: the master's, else any replica's."""
    return [_address_of(broker) for broker in route.broker_datas if broker.broker_addrs]


def _address_of(broker: BrokerData) -> str:
    master = broker.broker_addrs.get(MASTER_ID)
    return master or next(iter(broker.broker_addrs.values()))
