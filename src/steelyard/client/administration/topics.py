"""Topics: listing, routes and offsets; creation, changes and deletion.

Source: DefaultMQAdminExtImpl.java, for which request goes where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from steelyard.checks import Int32
from steelyard.client.administration.asking import Asking, broker_addresses
from steelyard.errors import BrokerError, ProtocolError
from steelyard.routes.table import ORDER_TOPIC_CONFIG
from steelyard.types import MessageQueue
from steelyard.wire import figures
from steelyard.wire.figures import TIMES_MAX, QueueTimes, StoreTimes
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    GroupList,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.names import DEFAULT_TOPIC, PERM_READ, PERM_READ_WRITE


class StoredTimes(NamedTuple):
    """When messages were stored, in ms by the clock of their broker.

    `now`: what that clock showed when it answered. `times`: by queue and offset; 0 for a message
    that does not exist yet.
    """

    now: int
    times: dict[tuple[MessageQueue, int], int]


class Topics(Asking):
    """Methods for topics."""

    async def topics(self) -> tuple[str, ...]:
        """Return all topics in the nameserver's order, including `%RETRY%` and `%DLQ%` topics."""
        reply = await self.ask_nameserver(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return fastjson.read(TopicList, reply.body).topic_list

    async def topics_of(self, cluster: str) -> tuple[str, ...]:
        """Return the topics of one cluster."""
        header = headers.ClusterRequestHeader(cluster=cluster)
        reply = await self.ask_nameserver(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return fastjson.read(TopicList, reply.body).topic_list

    async def system_topics(self) -> tuple[str, ...]:
        """Return the brokers' system topics, sorted."""
        reply = await self.ask_nameserver(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        found = fastjson.read(TopicList, reply.body)
        topics = set(found.topic_list)
        if found.broker_addr:
            topics |= set(await self.system_topics_of(found.broker_addr))
        return tuple(sorted(topics))

    async def system_topics_of(self, broker: str) -> tuple[str, ...]:
        """Return the system topics of the broker at this address."""
        reply = await self.ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return fastjson.read(TopicList, reply.body).topic_list

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, sorted."""
        route = await self.route(topic)
        return tuple(
            sorted(
                MessageQueue(topic, data.broker_name, queue_id)
                for data in route.queue_datas
                if data.perm & PERM_READ
                for queue_id in range(data.read_queue_nums)
            )
        )

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return first offset, next offset and last store time of every queue of a topic."""
        table: dict[MessageQueue, TopicOffset] = {}
        addresses = broker_addresses(await self.route(topic)).values()
        for reach in await self._each(addresses, lambda at: self._reach_at(at, topic)):
            table.update(reach)
        return table

    async def _reach_at(self, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
        header = headers.TopicRequestHeader(topic=topic)
        reply = await self.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return fastjson.read(TopicStatsTable, reply.body).offset_table

    async def store_times(
        self,
        broker: str,
        offsets: Mapping[MessageQueue, Iterable[int]],
        *,
        timeout_ms: int | None = None,
    ) -> StoredTimes:
        """Return when messages in queues of the broker at this address were stored.

        An offset that was deleted stands for the first one that is left. The messages may be of
        RocketMQ or Kafka producers. The request is our own: Apache brokers answer BrokerError 3.
        """
        asked = [(queue, offset) for queue, found in offsets.items() for offset in sorted(found)]
        times: dict[tuple[MessageQueue, int], int] = {}
        now = 0
        for start in range(0, len(asked), TIMES_MAX):
            part = asked[start : start + TIMES_MAX]
            queues = tuple(
                QueueTimes(queue.topic, queue.queue_id, tuple(offset for _, offset in rows))
                for queue, rows in groupby(part, key=itemgetter(0))
            )
            reply = await self.ask(
                broker,
                SteelyardCode.STORE_TIMES,
                body=figures.write(StoreTimes(queues)),
                timeout_ms=timeout_ms,
            )
            answer = figures.read(reply.body, StoreTimes)
            values = [value for queue in answer.queues for value in queue.values]
            if len(values) != len(part):
                raise ProtocolError(f"{broker} was asked for {len(part)} times, not {len(values)}")
            times.update(zip(part, values, strict=True))
            now = answer.now
        return StoredTimes(now, times)

    async def groups_of(self, topic: str) -> tuple[str, ...]:
        """Return the groups that consume or have consumed a topic, sorted."""
        groups: set[str] = set()
        header = headers.TopicRequestHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        addresses = broker_addresses(await self.route(topic)).values()
        for reply in await self._each(addresses, lambda at: self.ask(at, code, header)):
            groups |= set(fastjson.read(GroupList, reply.body).group_list)
        return tuple(sorted(groups))

    async def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """Return the settings of all topics of the broker at this address, by topic."""
        reply = await self.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        return fastjson.read(TopicConfigTable, reply.body).topic_config_table

    async def create_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        queues: Int32 = 8,
        write_queues: Int32 | None = None,
        perm: Int32 = PERM_READ_WRITE,
        order: bool = False,
    ) -> tuple[str, ...]:
        """Create or change a topic on every master of a cluster, or one broker.

        Return their addresses.

        `cluster` may be omitted if there is only one. `queues`: per broker; `write_queues`: if the
        number of writable queues differs from that of readable ones, as during a change of their
        number. `perm`: 2 write, 4 read, 6 both.
        """
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=perm,
            order=order,
        )
        return await self.update_topic(config, cluster=cluster, broker=broker)

    async def update_topic(
        self, topic_config: TopicConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Create or change a topic on every master of a cluster, or one broker.

        Return their addresses.

        `cluster` may be omitted if there is only one. The attributes of a topic stay as they are.
        """
        header = headers.CreateTopicRequestHeader(
            topic=topic_config.topic_name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=topic_config.read_queue_nums,
            write_queue_nums=topic_config.write_queue_nums,
            perm=topic_config.perm,
            topic_filter_type=topic_config.topic_filter_type,
            topic_sys_flag=topic_config.topic_sys_flag,
            order=topic_config.order,
        )
        addresses = await self._chosen(cluster, broker)
        for address in addresses:
            await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return tuple(addresses)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic and its messages from all brokers of a cluster, then from the nameservers.

        `cluster` may be omitted if there is only one.
        """
        cluster = await self._cluster(cluster)
        header = headers.TopicRequestHeader(topic=topic)
        for address in await self.masters(cluster):
            await self.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        gone = headers.DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self.tell_nameservers(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)

    # -- settings in the nameserver ----------------------------------------------------------------

    async def setting(self, namespace: str, key: str) -> str | None:
        """Return a setting stored by the nameserver, None if there is none."""
        header = headers.KVConfigHeader(namespace=namespace, key=key)
        try:
            reply = await self.ask_nameserver(RequestCode.GET_KV_CONFIG, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return headers.read(headers.ValueResponseHeader, reply.ext).value

    async def put_setting(self, namespace: str, key: str, value: str) -> None:
        """Store a setting in every nameserver."""
        header = headers.KVConfigHeader(namespace=namespace, key=key, value=value)
        await self.tell_nameservers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_setting(self, namespace: str, key: str) -> None:
        """Delete a setting from every nameserver; it need not exist."""
        header = headers.KVConfigHeader(namespace=namespace, key=key)
        await self.tell_nameservers(RequestCode.DELETE_KV_CONFIG, header)

    async def order_conf(self, topic: str) -> str | None:
        """Return a strictly ordered topic's fixed queues, `broker:queues;broker:queues`, or None.

        Producers send to these queues whether or not their broker is up.
        """
        return await self.setting(ORDER_TOPIC_CONFIG, topic)

    async def put_order_conf(self, topic: str, order_conf: str) -> None:
        """Fix the queues of an ordered topic.

        `broker-a:4;broker-b:4` keeps the first four of each broker.
        """
        await self.put_setting(ORDER_TOPIC_CONFIG, topic, order_conf)

    async def delete_order_conf(self, topic: str) -> None:
        """Return the topic to the queues of its route."""
        await self.delete_setting(ORDER_TOPIC_CONFIG, topic)
