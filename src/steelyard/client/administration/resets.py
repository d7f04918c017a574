"""Resets of a group's offsets in a topic; copies of another group's.

Members that are online must be notified, because each keeps its own offsets; the brokers do so
(222). A group without members is reset by committing offsets for it (15), as mqadmin's
resetOffsetByTimeOld does.

Only brokers known to support it are sent a request for one queue, or for an offset instead of a
time: 4.9 brokers ignore these fields and would reset the whole topic to its beginning.

The offsets of another group are copied by the brokers (314), which know what it has committed;
208, by which mqadmin copies them, has 0 where nothing is committed.
Source: DefaultMQAdminExtImpl.java: resetOffsetByTimestamp, resetOffsetByTimestampOld,
resetOffsetByQueueId; AdminBrokerProcessor.cloneGroupOffset.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from steelyard.client.administration.asking import broker_addresses, queue_name
from steelyard.client.administration.brokers import Brokers
from steelyard.client.administration.groups import Groups
from steelyard.errors import BrokerError, ConfigError, RouteError
from steelyard.groups.overview import QueueReset
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ResetOffsetBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

END = -1
"""Timestamp that stands for the end: one past the last message."""

RESETS_OF_ONE_QUEUE = ("useServerSideResetOffset", "resetOffsetOfOneQueue")
"""Settings of brokers that support `queueId` and `offset`: 5.x if the first is true, and ours."""


ResetTime = Annotated[int, Meta(ge=END, le=2**63 - 1)]


class Resets(Groups, Brokers):
    """Methods that reset and copy offsets."""

    async def reset_offset(
        self,
        group: str,
        topic: str,
        *,
        timestamp: ResetTime | None = None,
        queue: MessageQueue | None = None,
        offset: int | None = None,
        force: bool = True,
    ) -> tuple[QueueReset, ...]:
        """Reset a group to the first message stored at `timestamp`, or one `queue` to an `offset`.

        `timestamp` is in ms, -1 means after the last message. Returns the new offset of each queue,
        sorted. Without `force` a queue is only moved back. Online members follow at their own pace,
        Java's after ten seconds; messages that they hold at that moment may still be consumed.
        Raises ConfigError if the arguments do not match, or if members are online and a broker is
        too old to reset one queue.
        """
        if (timestamp is None) == (offset is None):
            raise ConfigError("give either timestamp, or queue and offset")
        if offset is not None:
            if queue is None or queue.topic != topic:
                raise ConfigError(f"an offset needs a queue of topic {topic}; give queue=...")
            return (await self._reset_queue(group, queue, offset),)
        if queue is not None:
            raise ConfigError("a timestamp applies to all queues; give offset=... for one queue")
        assert timestamp is not None
        resets: list[QueueReset] = []
        for address in broker_addresses(await self.route(topic)).values():
            resets += await self._reset_at(address, group, topic, timestamp, force)
        return tuple(sorted(resets, key=lambda reset: reset.queue))

    # -- by time -----------------------------------------------------------------------------------

    async def _reset_at(
        self, address: str, group: str, topic: str, timestamp: int, force: bool
    ) -> list[QueueReset]:
        header = headers.ResetOffsetRequestHeader(
            group=group, topic=topic, timestamp=timestamp, is_force=force
        )
        try:
            reply = await self.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except BrokerError as error:
            # A 4.9 broker also refuses if nothing is committed for one of the queues.
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE and await self._online(
                address, group
            ):
                raise
            return await self._commit_at(address, group, topic, timestamp, force)
        table = fastjson.read(ResetOffsetBody, reply.body).offset_table
        return [QueueReset(queue, offset) for queue, offset in table.items()]

    async def _commit_at(
        self, address: str, group: str, topic: str, timestamp: int, force: bool
    ) -> list[QueueReset]:
        """Reset a group without members by committing offsets in all queues of one broker."""
        known = (await self._stats_at(address, group, topic)).offset_table
        resets: list[QueueReset] = []
        for queue, reach in (await self._reach_at(address, topic)).items():
            before = known[queue].consumer_offset if queue in known else reach.min_offset
            place = await self._place_at(address, queue, timestamp)
            if force or place <= before:
                await self._commit(address, group, queue, place)
            else:
                place = before
            resets.append(QueueReset(queue, place, before, reach.max_offset))
        return resets

    async def _place_at(self, address: str, queue: MessageQueue, timestamp: int) -> int:
        """Return the first message stored at a time or later."""
        if timestamp == END:
            end = headers.QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
            reply = await self.ask(address, RequestCode.GET_MAX_OFFSET, end)
        else:
            header = headers.SearchOffsetRequestHeader(
                topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp
            )
            reply = await self.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return headers.read(headers.OffsetResponseHeader, reply.ext).offset

    # -- one queue ---------------------------------------------------------------------------------

    async def _reset_queue(self, group: str, queue: MessageQueue, offset: int) -> QueueReset:
        addresses = broker_addresses(await self.route(queue.topic))
        address = addresses.get(queue.broker_name)
        if address is None:
            raise ConfigError(f"topic {queue.topic} has no broker {queue.broker_name}")
        reach = (await self._reach_at(address, queue.topic)).get(queue)
        if reach is None:
            raise ConfigError(f"{queue_name(queue)} does not exist")
        if not reach.min_offset <= offset <= reach.max_offset:
            raise ConfigError(
                f"offset {offset} of {queue_name(queue)} does not exist; the broker has"
                f" {reach.min_offset} to {reach.max_offset}"
            )
        config = await self.broker_config(address)
        understood = any(config.get(name) == "true" for name in RESETS_OF_ONE_QUEUE)
        online = await self._online(address, group)
        if online and not understood:
            raise ConfigError(
                f"broker {queue.broker_name} cannot reset a single queue while group {group} is"
                " online;"
                " stop its members first, or reset by timestamp"
            )
        known = (await self._stats_at(address, group, queue.topic)).offset_table.get(queue)
        await self._commit(address, group, queue, offset)
        if understood:
            await self._tell_of_queue(address, group, queue, offset)
        if online:
            return QueueReset(queue, offset)
        before = None if known is None else known.consumer_offset
        return QueueReset(queue, offset, before, reach.max_offset)

    async def _tell_of_queue(
        self, address: str, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Make a broker reset the queue's reader too.

        One of 5.x may prefer an older reset to the commit.
        """
        header = headers.ResetOffsetRequestHeader(
            group=group, topic=queue.topic, timestamp=0, queue_id=queue.queue_id, offset=offset
        )
        try:
            await self.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise  # a group without members or settings already has its offset

    # -- another group's offsets -------------------------------------------------------------------

    async def clone_offsets(
        self, source: str, target: str, topic: str, *, offline: bool = False
    ) -> dict[MessageQueue, int]:
        """Give the group `target` the offsets that `source` has committed in a topic.

        Return the offsets of `target` afterwards. `offline`: copy them even if `source` has members
        and none of them subscribes to the topic. Raises ConfigError if `target` has members, which
        would commit their own offsets over the copies, and RouteError if `source` has no offsets.
        """
        addresses = tuple(broker_addresses(await self.route(topic)).values())
        known: dict[str, list[MessageQueue]] = {}
        for address in addresses:
            if await self._online(address, target):
                raise ConfigError(
                    f"group {target} has members online, which would keep their own offsets; stop"
                    " them first"
                )
            found = [
                queue
                for queue in sorted(await self._reach_at(address, topic))
                if await self._committed(address, source, queue) is not None
            ]
            known |= {address: found} if found else {}
        if not known:
            raise RouteError(f"group {source} has no offsets in topic {topic}")
        header = headers.CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )
        copied: dict[MessageQueue, int] = {}
        for address, queues in known.items():
            await self.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
            for queue in queues:
                offset = await self._committed(address, target, queue)
                copied |= {} if offset is None else {queue: offset}
        if not copied:
            raise RouteError(
                f"no member of group {source} subscribes to topic {topic}; to copy its offsets"
                " nevertheless, say that it is offline"
            )
        return dict(sorted(copied.items()))

    async def _committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a group has committed in a queue; None if there is none."""
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            reply = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return headers.read(headers.OffsetResponseHeader, reply.ext).offset

    # -- parts of both -----------------------------------------------------------------------------

    async def _online(self, address: str, group: str) -> bool:
        """Return whether a broker sees members of the group."""
        try:
            return bool((await self.members(group, address)).connection_set)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return False
            raise

    async def _commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
