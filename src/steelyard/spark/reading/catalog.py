"""The cluster as a read sees it: which queues there are, where, and their offsets.

Requests to one broker are sent together before the first reply is awaited, so that the offsets of
many queues cost one round trip.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from steelyard.errors import BrokerError, ProtocolError, RemotingError, RouteError
from steelyard.ledger.starts import QUERY_CLIENT
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.given import NUMBER_MAX
from steelyard.spark.options.reading import Options
from steelyard.spark.servers.server_links import ServerLinks
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    TopicList,
    TopicRouteData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import LANGUAGE, Command
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.names import DEFAULT_TOPIC, PERM_READ, retry_topic

TOGETHER_MAX = 500
"""Requests that are sent before the first reply is read; their replies fit into a socket buffer."""

NOTHING_FOUND = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers to a pull that say where to continue."""

INTERNAL = re.compile(
    rf"%.*|{DEFAULT_TOPIC}|RMQ_SYS_.*|rmq_sys_.*|SCHEDULE_TOPIC_XXXX|OFFSET_MOVED_EVENT|SELF_TEST_TOPIC"
    r"|BenchmarkTest|TRANS_CHECK_MAX_TIME_TOPIC|.*_REPLY_TOPIC"
    r"|__consumer_offsets|__transaction_state|__share_group_state"
)
"""Topics that a pattern does not match: retries, dead letters (`%RETRY%`, `%DLQ%`), and those of
RocketMQ itself (TopicValidator.java) and of Kafka's coordinators (Topic.java)."""


@dataclass(frozen=True, slots=True)
class KnownQueues:
    """The queues to read, with the address to read each from, and what the nameserver knows."""

    addresses: Mapping[QueueName, str]
    readable: frozenset[QueueName] = frozenset()
    """All queues of the topics, also those that the options leave out."""
    missing: frozenset[str] = frozenset()
    """Topics that were asked for and do not exist."""
    brokers: frozenset[tuple[str, str]] = frozenset()
    """(topic, broker) of every registered broker that has the topic, or for topics that are missing
    might have it."""

    def is_gone(self, queue: QueueName) -> bool:
        """Return whether the queue was deleted, as far as one can know.

        If its broker is not registered, it may come back with it: a nameserver that has just
        started knows no topic.
        """
        topic, broker, _ = queue
        return queue not in self.addresses and (topic, broker) in self.brokers


