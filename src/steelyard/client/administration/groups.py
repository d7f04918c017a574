"""Consumer groups: members, assignments, progress and settings; producers.

Source: DefaultMQAdminExtImpl.java, which defines the receiver of each request.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from steelyard.client.administration.asking import broker_addresses, masters_of
from steelyard.client.administration.kafka_groups import KafkaGroups, kafka_progress
from steelyard.client.together import at_once
from steelyard.errors import BrokerError, RemotingError, RouteError, SteelyardError
from steelyard.groups.kafka.report import KafkaGroupReport
from steelyard.groups.overview import GroupProgress, group_progress
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStats,
    ConsumeTimeSpans,
    OffsetWrapper,
    ProducerConnection,
    QueueTimeSpan,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

MEMBERS_AT_ONCE = 50
"""How many members are asked at the same time."""

RELAY_TIMEOUT_MS = 12_000
"""Time-out of requests that a broker relays to a client, for which it allows 10 s."""


class Groups(KafkaGroups):
    """Methods for consumer groups."""

    # -- settings ----------------------------------------------------------------------------------

    async def groups(self) -> tuple[str, ...]:
        """Return all groups that have ever had a member, sorted."""
        topics = await self.topics()
        return tuple(
            sorted(t.removeprefix(RETRY_PREFIX) for t in topics if t.startswith(RETRY_PREFIX))
        )

    async def group_configs(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the settings of the groups of one broker.

        Apache brokers list every group, ours only those with settings.
        """
        reply = await self.ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return fastjson.read(SubscriptionGroupTable, reply.body).subscription_group_table

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the settings of a group at each broker that has any, by the broker's name."""
        names = {address: name for name, address in masters_of(await self.clusters()).items()}

        async def ask(address: str) -> tuple[str, SubscriptionGroupConfig | None]:
            return names[address], (await self.group_configs(address)).get(group)

        found = await self._each(names, ask)
        return {name: config for name, config in found if config is not None}

    async def update_group(
        self,
        config: SubscriptionGroupConfig,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[str, ...]:
        """Create or change a group on every master of a cluster, or one broker.

        Return their addresses.

        `cluster` may be omitted if there is only one.
        """
        addresses = await self._chosen(cluster, broker)
        body = fastjson.write(config)
        for address in addresses:
            await self.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        return tuple(addresses)

    async def delete_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        clean_offsets: bool = False,
    ) -> tuple[str, ...]:
        """Delete a group's settings, and with `clean_offsets` its offsets.

        Return the brokers' addresses.

        For a whole cluster its retry and dead-letter topics are deleted as well. `cluster` may be
        omitted if there is only one.
        """
        addresses = await self._chosen(cluster, broker)
        header = headers.DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offsets, remove_offset=clean_offsets
        )
        for address in addresses:
            await self.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        if broker is None:
            for prefix in (RETRY_PREFIX, DLQ_PREFIX):
                await self.delete_topic(prefix + group, cluster)
        return tuple(addresses)

    # -- members -----------------------------------------------------------------------------------

    async def members(self, group: str, broker: str | None = None) -> ConsumerConnection:
        """Return the group's members from the broker at this address, or the first that has any.

        Raises BrokerError 206 if no member is online.
        """
        if broker is not None:
            return await self._members_at(group, broker)
        offline: BrokerError | None = None
        for address in broker_addresses(await self._group_route(group)).values():
            try:
                return await self._members_at(group, address)
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                offline = error
            except RemotingError as error:
                self._unanswered(error)
        raise offline or RouteError(f"no broker of group {group} is in its route")

    async def _members_at(self, group: str, address: str) -> ConsumerConnection:
        header = headers.ConsumerGroupHeader(consumer_group=group)
        reply = await self.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return fastjson.read(ConsumerConnection, reply.body)

    async def running_info(
        self, group: str, client_id: str, *, threads: bool = False
    ) -> ConsumerRunningInfo:
        """Return a member's settings, subscriptions, queues and rates.

        With `threads` its stack traces.

        A broker relays the request.
        """
        header = headers.ConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=threads
        )
        body = await self._ask_one_of(group, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return fastjson.read(ConsumerRunningInfo, body)

    async def running_infos(
        self, group: str, client_ids: Iterable[str], *, threads: bool = False
    ) -> dict[str, ConsumerRunningInfo | None]:
        """Return `running_info` of several members, by client id; None if one does not answer.

        They are asked at the same time: a broker waits some ten seconds for a member that hangs.
        Raises RouteError if no broker knows the group.
        """
        ids = tuple(client_ids)

        async def ask(client_id: str) -> ConsumerRunningInfo | None:
            try:
                return await self.running_info(group, client_id, threads=threads)
            except RouteError:
                raise
            except SteelyardError:
                return None

        return dict(zip(ids, await at_once(ask, ids, MEMBERS_AT_ONCE), strict=True))

    async def member_offsets(
        self, group: str, topic: str, client_id: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return the positions of a group's members, or of one of them, in a topic, by client id.

        These are not the committed offsets.
        """
        header = headers.ConsumerStatusRequestHeader(
            topic=topic, group=group, client_addr=client_id or None
        )
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        body = await self._ask_one_of(group, code, header)
        return fastjson.read(ConsumerStatusBody, body).consumer_table

    async def _ask_one_of(self, group: str, code: int, header: headers.Header) -> bytes:
        """Ask the brokers of a group in turn until one answers."""
        failed: SteelyardError = RouteError(f"no broker of group {group} is in its route")
        for address in broker_addresses(await self._group_route(group)).values():
            try:
                reply = await self.ask(address, code, header, timeout_ms=RELAY_TIMEOUT_MS)
            except BrokerError as error:
                if error.code == ResponseCode.CONSUME_MSG_TIMEOUT:
                    raise  # the member hangs, whoever asks it
                failed = error
            except SteelyardError as error:
                failed = error
            else:
                return reply.body
        raise failed

    async def producers(self, group: str, topic: str) -> tuple[Connection, ...]:
        """Return the producers of a group connected to a topic's brokers.

        Each once, by client id.
        """
        found: dict[str, Connection] = {}
        header = headers.ProducerGroupHeader(producer_group=group)
        for address in broker_addresses(await self.route(topic)).values():
            try:
                reply = await self.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                continue  # none at this one
            except RemotingError as error:
                self._unanswered(error)
                continue
            for connection in fastjson.read(ProducerConnection, reply.body).connection_set:
                found.setdefault(connection.client_id, connection)
        return tuple(found[client_id] for client_id in sorted(found))

    # -- progress ----------------------------------------------------------------------------------

    async def consumer_progress(
        self, group: str, topic: str | None = None, *, holders: bool = True
    ) -> GroupProgress:
        """Return the progress of a group in each queue of its topics, or of one topic.

        With `holders` every member is asked which queues it holds. A group of Kafka clients only is
        reported by its coordinator (`kafka_group`). Raises RouteError if the group has not consumed
        anything yet.
        """
        try:
            stats = await self.consume_stats(group, topic)
        except RouteError:
            report = await self._kafka_group_or_none(group)
            progress = None if report is None else kafka_progress(report, topic)
            if progress is None or not progress.queues:
                raise
            return progress
        held = await self._holders(group) if holders else {}
        return group_progress(group, stats.offset_table, stats.consume_tps, held)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's offsets from all brokers that know it.

        As `consumer_progress`, without clients.
        """
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        addresses = broker_addresses(await self._group_route(group)).values()
        for stats in await self._each(addresses, lambda at: self._stats_at(at, group, topic)):
            table.update(stats.offset_table)
            rate += stats.consume_tps
        if not table:
            raise RouteError(f"group {group} has not consumed anything yet")
        return ConsumeStats(offset_table=table, consume_tps=rate)

    async def _stats_at(self, address: str, group: str, topic: str | None) -> ConsumeStats:
        header = headers.ConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        reply = await self.ask(address, RequestCode.GET_CONSUME_STATS, header)
        return fastjson.read(ConsumeStats, reply.body)

    async def _holders(self, group: str) -> dict[MessageQueue, str]:
        """Return the client id for each queue.

        Members that do not answer are left out, as in mqadmin.
        """
        holders: dict[MessageQueue, str] = {}
        with suppress(SteelyardError):
            members = (await self.members(group)).connection_set
            infos = await self.running_infos(group, [member.client_id for member in members])
            for client_id, info in infos.items():
                held = info.mq_table.items() if info is not None else ()
                holders |= {queue: client_id for queue, queued in held if not queued.dropped}
        return holders

    async def time_spans(self, group: str, topic: str) -> tuple[QueueTimeSpan, ...]:
        """Return when each queue's first, last and last consumed message were stored."""
        header = headers.TopicGroupRequestHeader(topic=topic, group=group)
        spans: list[QueueTimeSpan] = []
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        addresses = broker_addresses(await self.route(topic)).values()
        for reply in await self._each(addresses, lambda at: self.ask(at, code, header)):
            spans += fastjson.read(ConsumeTimeSpans, reply.body).consume_time_span_set
        return tuple(sorted(spans, key=lambda span: span.message_queue))

    async def oldest_waits(
        self, progress: GroupProgress | KafkaGroupReport
    ) -> dict[MessageQueue, int]:
        """Return how old the oldest message is that a group has not consumed, in ms, per queue.

        0 for a queue whose messages are all consumed. Queues of which it is unknown are missing:
        those of brokers that do not support the question, and of Kafka groups those without a
        committed offset that no member holds. Ages are those of the brokers' clocks. `progress`: as
        returned by `consumer_progress` or `kafka_group`.
        """
        if isinstance(progress, KafkaGroupReport):
            return await self._kafka_waits(kafka_progress(progress))
        try:
            await self.consume_stats(progress.group)
        except RouteError:  # a Kafka group: its offsets are with its coordinator
            return await self._kafka_waits(progress)
        lags = {row.queue: row.lag for row in progress.queues}
        waits: dict[MessageQueue, int] = {}
        for topic in sorted({queue.topic for queue in lags}):
            try:
                spans = await self.time_spans(progress.group, topic)
            except (BrokerError, RouteError):
                continue  # the topic was deleted meanwhile, or no broker supports it
            for span in spans:
                if span.message_queue in lags:
                    is_behind = lags[span.message_queue] > 0
                    waits[span.message_queue] = max(0, span.delay_time) if is_behind else 0
        return waits
