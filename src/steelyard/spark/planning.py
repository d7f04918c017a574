"""Planning of a read: a range of offsets per queue, looked up once before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError
from steelyard.spark.link import Link
from steelyard.spark.options import EARLIEST, LATEST, Options, QueueName
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import PERM_READ


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """One queue from `start` up to, not including, `end`, and the address to read it from."""

    topic: str
    broker_name: str
    queue_id: int
    address: str
    start: int
    end: int


def plan(options: Options) -> list[QueueRange]:
    """Return the ranges to read of queues that have any messages in them."""
    found: dict[QueueName, str] = {}
    for topic in options.topics:
        found |= readable_queues(route_of(topic, options), topic)
    _check_names(options, found)
    ranges: list[QueueRange] = []
    links: dict[str, Link] = {}
    try:
        for (topic, broker, queue_id), address in sorted(found.items()):
            if _is_wanted(options, broker, queue_id):
                if address not in links:
                    links[address] = Link(address, options.timeout_ms)
                start, end = _bounds(options, links[address], (topic, broker, queue_id))
                if start < end:
                    ranges.append(QueueRange(topic, broker, queue_id, address, start, end))
    finally:
        for link in links.values():
            link.close()
    return ranges


def _is_wanted(options: Options, broker: str, queue_id: int) -> bool:
    wanted = options.queues
    return not wanted or (broker, None) in wanted or (broker, queue_id) in wanted


def _check_names(options: Options, found: Mapping[QueueName, str]) -> None:
    known = ", ".join(f"{broker}:{queue_id}" for _, broker, queue_id in sorted(found)[:20])
    for name, offsets in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
    ):
        for queue in sorted(offsets):
            if queue not in found:
                raise ConfigError(
                    f"option {name!r} names queue {queue[2]} of broker {queue[1]!r} for topic"
                    f" {queue[0]!r}; its queues are {known}"
                )
    present: set[tuple[str, int | None]] = {(broker, None) for _, broker, _ in found}
    present |= {(broker, queue_id) for _, broker, queue_id in found}
    for broker, number in options.queues:
        if (broker, number) not in present:
            text = broker if number is None else f"{broker}:{number}"
            raise ConfigError(f"option 'queues' names {text}; the queues are {known}")


def _bounds(options: Options, link: Link, queue: QueueName) -> tuple[int, int]:
    """Return the first offset to read and one past the last, checked against the broker's."""
    earliest = offset_of(link, RequestCode.GET_MIN_OFFSET, queue)
    latest = offset_of(link, RequestCode.GET_MAX_OFFSET, queue)
    start = options.starting.get(queue, EARLIEST)
    end = options.ending.get(queue, LATEST)
    start = earliest if start == EARLIEST else start
    end = latest if end == LATEST else end
    if options.fail_on_data_loss:
        if start < earliest:
            raise data_loss(queue, f"starts at {earliest}, but {start} was asked for")
        if max(start, end) > latest:
            raise data_loss(queue, f"ends at {latest}, but {max(start, end)} was asked for")
    return max(start, earliest), min(end, latest)


def data_loss(queue: QueueName, words: str) -> ConfigError:
    topic, broker, queue_id = queue
    return ConfigError(
        f"data loss: queue {queue_id} of topic {topic!r} on broker {broker!r} {words}."
        " Set option 'failOnDataLoss' to false to read what is there."
    )


def offset_of(link: Link, code: RequestCode, queue: QueueName) -> int:
    """Return the least offset of a queue, or that of its next message."""
    topic, broker, queue_id = queue
    header = headers.QueueRequestHeader(topic=topic, queue_id=queue_id, bname=broker)
    reply = link.call(Command(code, ext=headers.write(header)))
    return headers.read(headers.OffsetResponseHeader, reply.ext).offset


def route_of(topic: str, options: Options) -> TopicRouteData:
    """Return the route from the first nameserver that answers.

    Raises RouteError or the last error.
    """
    header = headers.GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=headers.write(header))
    failure: RemotingError | None = None
    for address in options.nameservers:
        try:
            with Link(address, options.timeout_ms) as link:
                return fastjson.read(TopicRouteData, link.call(request).body)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise RouteError(f"option 'topic': {address} knows no topic {topic!r}") from None
        except RemotingError as error:
            failure = error
    assert failure is not None, "read_options wants at least one nameserver"
    raise failure


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
