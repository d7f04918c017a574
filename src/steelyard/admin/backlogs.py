"""mqadmin's brokerConsumeStats: how far all groups are behind at one broker.

Source: tools/command/broker/BrokerConsumeStatsSubCommad.java of 4.9.8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import add_asking_command
from steelyard.admin.printing import date_seconds, front
from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.types import MessageQueue
    from steelyard.wire.remoting.bodies import ConsumeStatsList, OffsetWrapper

TIMEOUT_MS = 50_000
TIMEOUT_MS_MAX = 2**31 - 1

Backlog = tuple["str", "MessageQueue", "OffsetWrapper"]
"""A group, a queue, and the offsets of both."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stats = add_asking_command(
        commands,
        "brokerConsumeStats",
        broker_consume_stats,
        "Fetch the progress of all groups at a broker",
        watched=True,
    )
    stats.add_argument("-b", "--brokerAddr", required=True, help="the broker's address")
    stats.add_argument(
        "-t",
        "--timeoutMillis",
        type=int,
        default=TIMEOUT_MS,
        help="how long to wait for the answer, in ms; default: %(default)s",
    )
    stats.add_argument(
        "-l",
        "--level",
        type=int,
        default=0,
        help="only queues in which a group is behind by this many messages or more",
    )
    stats.add_argument(
        "-o",
        "--order",
        choices=("true", "false"),
        default="false",
        help="ordered topics instead of all others (brokers of Apache)",
    )


async def broker_consume_stats(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    timeout_ms = options.timeoutMillis
    if not 1 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise ConfigError(f"timeoutMillis is {timeout_ms}; it must be 1 or more")
    address = options.brokerAddr.strip()
    stats = await admin.broker_consume_stats(
        address, ordered=options.order == "true", timeout_ms=timeout_ms
    )
    found = [one for one in _backlogs(stats) if _lag(one[2]) >= options.level]
    rows = [
        row(
            queue,
            group=group,
            broker_offset=offsets.broker_offset,
            consumer_offset=offsets.consumer_offset,
            lag=_lag(offsets),
            last_consumed_at=offsets.last_timestamp or None,
        )
        for group, queue, offsets in found
    ]
    document = {"address": address, "lag": stats.total_diff, "queues": rows}
    return CommandOutcome(backlog_table(found, stats.total_diff), document)


def _backlogs(stats: ConsumeStatsList) -> Iterator[Backlog]:
    for table in stats.consume_stats_list:
        for group, listed in table.items():
            for one in listed:
                for queue in sorted(one.offset_table):
                    yield group, queue, one.offset_table[queue]


def _lag(offsets: OffsetWrapper) -> int:
    return offsets.broker_offset - offsets.consumer_offset


def backlog_table(found: list[Backlog], total: int) -> str:
    """Format the queues of which a group has consumed something, and the broker's own total."""
    line = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}\n"
    names = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    text = line.format(*names, "#Diff", "#LastTime")
    for group, queue, offsets in found:
        if offsets.last_timestamp > 0:
            text += line.format(
                front(queue.topic, 64),
                front(group, len(group)),
                front(queue.broker_name, 32),
                queue.queue_id,
                offsets.broker_offset,
                offsets.consumer_offset,
                _lag(offsets),
                date_seconds(offsets.last_timestamp),
            )
    return text + f"\nDiff Total: {total}\n"
