"""mqadmin's topic commands, from topicRoute to updateTopicPerm and updateOrderConf.

Source: tools/command/topic/*SubCommand.java of 4.9.8, for flags and columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import add_asking_command, add_where_options, asked_brokers, given
from steelyard.admin.clusters import NO_BROKER
from steelyard.admin.printing import date_milliseconds, front, permission, pretty, shown
from steelyard.errors import ConfigError, RouteError, SteelyardError
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.types import MessageQueue
    from steelyard.wire.remoting.bodies import ClusterInfo, TopicConfig, TopicOffset, TopicRouteData


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    route = add_asking_command(commands, "topicRoute", topic_route, "Examine topic route info")
    route.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    route.add_argument("-l", "--list", action="store_true", help="list format")

    status = add_asking_command(
        commands, "topicStatus", topic_status, "Examine topic status info", watched=True
    )
    status.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")

    listing = add_asking_command(commands, "topicList", topic_list, "Fetch all topics")
    listing.add_argument(
        "-c", "--clusterModel", action="store_true", help="include clusters and groups"
    )

    update = add_asking_command(commands, "updateTopic", update_topic, "Update or create a topic")
    add_where_options(update, "create the topic on")
    update.add_argument("-t", "--topic", required=True, type=names.written_topic, help="topic name")
    update.add_argument(
        "-r", "--readQueueNums", type=int, default=8, help="queues to read; default: 8"
    )
    update.add_argument(
        "-w", "--writeQueueNums", type=int, default=8, help="queues to write; default: 8"
    )
    update.add_argument(
        "-p", "--perm", type=int, default=6, help="2: write, 4: read, 6: both; default: 6"
    )
    update.add_argument(
        "-o", "--order", choices=("true", "false"), default="false", help="default: %(default)s"
    )

    perm = add_asking_command(
        commands, "updateTopicPerm", update_topic_perm, "Update a topic's permission"
    )
    add_where_options(perm, "change the topic on")
    perm.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    perm.add_argument("-p", "--perm", required=True, type=int, help="2: write, 4: read, 6: both")

    delete = add_asking_command(
        commands, "deleteTopic", delete_topic, "Delete a topic from brokers and nameservers"
    )
    delete.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    delete.add_argument("-c", "--clusterName", required=True, help="the cluster to delete it from")

    clusters = add_asking_command(
        commands, "topicClusterList", topic_clusters, "List the clusters that have a topic"
    )
    clusters.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")

    order = add_asking_command(
        commands,
        "updateOrderConf",
        update_order_conf,
        "Get, set or delete an ordered topic's queues",
    )
    order.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    order.add_argument("-m", "--method", required=True, choices=("get", "put", "delete"))
    order.add_argument("-v", "--orderConf", help="brokerName:queues;brokerName:queues")


# -- topicRoute ------------------------------------------------------------------------------------


async def topic_route(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topic = options.topic.strip()
    route = await admin.route(topic)
    text = route_table(route) if options.list else route_json(route)
    return CommandOutcome(text, {"topic": topic, **row(route)})


def route_json(route: TopicRouteData) -> str:
    """Format in fastjson's pretty form: sorted keys, None omitted, addresses under number keys."""
    import msgspec

    tree = msgspec.to_builtins(route)
    return pretty(_sorted_keys(tree)) + "\n"


def _sorted_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted_keys(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, (list, tuple)):
        return [_sorted_keys(item) for item in value]
    return value


def route_table(route: TopicRouteData) -> str:
    """TopicRouteSubCommand's list format."""
    route = shown(route)
    row = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    text = row.format(
        "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
    )
    for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
        queue = queues.get(broker.broker_name)
        if queue is None:
            continue
        addresses = ", ".join(f"{key}={value}" for key, value in broker.broker_addrs.items())
        text += row.format(
            broker.cluster,
            broker.broker_name,
            "{" + addresses + "}",
            queue.read_queue_nums,
            queue.write_queue_nums,
            queue.perm,
        )
    read = sum(queue.read_queue_nums for queue in route.queue_datas)
    write = sum(queue.write_queue_nums for queue in route.queue_datas)
    return text + "-" * 158 + "\n" + row.format("Total:", len(queues), "", read, write, "")


# -- topicStatus -----------------------------------------------------------------------------------


