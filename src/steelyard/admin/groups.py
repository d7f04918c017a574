"""mqadmin's commands about groups: consumerConnection, consumerProgress, allocateMQ.

Source: tools/command/{connection,consumer,topic}/*SubCommand.java of 4.9.8, for flags and columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.clusters import NO_BROKER
from steelyard.admin.described_groups import (
    SHARE,
    described_share_group,
    share_lag,
    share_lags,
    share_rows,
    share_table,
)
from steelyard.admin.printing import (
    date_seconds,
    fixed,
    front,
    in_seconds,
    shown,
    version_name,
)
from steelyard.errors import ConfigError, RouteError, SteelyardError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.groups.kafka.report import KafkaGroup
    from steelyard.groups.overview import GroupProgress
    from steelyard.types import MessageQueue
    from steelyard.wire.remoting.bodies import ConsumerConnection, TopicRouteData


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    connection = add_asking_command(
        commands,
        "consumerConnection",
        consumer_connection,
        "Query consumers' connections, versions and subscriptions",
        watched=True,
    )
    connection.add_argument(
        "-g", "--consumerGroup", required=True, type=names.group, help="consumer group"
    )
    connection.add_argument(
        "-b", "--brokerAddr", help="ask this broker; default: one of the group's"
    )

    progress = add_asking_command(
        commands,
        "consumerProgress",
        consumer_progress,
        "Query consumers' progress and speed",
        watched=True,
    )
    progress.add_argument("-g", "--groupName", help="consumer group; default: all")
    progress.add_argument("-t", "--topicName", help="only this topic")
    progress.add_argument(
        "--seconds",
        action="store_true",
        help="show how old the oldest message is that the group has not consumed",
    )
    progress.add_argument(
        "-s", "--showClientIP", choices=("true", "false"), help="show which member holds each queue"
    )

    allocate = add_asking_command(
        commands,
        "allocateMQ",
        allocate_queues,
        "Show how AVG allocates a topic's queues to clients (sorted, as real members do it)",
    )
    allocate.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    allocate.add_argument("-i", "--ipList", required=True, help="client ids, separated by commas")


# -- consumerConnection ----------------------------------------------------------------------------


async def consumer_connection(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group = options.consumerGroup.strip()
    connection = await admin.members(group, given(options.brokerAddr))
    if not connection.connection_set:
        raise RouteError(f"group {group} has no member online")
    return CommandOutcome(connection_table(connection), {"group": group, **row(connection)})


def connection_table(connection: ConsumerConnection) -> str:
    connection = shown(connection)
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


# -- consumerProgress ------------------------------------------------------------------------------


async def consumer_progress(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    if not options.groupName:
        return await _all_groups(admin, options)
    group = options.groupName.strip()
    show = options.showClientIP == "true"
    topic = given(options.topicName)
    try:
        progress = await admin.consumer_progress(group, topic, holders=show)
    except RouteError as unknown:
        return await _share_progress(admin, options, group, unknown)
    waits: dict[MessageQueue, int] = {}
    if options.seconds or options.json:
        waits = await admin.oldest_waits(progress)
    text = progress_table(progress, show_client_ip=show, waits=waits if options.seconds else None)
    rows = [
        row(
            line.queue,
            broker_offset=line.broker_offset,
            consumer_offset=line.consumer_offset,
            lag=line.lag,
            lag_seconds=in_seconds(waits.get(line.queue)),
            last_consumed_at=line.last_consumed_at or None,
            client_id=line.client_id or None,
        )
        for line in progress.queues
    ]
    document = {"group": group, "consume_tps": progress.consume_tps, "lag": progress.lag}
    document |= {"lag_seconds": in_seconds(max(waits.values(), default=None)), "queues": rows}
    return CommandOutcome(text, document)


async def _share_progress(
    admin: Admin, options: argparse.Namespace, group: str, unknown: RouteError
) -> CommandOutcome:
    """Return the progress of a share group, in which several members read a partition.

    Raises `unknown` if it is none, or has not begun. How long messages wait for it is unknown.
    """
    described, _ = await described_share_group(admin, options, group, unknown)
    topic = given(options.topicName)
    rows = [one for one in share_rows(described) if topic in (None, one.topic)]
    if not rows:
        raise unknown
    document = {"group": group, "consume_tps": 0.0, "lag": share_lag(rows), "lag_seconds": None}
    return CommandOutcome(share_table(rows), {**document, "queues": rows})


def progress_table(
    progress: GroupProgress,
    *,
    show_client_ip: bool = False,
    waits: Mapping[MessageQueue, int] | None = None,
) -> str:
    """Format offsets per queue, optionally with the client's ip address.

    With `waits`, in ms, a last column has the age of the oldest message not consumed, in seconds.
    """
    queues = [line.queue for line in progress.queues]
    progress = shown(progress)
    client = "{:<20} " if show_client_ip else ""
    row = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  " + client + "{:<20}  {}{}\n"

    def last(time: str, wait: str) -> tuple[str, str]:
        return (time, "") if waits is None else (f"{time:<20}", f"  {wait}")

    names = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    text = row.format(
        *names, *(["#Client IP"] if show_client_ip else []), "#Diff", *last("#LastTime", "#Seconds")
    )
    for queue, line in zip(queues, progress.queues, strict=True):
        text += row.format(
            front(line.queue.topic, 64),
            front(line.queue.broker_name, 32),
            line.queue.queue_id,
            line.broker_offset,
            line.consumer_offset,
            *([line.client_id.split("@")[0] or "N/A"] if show_client_ip else []),
            line.lag,
            *last(
                date_seconds(line.last_consumed_at) if line.last_consumed_at else "N/A",
                _wait_text(queue, waits or {}),
            ),
        )
    return text + f"\nConsume TPS: {fixed(progress.consume_tps, 2)}\nDiff Total: {progress.lag}\n"


def _wait_text(queue: MessageQueue, waits: Mapping[MessageQueue, int]) -> str:
    wait = waits.get(queue)
    return "N/A" if wait is None else f"{wait / 1000:.1f}"


async def _all_groups(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    if not (await admin.clusters()).broker_addr_table:
        raise RouteError(NO_BROKER)
    text = group_row("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    rows = [await _group_row(admin, group) for group in await admin.groups()]
    try:
        kafka_groups = await admin.kafka_groups()
    except SteelyardError:
        kafka_groups = ()  # a broker is down: still show what mqadmin would show
    lags = await share_lags(admin, options, kafka_groups)
    for one in kafka_groups:
        lag = lags.get(one.group) if one.kind == SHARE else await _kafka_lag(admin, one.group)
        rows.append(_kafka_group_row(one, lag))
    for each in rows:
        name, *cells = each.values()
        text += group_row(front(str(name), 64), *("N/A" if c is None else c for c in cells))
    return CommandOutcome(text, {"groups": rows})


def group_row(*cells: object) -> str:
    return "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}\n".format(*cells)


def _group_fields(*cells: object) -> dict[str, object]:
    """Name the cells of a line, in mqadmin's order."""
    names = ("group", "members", "version", "type", "model", "tps", "lag")
    return dict(zip(names, cells, strict=True))


