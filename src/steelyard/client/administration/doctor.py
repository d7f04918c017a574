"""Collection of the facts about a group for `groups.doctor` and `groups.kafka.doctor`."""

from __future__ import annotations

import time

from steelyard.client.administration.asking import broker_addresses
from steelyard.client.administration.groups import Groups
from steelyard.errors import BrokerError, RouteError
from steelyard.groups import doctor
from steelyard.groups.doctor import Diagnosis, Observed
from steelyard.groups.kafka import doctor as kafka_doctor
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import ConsumerConnection
from steelyard.wire.remoting.codes import ResponseCode


class Doctor(Groups):
    """Diagnosis of groups."""

    async def diagnose(self, group: str) -> list[Diagnosis]:
        """What keeps a group from working, and what to change; empty for a group in good health.

        Asks every broker for the members, and every member for the queues that it holds; for a
        Kafka group, its coordinator. During a rebalance some findings are transient: repeat the
        diagnosis to confirm them. If a RocketMQ and a Kafka group share the name, the RocketMQ
        group is diagnosed. Raises RouteError for a group that has never existed.
        """
        try:
            addresses = broker_addresses(await self._group_route(group))
        except RouteError:
            report = await self._kafka_group_or_none(group)
            if report is None:
                raise
            return kafka_doctor.diagnose(report, time.time_ns() // 1_000_000)
        connections = {name: await self._seen_at(group, at) for name, at in addresses.items()}
        topics = {
            topic
            for found in connections.values()
            if found is not None
            for topic in found.subscription_table
        }
        queues: dict[str, tuple[MessageQueue, ...]] = {}
        for topic in sorted(topics):
            route = await self._route_or_none(topic)
            if route is None:
                continue
            queues[topic] = await self.queues(topic)
            for name, at in broker_addresses(route).items():
                if name not in connections:
                    connections[name] = await self._seen_at(group, at)
        clients = {
            member.client_id
            for found in connections.values()
            if found is not None
            for member in found.connection_set
        }
        infos = await self.running_infos(group, sorted(clients))
        now = time.time_ns() // 1_000_000
        return doctor.diagnose(Observed(group, now, connections, infos, queues))

    async def _seen_at(self, group: str, address: str) -> ConsumerConnection | None:
        try:
            return await self.members(group, address)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
