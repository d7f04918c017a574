"""`steelyard consume`: join a group and print messages, of RocketMQ or of Kafka.

A message is committed if and only if it was printed: messages fetched beyond the last one printed,
or that could not be written, are left to the group as if they had not been fetched.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.admin import exits, names
from steelyard.admin.asking import (
    add_nameserver_option,
    log_to_stderr,
    new_admin,
    with_credentials,
)
from steelyard.admin.starts import FORMS, METAVAR, At, End, Offset, Start, parse_start
from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.config import ConsumerConfig
    from steelyard.wire.remoting.bodies import TopicRouteData
    from steelyard.wire.remoting.message import MessageView

BATCH = 32
"""Messages per write if their number does not matter."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "consume",
        help="join a group and print messages",
        description="Join a consumer group and print the body of each message, one a line; what is"
        " printed"
        " is committed."
        " With --kafka the messages are read from Kafka.",
        epilog=f"SIGTERM ends it with {exits.SUCCESS}. --timeout ends it with {exits.FAILED} when"
        " fewer than --count messages have"
        f" arrived by then. {exits.EXPLAINED}",
    )
    add_nameserver_option(parser)
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT[,HOST:PORT]",
        help="read from these Kafka brokers instead; topic and group are then Kafka's",
    )
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-g", "--group", required=True, help="consumer group")
    parser.add_argument(
        "--tags", metavar="TAGS", help="'*', or tags joined by '||'; not with --kafka; default: '*'"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar=METAVAR,
        help=f"where to begin in queues for which the group has no committed offset: {FORMS};"
        " default: latest, but RocketMQ's"
        " brokers have a new group read a queue that never lost a message from its beginning",
    )
    parser.add_argument(
        "--count", type=int, metavar="N", help="print and commit exactly N messages, then stop"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="stop after S seconds")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print whole messages as JSON, one a line; `steelyard produce --input json` sends them"
        " again",
    )
    parser.set_defaults(run=run_consume)


def run_consume(options: argparse.Namespace) -> int:
    from steelyard.driver.loops import run

    _check(options)
    start = None
    if options.start is not None:
        start = parse_start(options.start, time.time_ns() // 1_000_000)
    log_to_stderr("WARNING")
    if options.kafka is not None:
        from steelyard.admin.kafka_consuming import consume

        code = run(consume(options, start or End.LATEST))
    else:
        code = run(_consume(options, start))
    if code == exits.CLOSED_PIPE:
        raise BrokenPipeError
    return code


def _check(options: argparse.Namespace) -> None:
    """Raise ConfigError for wrong options or combinations."""
    if options.count is not None and options.count < 1:
        raise ConfigError(f"count is {options.count}; it must be 1 or more")
    if options.timeout is not None and not options.timeout > 0:
        raise ConfigError(f"timeout is {options.timeout}; it must be more than 0 seconds")
    if options.kafka is None:
        faults = names.read_topic_fault(options.topic), names.group_fault(options.group)
    else:
        faults = names.kafka_topic_fault(options.topic), names.kafka_group_fault(options.group)
        if options.tags is not None:
            raise ConfigError("Kafka has no tags; leave out --tags or --kafka")
        if options.nameservers is not None:
            raise ConfigError("give either nameservers (-n) or Kafka brokers (--kafka), not both")
    for fault in faults:
        if fault is not None:
            raise ConfigError(fault)


async def _consume(options: argparse.Namespace, start: Start | None) -> int:
    import asyncio

    from steelyard.admin.ndjson import message_line
    from steelyard.admin.output import Printer
    from steelyard.client.aio.push import PushConsumer

    async with new_admin(options) as admin:
        try:
            route = await admin.route(options.topic)
        except RouteError:
            raise RouteError(
                f"topic {options.topic} does not exist; `steelyard admin topicList` lists existing"
                " topics"
            ) from None
        await _check_permission(admin, options, route)
    printer = Printer(options)

    async def show(messages: Sequence[MessageView]) -> bool:
        lines = [message_line(m) if options.json else m.body for m in messages]
        if printer.ended.done() or not printer.print(lines):
            await asyncio.Event().wait()  # no verdict: neither consumed nor failed
        return True

    consumer = PushConsumer(
        options.group,
        options.nameservers,
        batch_listener=show,
        concurrency=1,
        config=with_credentials(_config(options, start)),
        tls=options.tls,
    )
    await consumer.subscribe(options.topic, options.tags or "*").start()
    try:
        return await printer.wait()
    finally:
        await consumer.stop(wait=False)


async def _check_permission(
    admin: Admin, options: argparse.Namespace, route: TopicRouteData
) -> None:
    """Raise BrokerError if a broker refuses the group's pulls for good.

    The consumer would repeat them for ever. No broker has the queue -1, so that nothing is pulled;
    but the permission is looked at before the queue (PullMessageProcessor.java).
    """
    from steelyard.client.administration.asking import broker_addresses
    from steelyard.wire.remoting.codes import RequestCode, ResponseCode
    from steelyard.wire.remoting.headers import PullMessageRequestHeader
    from steelyard.wire.remoting.names import PERM_READ

    header = PullMessageRequestHeader(
        consumer_group=options.group,
        topic=options.topic,
        queue_id=-1,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    readable = {queue.broker_name for queue in route.queue_datas if queue.perm & PERM_READ}
    for name, address in broker_addresses(route).items():
        if name not in readable:
            continue
        try:
            await admin.ask(address, RequestCode.PULL_MESSAGE, header)
        except BrokerError as error:
            if error.code == ResponseCode.NO_PERMISSION:
                raise
        except RemotingError:
            continue  # the consumer waits for it


def _config(options: argparse.Namespace, start: Start | None) -> ConsumerConfig:
    from steelyard.config import ConsumerConfig
    from steelyard.types import ConsumeFrom

    origin = ConsumeFrom.LAST_OFFSET
    if start is End.EARLIEST:
        origin = ConsumeFrom.FIRST_OFFSET
    elif isinstance(start, At):
        origin = ConsumeFrom.TIMESTAMP
    return ConsumerConfig(
        consume_from=origin,
        consume_timestamp=start.timestamp if isinstance(start, At) else 0,
        consume_offset=start.offset if isinstance(start, Offset) else -1,
        consume_strictly=start is not None,
        consume_batch=BATCH if options.count is None else 1,
    )
