"""Heartbeats and what depends on them: membership, notifications, locks.

| code | request | answer |
|---|---|---|
| 34 | heartbeat of a client with all its groups | creates `%RETRY%group`; notifies (40) groups |
| 35 | a client leaves a group | notifies the group |
| 38 | the members of a group | 1 if there are none |
| 41, 42 | lock, unlock queues; 42 ends the member's waiting pulls of them | 41: the queues held |
| 203, 204 | the connections of a consumer, producer group | 206, 1 if there are none |
| 328 | the producers of all groups | |

A heartbeat notifies those groups that changed, before it is answered or soon (`notifications`). A
lock may be granted later (`waiting_locks`). Differences from RocketMQ: see
`groups.remoting.registry`.
Source: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java,
AdminBrokerProcessor.java, broker/client/net/Broker2Client.java.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.errors import ProtocolError
from steelyard.groups.flapping import Flapping
from steelyard.groups.remoting import flapping
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.groups.remoting.registry import ClientChannel, GroupChange
from steelyard.groups.remoting.subscriptions import subscribe
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.notifications import Notifications
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.remoting.waiting_locks import WaitingLocks
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.topics import check_group
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Hang, Link, earliest
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerListBody,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import retry_topic

CLIENT_ID_CHARACTERS_MAX = 255
SUBSCRIPTIONS_MAX = 1_000
"""Maximum topics of one member."""
HEARTBEAT_SUBSCRIPTIONS_MAX = 10_000
"""Maximum topics of all members in one heartbeat, some 40 ms of work."""

LOCKED_AT_ONCE = 1_000
"""A request for the locks of more queues is read, granted and answered in three steps."""


class Clients:
    """The clients of this broker; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        groups: SubscriptionGroups,
        committed: CommittedOffsets,
        pulls: Pulls,
        locks: QueueLocks,
    ) -> None:
        self._config = parts.config
        self._registry = parts.registry
        self._groups = groups
        self._committed = committed
        self._topics = parts.topics
        self._registration = parts.registration
        self._ledger = parts.ledger
        self._flapping = Flapping()
        self._pulls = pulls
        self._clock = parts.pulse.clock
        self._locks = locks
        delayed = parts.config.delayed_answers
        self._notifications = Notifications(parts.registry, groups, may_wait=delayed)
        self._waiting_locks = WaitingLocks(
            locks, parts.registry, self._notifications, enabled=delayed
        )

    # -- membership ------------------------------------------------------------------------------

    @serves(RequestCode.HEART_BEAT)
    def heartbeat(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        body = fastjson.read(HeartbeatData, request.body)
        _check_heartbeat(body)
        peer = request.peer
        client = ClientChannel(
            peer.link,
            peer.address,
            body.client_id,
            request.command.language,
            request.command.version,
        )
        for data in body.consumer_data_set:
            self._ensure_retry_topic(data.group_name, now, effects)
        for data in body.consumer_data_set:
            heard = self._registry.heard(client, data, now)
            self._announce(heard.changes, now, effects)
            self._pulls.refiltered(peer.link, data.group_name, heard.refiltered, effects)
            if heard.duplicate is not None:
                first, second = heard.duplicate.addresses
                text = (
                    f"client id {client.client_id} of group {data.group_name} is used by two live"
                    f" clients, {first} and {second}: they get the same share of the queues;"
                    " give each its own id"
                )
                effects.append(LogLine("WARNING", text))
        for producer in body.producer_data_set:
            self._registry.producer_heard(client, producer.group_name, now)
        return request.reply()

    def _ensure_retry_topic(self, group: str, now: int, effects: list[Effect]) -> None:
        queues = self._groups.get(group).retry_queue_nums
        if queues > 0 and self._topics.ensure(retry_topic(group), queues, now)[1]:
            self._registration.changed(now, effects)

    @serves(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.UnregisterClientRequestHeader)
        if header.producer_group:
            self._registry.producer_unregister(
                request.peer.link, header.client_id, header.producer_group
            )
        if header.consumer_group:
            change = self._registry.unregister(
                request.peer.link, header.client_id, header.consumer_group
            )
            if change is not None:
                # The client has left for good. Java clients unlock (42) before this; others leave
                # their locks behind, and nobody could read those queues for a minute. A lost
                # connection unlocks nothing, because its client may still be at work.
                free = self._locks.unlock_all(header.consumer_group, header.client_id)
                self._waiting_locks.unlocked(header.consumer_group, free, now, effects)
                self._announce((change,), now, effects)
        return request.reply()

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Handle the closed link of a client."""
        self._waiting_locks.closed(link)
        self._announce(self._registry.closed(link), now, effects)

    def scan(self, now: int, effects: list[Effect]) -> None:
        """Drop silent clients and expired locks."""
        changes, links = self._registry.expire(self._clock.ago(self._config.client_expiry_ms, now))
        effects.extend(Hang(link, "no heartbeat for too long") for link in links)
        self._announce(changes, now, effects)
        self._locks.expire(now)

    def _announce(self, changes: Iterable[GroupChange], now: int, effects: list[Effect]) -> None:
        """Record the changes in the ledger and notify the members that are left."""
        for change in changes:
            told: list[LogLine] = []
            flaps = flapping.changed(self._flapping, change, now, told)
            effects.extend(told)
            self._ledger.changed(change, now, flaps)
            self._pulls.handovers.changed(change.group, now)
            if change.kind == "joined":
                committed = self._committed.of_topics(change.group, change.topics)
                self._ledger.resumed(change.group, committed, now)
            self._notifications.changed(change, now, effects)

    # -- questions -------------------------------------------------------------------------------

    @serves(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def members(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.ConsumerGroupHeader)
        members = self._registry.members(header.consumer_group)
        if not members:
            remark = f"no consumer for this group, {header.consumer_group}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        return request.reply(body=fastjson.write(ConsumerListBody(members)))

    @serves(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command:
        header = request.header(headers.ConsumerGroupHeader)
        memberships = self._registry.memberships(header.consumer_group)
        if not memberships:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        subscriptions = self._registry.subscriptions(header.consumer_group)
        newest = memberships[-1].data
        body = ConsumerConnection(
            tuple(_connection(member.client) for member in memberships),
            {topic: item.data for topic, item in subscriptions.items()},
            newest.consume_type,
            newest.message_model,
            newest.consume_from_where,
        )
        return request.reply(body=fastjson.write(body))

    @serves(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command:
        header = request.header(headers.ProducerGroupHeader)
        producers = self._registry.producers(header.producer_group)
        if not producers:
            remark = f"the producer group[{header.producer_group}] not exist"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        body = ProducerConnection(tuple(_connection(client) for client in producers))
        return request.reply(body=fastjson.write(body))

    @serves(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        body = ProducerTable(
            {
                group: tuple(_producer(*each) for each in producers)
                for group, producers in sorted(self._registry.producers_of_all().items())
            }
        )
        return request.reply(body=fastjson.write(body))

    # -- locks -----------------------------------------------------------------------------------

    @serves(RequestCode.LOCK_BATCH_MQ)
    def lock(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command | None]:
        body = fastjson.read(LockBatchBody, request.body)
        check_group(body.consumer_group)
        is_long = len(body.mq_set) > LOCKED_AT_ONCE
        if is_long:
            now, _ = yield
        held = self._locks.lock(body.consumer_group, body.client_id, body.mq_set, now)
        if not held and self._waiting_locks.wait(request, body, now):
            return None
        if is_long:
            yield
        return request.reply(body=fastjson.write(LockBatchResponseBody(tuple(held))))

    @serves(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Unlock queues, for those that wait for their locks, and end the member's pulls of them.

        Messages that answered waiting pulls later would be wasted.
        """
        body = fastjson.read(LockBatchBody, request.body)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        for queue in body.mq_set:
            place = (body.consumer_group, queue.topic, queue.queue_id)
            self._pulls.given_up(request.peer.link, *place, now, effects)
        self._waiting_locks.unlocked(body.consumer_group, body.mq_set, now, effects)
        return request.reply()

    # -- what waits ------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        """When to call `expire` next; None if no request and no notification waits."""
        return earliest(self._waiting_locks.next_at, self._notifications.next_at)

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Answer lock requests that waited in vain, and send notifications that are due."""
        self._waiting_locks.expire(now, effects)
        self._notifications.expire(now, effects)

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        self._locks.check()
        self._waiting_locks.check()
        self._notifications.check()


def _check_heartbeat(body: HeartbeatData) -> None:
    """Raise ProtocolError for an invalid heartbeat, before anything is changed."""
    if not 0 < len(body.client_id) <= CLIENT_ID_CHARACTERS_MAX:
        raise ProtocolError(f"a client id has 1 to {CLIENT_ID_CHARACTERS_MAX} characters")
    total = sum(len(data.subscription_data_set) for data in body.consumer_data_set)
    if total > HEARTBEAT_SUBSCRIPTIONS_MAX:
        raise ProtocolError(
            f"a heartbeat with {total} subscriptions; {HEARTBEAT_SUBSCRIPTIONS_MAX} are allowed"
        )
    for producer in body.producer_data_set:
        check_group(producer.group_name)
    for data in body.consumer_data_set:
        _check_consumer(data)


def _check_consumer(data: ConsumerData) -> None:
    check_group(data.group_name)
    if len(data.subscription_data_set) > SUBSCRIPTIONS_MAX:
        raise ProtocolError(f"group {data.group_name}: more than {SUBSCRIPTIONS_MAX} topics")
    for item in data.subscription_data_set:
        subscribe(item)


def _connection(client: ClientChannel) -> Connection:
    return Connection(client.client_id, client.address, client.language, client.version)


def _producer(client: ClientChannel, heard_at: int) -> ProducerInfo:
    return ProducerInfo(client.client_id, client.address, client.language, client.version, heard_at)