class Catalog(ServerLinks):
    """Routes and offsets, over connections that are kept. A failure closes all of them.

    Every method raises RemotingError, BrokerError or ProtocolError.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options.nameservers, options.timeout_ms, options.access)
        self._options = options

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topics: Iterable[str] = ()) -> KnownQueues:
        """Look up the queues of the subscription, and whether those of `topics` are still there."""
        options = self._options
        addresses: dict[QueueName, str] = {}
        missing: set[str] = set()
        brokers: set[tuple[str, str]] = set()
        subscribed = set(self._subscribed())
        for topic in sorted(subscribed.union(topics)):
            try:
                route = self.route(topic)
            except RouteError:
                missing.add(topic)
                continue
            brokers.update((topic, broker.broker_name) for broker in route.broker_datas)
            addresses |= readable_queues(route, topic)
        if missing:
            registered = self.cluster().broker_addr_table
            brokers.update((topic, broker) for topic in missing for broker in registered)
        wanted = {
            queue: address
            for queue, address in addresses.items()
            if queue[0] in subscribed and is_wanted(options, queue)
        }
        return KnownQueues(wanted, frozenset(addresses), frozenset(missing), frozenset(brokers))

    def _subscribed(self) -> Sequence[str]:
        if not self._options.pattern:
            return self._options.topics
        request = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = self.any_nameserver(
            lambda link: fastjson.read(TopicList, link.call(request).body).topic_list
        )
        pattern = re.compile(self._options.pattern)
        return [name for name in names if pattern.fullmatch(name) and not INTERNAL.fullmatch(name)]

    # -- offsets -----------------------------------------------------------------------------------

    def earliest(self, queues: Mapping[QueueName, str]) -> dict[QueueName, int]:
        """Return the least offset of each queue."""
        return self._bounds(RequestCode.GET_MIN_OFFSET, queues)

    def latest(self, queues: Mapping[QueueName, str]) -> dict[QueueName, int]:
        """Return the offset of the next message of each queue."""
        return self._bounds(RequestCode.GET_MAX_OFFSET, queues)

    def _bounds(self, code: RequestCode, queues: Mapping[QueueName, str]) -> dict[QueueName, int]:
        requests = {
            queue: headers.QueueRequestHeader(topic=queue[0], queue_id=queue[2], bname=queue[1])
            for queue in queues
        }
        return self._offsets(code, queues, requests)

    def at_time(
        self, queues: Mapping[QueueName, str], times: Mapping[QueueName, int]
    ) -> dict[QueueName, int]:
        """Return the first offset stored at a time (milliseconds) or later, or the latest.

        It may be a neighbour of that: see `first_at_time`.
        """
        return {queue: offset for queue, (offset, _) in self._searched(queues, times).items()}

    def first_at_time(
        self,
        queues: Mapping[QueueName, str],
        times: Mapping[QueueName, int],
        earliest: Mapping[QueueName, int],
        latest: Mapping[QueueName, int],
    ) -> dict[QueueName, int]:
        """Return what `at_time` does, exactly, from `earliest` to `latest`.

        Apache's brokers before 5.1 answer with the message that is nearest to the time, before or
        after it, or with any of those of that very millisecond (ConsumeQueue.java,
        getOffsetInQueueByTime). So the messages there are looked at, and others if that is wrong.
        """
        low = {queue: earliest[queue] for queue in times}
        high = {queue: latest[queue] for queue in times}
        hints: dict[QueueName, int] = {}
        for queue, (offset, is_exact) in self._searched(queues, times).items():
            if is_exact:
                low[queue] = high[queue] = min(max(offset, low[queue]), high[queue])
            else:
                hints[queue] = offset

        def look(places: Mapping[QueueName, int]) -> None:
            asked = {queue: at for queue, at in places.items() if low[queue] <= at < high[queue]}
            for queue, (offset, stored) in self._stored(queues, asked).items():
                if stored < times[queue]:
                    low[queue] = min(max(offset, asked[queue]) + 1, high[queue])
                else:
                    high[queue] = asked[queue]

        look(hints)
        look({queue: offset - 1 for queue, offset in hints.items()})
        while between := {at: (low[at] + high[at]) // 2 for at in low if low[at] < high[at]}:
            look(between)
        return low

    def _searched(
        self, queues: Mapping[QueueName, str], times: Mapping[QueueName, int]
    ) -> dict[QueueName, tuple[int, bool]]:
        """Return what brokers find at a time, and whether that is exact: whether they are ours."""
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        requests = {
            queue: headers.SearchOffsetRequestHeader(
                topic=queue[0], queue_id=queue[2], timestamp=time, bname=queue[1]
            )
            for queue, time in times.items()
        }
        found: dict[QueueName, tuple[int, bool]] = {}
        for queue, reply in self._replies(code, queues, requests):
            _check(reply, queues[queue])
            offset = headers.read(headers.OffsetResponseHeader, reply.ext).offset
            found[queue] = offset, reply.language == LANGUAGE
        return found

    def _stored(
        self, queues: Mapping[QueueName, str], places: Mapping[QueueName, int]
    ) -> dict[QueueName, tuple[int, int]]:
        """Return offset and store time of the first message from each offset on.

        Where there is none it is the offset asked for, and later than any time.
        """
        found: dict[QueueName, tuple[int, int]] = {}
        left = dict(places)
        while left:
            requests = {
                (topic, broker, queue_id): headers.PullMessageRequestHeader(
                    consumer_group=self._options.consumer_group,
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_msg_nums=1,
                    sys_flag=PullFlag.SUBSCRIPTION,
                    commit_offset=0,
                    suspend_timeout_millis=0,
                    subscription="*",
                    sub_version=0,
                    expression_type="TAG",
                    bname=broker,
                )
                for (topic, broker, queue_id), offset in left.items()
            }
            for queue, reply in self._replies(RequestCode.PULL_MESSAGE, queues, requests):
                offset = left.pop(queue)
                if reply.code == ResponseCode.SUCCESS:
                    first = decode_records(reply.body)[0]
                    found[queue] = first.queue_offset, first.store_timestamp
                    continue
                if reply.code not in NOTHING_FOUND:
                    raise BrokerError(reply.code, reply.remark, queues[queue])
                following = headers.read(headers.PullMessageResponseHeader, reply.ext)
                if following.next_begin_offset > offset:
                    left[queue] = following.next_begin_offset
                else:
                    found[queue] = offset, NUMBER_MAX
        return found

    def committed(self, queues: Mapping[QueueName, str]) -> dict[QueueName, int]:
        """Return the progress of the consumer group, of queues where it has any."""
        requests = {
            (topic, broker, queue_id): headers.QueryConsumerOffsetRequestHeader(
                consumer_group=self._options.consumer_group,
                topic=topic,
                queue_id=queue_id,
                set_zero_if_not_found=False,
                bname=broker,
            )
            for topic, broker, queue_id in queues
        }
        found: dict[QueueName, int] = {}
        for queue, reply in self._replies(RequestCode.QUERY_CONSUMER_OFFSET, queues, requests):
            if reply.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            _check(reply, queues[queue])
            found[queue] = headers.read(headers.OffsetResponseHeader, reply.ext).offset
        return {queue: offset for queue, offset in found.items() if offset >= 0}

    def commit(self, queues: Mapping[QueueName, str], offsets: Mapping[QueueName, int]) -> None:
        """Store the progress of the consumer group."""
        requests = {
            (topic, broker, queue_id): headers.UpdateConsumerOffsetRequestHeader(
                consumer_group=self._options.consumer_group,
                topic=topic,
                queue_id=queue_id,
                commit_offset=offset,
                bname=broker,
            )
            for (topic, broker, queue_id), offset in offsets.items()
            if (topic, broker, queue_id) in queues
        }
        for queue, reply in self._replies(RequestCode.UPDATE_CONSUMER_OFFSET, queues, requests):
            _check(reply, queues[queue])

    def introduce_group(self, queues: Mapping[QueueName, str]) -> None:
        """Make the consumer group known to brokers that have had no member of it.

        Tools look for a group where its retry topic is, which brokers create for a group's first
        member. So there is one, for a moment; groups that are known already are left alone.
        """
        group = self._options.consumer_group
        try:
            route = self.route(retry_topic(group))
            known = {broker.broker_name for broker in route.broker_datas}
        except RouteError:
            known = set()
        addresses = {address for (_, broker, _), address in queues.items() if broker not in known}
        client = f"{QUERY_CLIENT}{os.getpid()}"
        heartbeat = HeartbeatData(
            client_id=client, consumer_data_set=(ConsumerData(group, "CONSUME_ACTIVELY"),)
        )
        leave = headers.UnregisterClientRequestHeader(client_id=client, consumer_group=group)
        for address in sorted(addresses):
            link = self.link(address)
            link.call(Command(RequestCode.HEART_BEAT, body=fastjson.write(heartbeat)))
            link.call(Command(RequestCode.UNREGISTER_CLIENT, ext=headers.write(leave)))

    def _offsets(
        self,
        code: RequestCode,
        queues: Mapping[QueueName, str],
        requests: Mapping[QueueName, headers.Header],
    ) -> dict[QueueName, int]:
        found: dict[QueueName, int] = {}
        for queue, reply in self._replies(code, queues, requests):
            _check(reply, queues[queue])
            found[queue] = headers.read(headers.OffsetResponseHeader, reply.ext).offset
        return found

    # -- requests ----------------------------------------------------------------------------------

    def _replies(
        self,
        code: RequestCode,
        queues: Mapping[QueueName, str],
        requests: Mapping[QueueName, headers.Header],
    ) -> Iterable[tuple[QueueName, Command]]:
        """Send each queue's request to its broker; return the queues with the replies."""
        replies = self._ask(
            (queues[queue], Command(code, ext=headers.write(header)))
            for queue, header in requests.items()
        )
        return zip(requests, replies, strict=True)

    def _ask(self, requests: Iterable[tuple[str, Command]]) -> list[Command]:
        """Return the replies, in the order of the requests."""
        wanted = list(requests)
        replies: list[Command] = []
        try:
            for first in range(0, len(wanted), TOGETHER_MAX):
                sent = [
                    (link, link.send(request))
                    for address, request in wanted[first : first + TOGETHER_MAX]
                    for link in (self.link(address),)
                ]
                replies += [link.receive(opaque) for link, opaque in sent]
        except (RemotingError, ProtocolError):
            self.close()
            raise
        return replies


def _check(reply: Command, address: str) -> None:
    if reply.code != ResponseCode.SUCCESS:
        raise BrokerError(reply.code, reply.remark, address)


def is_wanted(options: Options, queue: QueueName) -> bool:
    """Return whether the options choose a queue of a topic that they choose."""
    if options.assigned:
        return queue in options.assigned
    _, broker, queue_id = queue
    wanted = options.queues
    return not wanted or (broker, None) in wanted or (broker, queue_id) in wanted


def readable_queues(route: TopicRouteData, topic: str) -> dict[QueueName, str]:
    """Return every readable queue with the address to read it from."""
    addresses = {
        broker.broker_name: broker.broker_addrs[min(broker.broker_addrs)]
        for broker in route.broker_datas
        if broker.broker_addrs
    }
    return {
        (topic, data.broker_name, queue_id): addresses[data.broker_name]
        for data in route.queue_datas
        if data.perm & PERM_READ and data.broker_name in addresses
        for queue_id in range(data.read_queue_nums)
    }
