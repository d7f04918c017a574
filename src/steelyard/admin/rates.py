"""mqadmin's statsAll: messages in and out, per topic and group.

Source: tools/command/stats/StatsAllSubCommand.java of 4.9.8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.clusters import NO_BROKER
from steelyard.admin.printing import fixed, front
from steelyard.errors import RemotingError, RouteError, SteelyardError
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import BrokerStatsData


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stats = add_asking_command(
        commands, "statsAll", stats_all, "Rates of all topics and their groups", watched=True
    )
    stats.add_argument(
        "-a", "--activeTopic", action="store_true", help="only topics with messages of today"
    )
    stats.add_argument("-t", "--topic", help="only this topic")


async def stats_all(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    wanted = given(options.topic)
    text = (
        f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11}"
        f" {'#OutTPS':>11} {'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
    )
    topics = await admin.topics()
    if not topics and not (await admin.clusters()).broker_addr_table:
        raise RouteError(NO_BROKER)
    rows: list[dict[str, object]] = []
    for topic in topics:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (wanted is not None and topic != wanted):
            continue
        try:
            rows += await _topic_rows(admin, topic, options.activeTopic)
        except SteelyardError:
            continue  # a topic without a broker has no rates, as in mqadmin
    return CommandOutcome(text + "".join(map(_line, rows)), {"topics": rows})


async def _topic_rows(admin: Admin, topic: str, active_only: bool) -> list[dict[str, object]]:
    """Return a row for each group of a topic; if it has none, one whose `group` is None."""
    from steelyard.wire.remoting.names import GROUP_GET_NUMS, TOPIC_PUT_NUMS

    rate_in, messages_in = await _figures(admin, topic, TOPIC_PUT_NUMS, topic)
    groups = await admin.groups_of(topic)
    if not groups and (messages_in or not active_only):
        return [_row(topic, None, 0, rate_in, None, messages_in, None)]
    rows = []
    for group in groups:
        rate_out, messages_out = await _figures(admin, topic, GROUP_GET_NUMS, f"{topic}@{group}")
        if messages_in or messages_out or not active_only:
            lag = await _lag(admin, group, topic)
            rows.append(_row(topic, group, lag, rate_in, rate_out, messages_in, messages_out))
    return rows


def _row(*cells: object) -> dict[str, object]:
    """Name the figures. Rates are messages per second, counts are those of a day."""
    names = ("topic", "group", "accumulation", "in_tps", "out_tps", "in_day", "out_day")
    return dict(zip(names, cells, strict=True))


def _line(row: Mapping[str, Any]) -> str:
    group, rate_out, messages_out = row["group"], row["out_tps"], row["out_day"]
    if group is None:
        group, messages_out = "", "NO_CONSUMER"
    out = "" if rate_out is None else fixed(rate_out, 2)
    return (
        f"{front(row['topic'], 64):<64}  {front(group, 64):<64} {row['accumulation']:>12}"
        f" {fixed(row['in_tps'], 2):>11} {out:>11} {row['in_day']:>14} {messages_out:>14}\n"
    )


async def _figures(admin: Admin, topic: str, name: str, key: str) -> tuple[float, int]:
    """Return messages per second, and of the last day, on all brokers of the topic."""
    from steelyard.client.administration.asking import broker_addresses

    found: list[BrokerStatsData] = []
    for address in broker_addresses(await admin.route(topic)).values():
        with suppress(RemotingError):  # of several brokers the others still count
            data = await admin.stats(address, name, key)
            if data is not None:
                found.append(data)
    return sum(data.stats_minute.tps for data in found), sum(map(_of_a_day, found))


def _of_a_day(data: BrokerStatsData) -> int:
    """Return the longest period counted so far."""
    sums: Iterable[int] = (data.stats_day.sum, data.stats_hour.sum, data.stats_minute.sum)
    return next(filter(None, sums), 0)


async def _lag(admin: Admin, group: str, topic: str) -> int:
    try:
        return max(0, (await admin.consumer_progress(group, topic, holders=False)).lag)
    except SteelyardError:
        return 0