async def topic_status(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    table = await admin.topic_stats(options.topic.strip())
    if not table:
        raise RouteError(f"no queue of topic {options.topic} is known to its brokers")
    return CommandOutcome(
        status_table(table), {"queues": [row(queue, table[queue]) for queue in sorted(table)]}
    )


def status_table(table: Mapping[MessageQueue, TopicOffset]) -> str:
    row = "{:<32}  {:<4}  {:<20}  {:<20}    {}\n"
    text = row.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    for queue in sorted(table):
        offset = table[queue]
        updated = offset.last_update_timestamp
        text += row.format(
            front(queue.broker_name, 32),
            queue.queue_id,
            offset.min_offset,
            offset.max_offset,
            date_milliseconds(updated) if updated > 0 else "",
        )
    return text


# -- topicList -------------------------------------------------------------------------------------


async def topic_list(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topics = await admin.topics()
    if not topics and not (await admin.clusters()).broker_addr_table:
        raise RouteError(NO_BROKER)
    if not options.clusterModel:
        text = "".join(f"{shown(topic)}\n" for topic in topics)
        return CommandOutcome(text, {"topics": [{"topic": topic} for topic in topics]})
    text = "{:<20}  {:<48}  {:<48}\n".format("#Cluster Name", "#Topic", "#Consumer Group")
    rows = []
    clusters = await admin.clusters()
    for topic in topics:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        cluster, groups = await _consumers_of(admin, clusters, topic)
        rows.append({"topic": topic, "cluster": cluster, "groups": groups})
        for group in groups or ("",):
            text += f"{front(cluster, 20):<20}  {front(topic, 64):<64}  {front(group, 64):<64}\n"
    return CommandOutcome(text, {"topics": rows})


async def _consumers_of(
    admin: Admin, clusters: ClusterInfo, topic: str
) -> tuple[str, tuple[str, ...]]:
    """Return cluster and groups of a topic; empty if a broker does not respond, as in mqadmin."""
    try:
        route = await admin.route(topic)
        broker = route.broker_datas[0].broker_name
        names = [name for name, held in clusters.cluster_addr_table.items() if broker in held]
        return names[0] if names else "", await admin.groups_of(topic)
    except (SteelyardError, IndexError):
        return "", ()


# -- updateTopic, deleteTopic ----------------------------------------------------------------------


async def update_topic(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.remoting.bodies import TopicConfig

    _check_perm(options.perm)
    for name in ("readQueueNums", "writeQueueNums"):
        if getattr(options, name) < 1:
            raise ConfigError(f"{name} is {getattr(options, name)}; it must be 1 or more")
    config = TopicConfig(
        topic_name=options.topic.strip(),
        read_queue_nums=options.readQueueNums,
        write_queue_nums=options.writeQueueNums,
        perm=options.perm,
        order=options.order == "true",
    )
    addresses = await admin.create_topic(
        config.topic_name,
        cluster=given(options.clusterName),
        broker=given(options.brokerAddr),
        queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        order=config.order,
    )
    text = "".join(f"create topic to {address} success.\n" for address in addresses)
    text += topic_config_line(config) + "\n"
    return CommandOutcome(text, {"brokers": addresses, "config": config})


def _check_perm(perm: int) -> None:
    if perm not in (2, 4, 6):
        raise ConfigError(f"perm is {perm}; it must be 2 (write), 4 (read) or 6 (both)")


def topic_config_line(config: TopicConfig) -> str:
    """TopicConfig.toString."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums},"
        f" writeQueueNums={config.write_queue_nums}, perm={permission(config.perm)},"
        f" topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag},"
        f" order={'true' if config.order else 'false'}]"
    )


async def update_topic_perm(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    """Change one field of the settings that each broker has; mqadmin sets all by the route."""
    from msgspec.structs import replace

    topic, perm = options.topic.strip(), options.perm
    _check_perm(perm)
    await admin.route(topic)  # an unknown topic is reported as such
    one = given(options.brokerAddr)
    found: list[tuple[str, int, TopicConfig]] = []
    for address in await asked_brokers(admin, options):
        before = (await admin.topic_configs(address)).get(topic)
        if before is not None:
            config = replace(before, perm=perm)
            if config != before:
                await admin.update_topic(config, broker=address)
            found.append((address, before.perm, config))
    if not found:
        where = one or f"cluster {options.clusterName.strip()}"
        raise RouteError(f"topic {topic} does not exist on {where}")
    text = "".join(
        f"update topic perm from {before} to {perm} in {address} success.\n"
        for address, before, _ in found
    )
    if one and found[0][1] == perm:
        text = "new perm equals to the old one!\n"
    elif one:
        text += f"{topic_config_line(found[0][2])}.\n"
    rows = [row(address=at, perm_before=before, config=config) for at, before, config in found]
    return CommandOutcome(text, {"topic": topic, "perm": perm, "brokers": rows})


async def delete_topic(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topic, cluster = options.topic.strip(), options.clusterName.strip()
    await admin.delete_topic(topic, cluster)
    return CommandOutcome(deleted_topic(topic, cluster), {"topic": topic, "cluster": cluster})


def deleted_topic(topic: str, cluster: str) -> str:
    return (
        f"delete topic [{topic}] from cluster [{cluster}] success.\n"
        f"delete topic [{topic}] from NameServer success.\n"
    )


# -- topicClusterList, updateOrderConf -------------------------------------------------------------


async def topic_clusters(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topic = options.topic.strip()
    route = await admin.route(topic)
    clusters = sorted({broker.cluster for broker in route.broker_datas})
    text = "".join(f"{name}\n" for name in clusters)
    return CommandOutcome(text, {"topic": topic, "clusters": clusters})


async def update_order_conf(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topic = options.topic.strip()
    match options.method:
        case "get":
            found = await admin.order_conf(topic)
            if found is None:
                raise RouteError(f"topic {topic} has no order conf")
            text = f"get orderConf success. topic=[{topic}], orderConf=[{found}] \n"
            return CommandOutcome(text, {"topic": topic, "order_conf": found})
        case "delete":
            await admin.delete_order_conf(topic)
            text = f"delete orderConf success. topic=[{topic}]\n"
            return CommandOutcome(text, {"topic": topic, "order_conf": None})
    value = given(options.orderConf)
    if value is None:
        raise ConfigError("updateOrderConf -m put needs the queues: -v brokerName:queues;...")
    await admin.put_order_conf(topic, value)
    text = f"update orderConf success. topic=[{topic}], orderConf=[{value}]\n"
    return CommandOutcome(text, {"topic": topic, "order_conf": value})
