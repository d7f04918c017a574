"""Single messages: finding and tracking them, and having one consumed again.

Source: DefaultMQAdminExtImpl.java, MQAdminImpl.java.
"""

from __future__ import annotations

import time

from steelyard.checks import PositiveInt32
from steelyard.client.administration.asking import broker_addresses, queue_name
from steelyard.client.administration.groups import RELAY_TIMEOUT_MS, Groups
from steelyard.errors import BrokerError, MessageError, RemotingError, RouteError, SteelyardError
from steelyard.groups.overview import MessageTrack, TrackKind, track_kind
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumeMessageDirectlyResult
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.ids import born_after, parse_offset_message_id
from steelyard.wire.remoting.message import MessageView, decode_records
from steelyard.wire.remoting.names import MASTER_ID
from steelyard.wire.remoting.properties import KEY_SEPARATOR

COUNT_MAX = 64
LONG_MAX = 2**63 - 1
QUERY_TIMEOUT_MS = 15_000
"""Time-out of queries: MQAdminImpl gives them three times the usual time."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group of mqadmin's pulls, which brokers know without settings (MixAll.java)."""

NOTHING_PULLED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""Replies to a pull without messages: the end of the queue, gaps, offsets that do not exist."""


class Messages(Groups):
    """Methods for messages."""

    async def message(self, offset_message_id: str) -> MessageView:
        """Return a message by its offset message id, which contains the broker's address.

        The id is `SendResult.offset_message_id`. Raises ConfigError for an invalid id, BrokerError
        1 if the message no longer exists.
        """
        address, position = parse_offset_message_id(offset_message_id)
        header = headers.ViewMessageRequestHeader(offset=position)
        reply = await self.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        return decode_records(reply.body, await self._name_of(address))[0]

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageView:
        """Return the message at an offset of a queue.

        Raises RouteError if the queue or the message does not exist.
        """
        address = broker_addresses(await self.route(queue.topic)).get(queue.broker_name)
        if address is None:
            raise RouteError(f"topic {queue.topic} has no broker {queue.broker_name}")
        reach = (await self._reach_at(address, queue.topic)).get(queue)
        if reach is None:
            raise RouteError(f"{queue_name(queue)} does not exist")
        if reach.min_offset <= offset < reach.max_offset:
            body = await self._pull(address, queue, offset, 1)
            for message in decode_records(body, queue.broker_name)[:1]:
                if message.queue_offset == offset:
                    return message
        has = f"messages from {reach.min_offset} to {reach.max_offset - 1}"
        if reach.min_offset == reach.max_offset:
            has = "no messages"
        raise RouteError(f"{queue_name(queue)} has no message at offset {offset}; it has {has}")

    async def _pull(self, address: str, queue: MessageQueue, offset: int, count: int) -> bytes:
        """Return up to `count` records of a queue from an offset on; empty if there are none."""
        header = headers.PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        try:
            return (await self.ask(address, RequestCode.PULL_MESSAGE, header)).body
        except BrokerError as error:
            if error.code in NOTHING_PULLED:
                return b""
            raise

    async def _name_of(self, address: str) -> str:
        """Return the name of the broker that registered this address, "" if unknown."""
        info = await self.clusters()
        for broker in info.broker_addr_table.values():
            if address in broker.broker_addrs.values():
                return broker.broker_name
        return ""

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: PositiveInt32 = COUNT_MAX,
        begin: int = 0,
        end: int = LONG_MAX,
    ) -> list[MessageView]:
        """Return messages of a topic that have a key, stored from `begin` to `end` (ms).

        Oldest first.

        At most `count_max`, and at most 64, per broker: the newest ones.
        """
        header = headers.QueryMessageRequestHeader(
            topic=topic, key=key, max_num=count_max, begin_timestamp=begin, end_timestamp=end
        )
        found = await self._query(header)
        # Indexes of Apache brokers search by hash.
        return [message for message in found if key in message.keys.split(KEY_SEPARATOR)]

    async def messages_by_unique_key(self, topic: str, message_id: str) -> list[MessageView]:
        """Return messages of a topic by unique id (`SendResult.message_id`); oldest first.

        Usually one; a producer that retries after a failure gives both messages the same id.
        """
        now = time.time_ns() // 1_000_000
        found: list[MessageView] = []
        for begin in sorted({born_after(message_id, now), 0}, reverse=True):
            header = headers.QueryMessageRequestHeader(
                topic=topic,
                key=message_id,
                max_num=COUNT_MAX,
                begin_timestamp=begin,
                end_timestamp=LONG_MAX,
                # See wire.remoting.acl: signed requests must not have it.
                unique_key_query=None if self.config.access_key else True,
            )
            found = [m for m in await self._query(header) if m.message_id == message_id]
            if found:
                break
        return found

    async def _query(self, header: headers.QueryMessageRequestHeader) -> list[MessageView]:
        found: list[MessageView] = []
        for name, address in broker_addresses(await self.route(header.topic)).items():
            try:
                reply = await self.ask(
                    address, RequestCode.QUERY_MESSAGE, header, timeout_ms=QUERY_TIMEOUT_MS
                )
            except BrokerError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            except RemotingError as error:
                self._unanswered(error)
                continue
            # Indexes search by hash, so other topics' messages may be included.
            views = decode_records(reply.body, name)
            found += [view for view in views if view.topic == header.topic]
        return sorted(found, key=lambda v: (v.store_timestamp, v.broker_name, v.physical_offset))

    async def track(self, message: MessageView) -> list[MessageTrack]:
        """Return a message's status in each group of its topic, by committed offsets."""
        return [
            await self._track_in(group, message) for group in await self.groups_of(message.topic)
        ]

    async def _track_in(self, group: str, message: MessageView) -> MessageTrack:
        try:
            connection = await self.members(group)
            address = await self._address_of(message)
            stats = await self._stats_at(address, group, message.topic)
        except BrokerError as error:
            description = f"CODE:{error.code} DESC:{error.remark}"
            offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
            kind = TrackKind.NOT_ONLINE if offline else TrackKind.UNKNOWN
            return MessageTrack(group, kind, description)
        except SteelyardError as error:
            return MessageTrack(group, TrackKind.UNKNOWN, str(error))
        return MessageTrack(group, track_kind(message, connection, stats.offset_table))

    async def _address_of(self, message: MessageView) -> str:
        """Return the address of the broker that has the message."""
        info = await self.clusters()
        for broker in info.broker_addr_table.values():
            master = broker.broker_addrs.get(MASTER_ID)
            if master is not None and (
                broker.broker_name == message.broker_name or master == message.store_host
            ):
                return master
        raise RouteError(f"no nameserver knows the broker at {message.store_host}")

    async def consume_directly(
        self, group: str, client_id: str, message: MessageView | str
    ) -> ConsumeMessageDirectlyResult:
        """Let a member of a group consume a message now; return its listener's result.

        Offsets do not change. `message`: a message, or its offset message id. Raises BrokerError 1
        if the member is not online, 207 if it takes more than ten seconds.
        """
        if isinstance(message, str):
            message = await self.message(message)
        if not message.topic:
            raise MessageError("the message has no topic")
        header = headers.ConsumeMessageDirectlyRequestHeader(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.offset_message_id,
            topic=message.topic,
        )
        address = await self._address_of(message)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        reply = await self.ask(address, code, header, timeout_ms=RELAY_TIMEOUT_MS)
        return fastjson.read(ConsumeMessageDirectlyResult, reply.body)
