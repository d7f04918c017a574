"""mqadmin's statsAll: messages in and out, per topic and group.

Source: tools/command/stats/StatsAllSubCommand.java of 4.9.8.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.printing import fixed, front
from steelyard.errors import SteelyardError
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import BrokerStatsData


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stats = add_asking_command(
        commands, "statsAll", stats_all, "Rates of all topics and their groups"
    )
    stats.add_argument(
        "-a", "--activeTopic", action="store_true", help="only topics with messages of today"
    )
    stats.add_argument("-t", "--topic", help="only this topic")


async def stats_all(admin: Admin, options: argparse.Namespace) -> str:
    wanted = given(options.topic)
    text = (
        f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11}"
        f" {'#OutTPS':>11} {'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
    )
    for topic in await admin.topics():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (wanted is not None and topic != wanted):
            continue
        try:
            text += await _topic_lines(admin, topic, options.activeTopic)
        except SteelyardError:
            continue  # a topic without a broker has no rates, as in mqadmin
    return text


async def _topic_lines(admin: Admin, topic: str, active_only: bool) -> str:
    from steelyard.wire.remoting.names import GROUP_GET_NUMS, TOPIC_PUT_NUMS

    rate_in, messages_in = await _figures(admin, topic, TOPIC_PUT_NUMS, topic)
    groups = await admin.groups_of(topic)
    begin = f"{front(topic, 64):<64}  "
    if not groups and (messages_in or not active_only):
        return (
            f"{begin}{'':<64} {0:>12} {fixed(rate_in, 2):>11} {'':>11} {messages_in:>14}"
            f" {'NO_CONSUMER':>14}\n"
        )
    text = ""
    for group in groups:
        rate_out, messages_out = await _figures(admin, topic, GROUP_GET_NUMS, f"{topic}@{group}")
        if messages_in or messages_out or not active_only:
            text += (
                f"{begin}{front(group, 64):<64} {await _lag(admin, group, topic):>12}"
                f" {fixed(rate_in, 2):>11} {fixed(rate_out, 2):>11} {messages_in:>14}"
                f" {messages_out:>14}\n"
            )
    return text


async def _figures(admin: Admin, topic: str, name: str, key: str) -> tuple[float, int]:
    """Return messages per second, and of the last day, on all brokers of the topic."""
    from steelyard.client.administration.asking import broker_addresses

    found: list[BrokerStatsData] = []
    for address in broker_addresses(await admin.route(topic)).values():
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
