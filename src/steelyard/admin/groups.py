"""mqadmin's group commands: consumerConnection, consumerProgress, allocateMQ.

Source: tools/command/{connection,consumer,topic}/*SubCommand.java of 4.9.8, for flags and columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steelyard.admin.asking import add_asking_command
from steelyard.admin.printing import date_seconds, fixed, front, version_name
from steelyard.errors import ConfigError, RouteError, SteelyardError

if TYPE_CHECKING:
    from steelyard.live.administrator import Administrator
    from steelyard.types import MessageQueue
    from steelyard.wire.remoting.bodies import ConsumerConnection, ConsumeStats, TopicRouteData


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    connection = add_asking_command(
        commands,
        "consumerConnection",
        consumer_connection,
        "Query consumers' connections, versions and subscriptions",
    )
    connection.add_argument("-g", "--consumerGroup", required=True, help="consumer group")
    connection.add_argument(
        "-b", "--brokerAddr", help="ask this broker; default: one of the group's"
    )

    progress = add_asking_command(
        commands, "consumerProgress", consumer_progress, "Query consumers' progress and speed"
    )
    progress.add_argument("-g", "--groupName", help="consumer group; default: all")
    progress.add_argument("-t", "--topicName", help="only this topic")
    progress.add_argument(
        "-s", "--showClientIP", choices=("true", "false"), help="show who holds each queue"
    )

    allocate = add_asking_command(
        commands,
        "allocateMQ",
        allocate_queues,
        "Show how AVG allocates a topic's queues to clients (sorted, as real members do it)",
    )
    allocate.add_argument("-t", "--topic", required=True, help="topic name")
    allocate.add_argument("-i", "--ipList", required=True, help="client ids, separated by commas")


# -- consumerConnection ------------------------------------------------------------------------------


async def consumer_connection(administrator: Administrator, options: argparse.Namespace) -> str:
    group = options.consumerGroup.strip()
    address = options.brokerAddr.strip() if options.brokerAddr else None
    connection = await administrator.consumer_connection(group, address)
    if not connection.connection_set:
        raise RouteError(f"group {group} has no member online")
    return connection_table(connection)


def connection_table(connection: ConsumerConnection) -> str:
    row = "{:<36} {:<22} {:<10} {}\n"
    text = row.format("#ClientId", "#ClientAddr", "#Language", "#Version")
    for member in connection.connection_set:
        text += row.format(
            member.client_id, member.client_addr, member.language, version_name(member.version)
        )
    text += "\nBelow is subscription:\n"
    text += "{:<20} {}\n".format("#Topic", "#SubExpression")
    for subscription in connection.subscription_table.values():
        text += f"{subscription.topic:<20} {subscription.sub_string}\n"
    return text + (
        f"\nConsumeType: {connection.consume_type}\n"
        f"MessageModel: {connection.message_model}\n"
        f"ConsumeFromWhere: {connection.consume_from_where}\n"
    )


# -- consumerProgress --------------------------------------------------------------------------------


async def consumer_progress(administrator: Administrator, options: argparse.Namespace) -> str:
    if not options.groupName:
        return await _all_groups(administrator)
    group = options.groupName.strip()
    topic = options.topicName.strip() if options.topicName else None
    stats = await administrator.consume_stats(group, topic)
    if options.showClientIP != "true":
        return progress_table(stats)
    return progress_table(stats, await _holders(administrator, group))


def progress_table(stats: ConsumeStats, holders: Mapping[MessageQueue, str] | None = None) -> str:
    """Offsets per queue. With `holders` also the client ip per queue."""
    client = "{:<20} " if holders is not None else ""
    row = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  " + client + "{:<20}  {}\n"
    names = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    text = row.format(
        *names, *(["#Client IP"] if holders is not None else []), "#Diff", "#LastTime"
    )
    total = 0
    for queue in sorted(stats.offset_table):
        offsets = stats.offset_table[queue]
        diff = offsets.broker_offset - offsets.consumer_offset
        total += diff
        text += row.format(
            front(queue.topic, 64),
            front(queue.broker_name, 32),
            queue.queue_id,
            offsets.broker_offset,
            offsets.consumer_offset,
            *([holders.get(queue, "N/A")] if holders is not None else []),
            diff,
            date_seconds(offsets.last_timestamp) if offsets.last_timestamp else "N/A",
        )
    return text + f"\nConsume TPS: {fixed(stats.consume_tps, 2)}\nDiff Total: {total}\n"


async def _holders(administrator: Administrator, group: str) -> dict[MessageQueue, str]:
    """Client ip per queue, from the members themselves; empty where they do not answer, as in mqadmin."""
    holders: dict[MessageQueue, str] = {}
    try:
        connection = await administrator.consumer_connection(group)
        for member in connection.connection_set:
            for queue in await administrator.queues_held(group, member.client_id):
                holders[queue] = member.client_id.split("@")[0]
    except SteelyardError:
        pass
    return holders


async def _all_groups(administrator: Administrator) -> str:
    from steelyard.live.administrator import RETRY_PREFIX

    text = group_row("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for topic in await administrator.topics():
        if topic.startswith(RETRY_PREFIX):
            text += await _group_line(administrator, topic.removeprefix(RETRY_PREFIX))
    return text


def group_row(*cells: object) -> str:
    return "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}\n".format(*cells)


async def _group_line(administrator: Administrator, group: str) -> str:
    rate, diff = 0, 0
    try:
        stats = await administrator.consume_stats(group)
        rate = int(stats.consume_tps)
        diff = sum(o.broker_offset - o.consumer_offset for o in stats.offset_table.values())
    except SteelyardError:
        pass  # a group that has consumed nothing is shown with zeros
    try:
        connection = await administrator.consumer_connection(group)
    except SteelyardError:
        return group_row(front(group, 64), 0, "OFFLINE", "", "", rate, diff)
    members = connection.connection_set
    if not members:
        return group_row(front(group, 64), 0, "OFFLINE", "", "", rate, diff)
    passive = connection.consume_type != "CONSUME_ACTIVELY"
    return group_row(
        front(group, 64),
        len(members),
        version_name(min(member.version for member in members)),
        "PUSH" if passive else "PULL",
        connection.message_model if passive else "",
        rate,
        diff,
    )


# -- allocateMQ --------------------------------------------------------------------------------------


async def allocate_queues(administrator: Administrator, options: argparse.Namespace) -> str:
    clients = [client.strip() for client in options.ipList.split(",") if client.strip()]
    if not clients:
        raise ConfigError("-i names no client")
    topic = options.topic.strip()
    return allocation_json(topic, await administrator.route(topic), clients)


def allocation_json(topic: str, route: TopicRouteData, clients: Sequence[str]) -> str:
    """`{"result":{client:[queue,...]}}`.

    mqadmin allocates an unsorted set of queues to clients in the order given, which no real group does;
    here both are sorted first, so that the preview is what members of these names would hold.
    """
    import json

    from steelyard.allocate.contiguous import allocate
    from steelyard.allocate.plan import Claim
    from steelyard.routes.table import PERM_READ
    from steelyard.types import MessageQueue

    queues = [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    ]
    claims: list[Claim[MessageQueue]] = [Claim(client) for client in sorted(set(clients))]
    plan = allocate(claims, sorted(queues))
    result = {
        member: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in share
        ]
        for member, share in zip(plan.members, plan.shares, strict=True)
    }
    text = json.dumps({"result": result}, ensure_ascii=False, separators=(",", ":"))
    return text + "\n"