async def _group_row(admin: Admin, group: str) -> dict[str, object]:
    rate, diff = 0, 0
    try:
        progress = await admin.consumer_progress(group, holders=False)
        rate, diff = int(progress.consume_tps), progress.lag
    except SteelyardError:
        pass  # a group that has consumed nothing is shown with zeros
    try:
        connection = await admin.members(group)
    except SteelyardError:
        return _group_fields(group, 0, "OFFLINE", "", "", rate, diff)
    members = connection.connection_set
    if not members:
        return _group_fields(group, 0, "OFFLINE", "", "", rate, diff)
    passive = connection.consume_type != "CONSUME_ACTIVELY"
    return _group_fields(
        group,
        len(members),
        version_name(min(member.version for member in members)),
        "PUSH" if passive else "PULL",
        connection.message_model if passive else "",
        rate,
        diff,
    )


async def _kafka_lag(admin: Admin, group: str) -> int:
    try:
        return (await admin.kafka_group(group)).lag
    except SteelyardError:
        return 0  # it has been deleted meanwhile


def _kafka_group_row(group: KafkaGroup, lag: int | None) -> dict[str, object]:
    """Return the row of a Kafka group: its members pull and report no version.

    The model is the group's kind. `lag`: None if unknown.
    """
    if not group.members:
        return _group_fields(group.group, 0, "OFFLINE", "", "", 0, lag)
    return _group_fields(group.group, group.members, "KAFKA", "PULL", group.kind.upper(), 0, lag)


# -- allocateMQ ------------------------------------------------------------------------------------


async def allocate_queues(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    clients = [client.strip() for client in options.ipList.split(",") if client.strip()]
    if not clients:
        raise ConfigError("-i is empty; give client ids separated by commas")
    topic = options.topic.strip()
    text = allocation_json(topic, await admin.route(topic), clients)
    return CommandOutcome(text, {"topic": topic, "shares": allocation_rows(text)})


def allocation_json(topic: str, route: TopicRouteData, clients: Sequence[str]) -> str:
    """`{"result":{client:[queue,...]}}`.

    mqadmin allocates an unsorted set of queues to clients in the given order, which no real group
    does; here both are sorted first, so that the preview shows what members of these names would
    hold.
    """
    import json

    from steelyard.allocate.contiguous import allocate
    from steelyard.allocate.plan import Claim
    from steelyard.types import MessageQueue
    from steelyard.wire.remoting.names import PERM_READ

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


def allocation_rows(text: str) -> list[dict[str, object]]:
    """Return the shares of `allocation_json` as rows: client id and queues, in snake case."""
    import json

    return [
        {
            "client_id": client,
            "queues": [
                {
                    "topic": queue["topic"],
                    "broker_name": queue["brokerName"],
                    "queue_id": queue["queueId"],
                }
                for queue in share
            ],
        }
        for client, share in json.loads(text)["result"].items()
    ]
