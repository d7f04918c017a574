"""Kafka groups according to their coordinators: members, rebalances and progress.

The request is our own (`nodes.broker.kafka.groups.reports`): Apache brokers, and ours without a
Kafka listener, do not support it.
"""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from steelyard.client.administration.asking import masters_of
from steelyard.client.administration.topics import Topics
from steelyard.decoding import prepared
from steelyard.errors import BrokerError, ProtocolError, RemotingError, RouteError, SteelyardError
from steelyard.groups.kafka.report import KafkaGroup, KafkaGroupReport, KafkaOffset
from steelyard.groups.overview import GroupProgress, QueueProgress
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import TopicOffset
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode
from steelyard.wire.remoting.headers import Header

T = TypeVar("T")

UNKNOWN = (
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
)
"""Responses of brokers that do not coordinate the group, or any group."""


class KafkaGroupsHeader(Header, frozen=True, kw_only=True):
    """9101 KAFKA_GROUPS."""

    group: str | None = None


class KafkaGroups(Topics):
    """Methods for Kafka groups."""

    async def kafka_groups(self) -> tuple[KafkaGroup, ...]:
        """Return the Kafka groups of all brokers, by name."""
        found: list[KafkaGroup] = []
        every = KafkaGroupsHeader()
        for body in await self._each(
            await self._brokers(), lambda at: self._ask_of_groups(at, every)
        ):
            if body is not None:
                found += _read(body, tuple[KafkaGroup, ...])
        return tuple(sorted(found, key=lambda group: group.group))

    async def kafka_group(self, group: str) -> KafkaGroupReport:
        """Return a Kafka group's state: rebalances, awaited members, members and progress.

        Raises RouteError if no broker coordinates such a group, RemotingError if a broker that may
        coordinate it is down.
        """
        header = KafkaGroupsHeader(group=group)
        failed: SteelyardError = RouteError(f"no broker coordinates a Kafka group {group}")
        for address in await self._brokers():
            try:
                body = await self._ask_of_groups(address, header)
            except RemotingError as error:
                failed = error
                continue
            if body is not None:
                report = _read(body, KafkaGroupReport)
                return replace(report, offsets=await self._with_ends(report.offsets))
        raise failed

    async def _kafka_waits(self, progress: GroupProgress) -> dict[MessageQueue, int]:
        """`Admin.oldest_waits` of a Kafka group, whose messages may be at any broker."""
        waits = {row.queue: 0 for row in progress.queues if row.lag <= 0}
        behind: dict[str, dict[MessageQueue, list[int]]] = {}
        for row in progress.queues:
            if row.lag > 0:
                of_broker = behind.setdefault(row.queue.broker_name, {})
                of_broker[row.queue] = [row.consumer_offset]
        masters = masters_of(await self.clusters()) if behind else {}
        for name, offsets in behind.items():
            if name not in masters:
                continue
            try:
                found = await self.store_times(masters[name], offsets)
            except BrokerError:
                continue  # of a version that does not support it
            except RemotingError as error:
                self._unanswered(error)
                continue
            now = found.now or time.time_ns() // 1_000_000
            waits |= {queue: max(0, now - at) for (queue, _), at in found.times.items() if at}
        return waits

    async def _kafka_group_or_none(self, group: str) -> KafkaGroupReport | None:
        try:
            return await self.kafka_group(group)
        except RouteError:
            return None

    async def _brokers(self) -> list[str]:
        """Return the masters of all clusters."""
        return list(masters_of(await self.clusters()).values())

    async def _ask_of_groups(self, address: str, header: KafkaGroupsHeader) -> bytes | None:
        try:
            return (await self.ask(address, SteelyardCode.KAFKA_GROUPS, header)).body
        except BrokerError as error:
            if error.code in UNKNOWN:
                return None
            raise

    async def _with_ends(self, rows: tuple[KafkaOffset, ...]) -> tuple[KafkaOffset, ...]:
        """Add where the partitions begin and end, as reported by their brokers."""
        found: dict[MessageQueue, TopicOffset] = {}
        for topic in sorted({row.topic for row in rows}):
            try:
                found |= await self.topic_stats(topic)
            except (RouteError, RemotingError):
                continue  # it was deleted meanwhile, or its broker is down
        return tuple(
            row
            if row.queue not in found
            else replace(
                row,
                begin_offset=found[row.queue].min_offset,
                end_offset=found[row.queue].max_offset,
            )
            for row in rows
        )


def kafka_progress(report: KafkaGroupReport, topic: str | None = None) -> GroupProgress:
    """Return the progress of a Kafka group in the form for RocketMQ groups.

    In one topic, or in all.

    What a member holds without a committed offset has the first one in its place; other partitions
    without one are missing. Deliveries to Kafka groups are not counted,
    so there is no rate.
    """
    clients = {member.member_id: member.client_id for member in report.members}
    rows = (
        QueueProgress(
            row.queue,
            row.end_offset,
            row.reached,
            0,
            clients.get(row.member_id, ""),
        )
        for row in report.offsets
        if row.reached is not None and row.end_offset is not None and topic in (None, row.topic)
    )
    return GroupProgress(report.group, tuple(sorted(rows, key=lambda row: row.queue)))


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(
            f"a broker's response about its Kafka groups is invalid: {error}"
        ) from None
