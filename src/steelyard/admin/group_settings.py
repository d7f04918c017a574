"""mqadmin's commands for the settings of groups: updateSubGroup, getConsumerConfig and the like.

Source: tools/command/consumer/*SubCommand.java of 4.9.8, and of 5.x for setConsumeMode.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import msgspec

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import (
    add_asking_command,
    add_where_options,
    asked_brokers,
    check_is_no_kafka_group,
    given,
    unsupported,
)
from steelyard.admin.printing import java_fields, java_text, shown
from steelyard.admin.topics import deleted_topic
from steelyard.errors import BrokerError, ConfigError, RouteError
from steelyard.printable import printable
from steelyard.wire.remoting.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import SubscriptionGroupConfig


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    update = add_asking_command(
        commands, "updateSubGroup", update_group, "Update or create a subscription group"
    )
    add_where_options(update, "create the group on")
    update.add_argument("-g", "--groupName", required=True, type=names.group, help="consumer group")
    for letter, name, default in (
        ("-s", "consumeEnable", "true"),
        ("-m", "consumeFromMinEnable", "false"),
        ("-d", "consumeBroadcastEnable", "false"),
        ("-a", "notifyConsumerIdsChanged", "true"),
    ):
        update.add_argument(letter, f"--{name}", choices=("true", "false"), default=default)
    update.add_argument("-q", "--retryQueueNums", type=int, default=1)
    update.add_argument("-r", "--retryMaxTimes", type=int, default=16)
    update.add_argument("-i", "--brokerId", type=int, default=0)
    update.add_argument("-w", "--whichBrokerWhenConsumeSlowly", type=int, default=1)

    delete = add_asking_command(
        commands, "deleteSubGroup", delete_group, "Delete a subscription group from brokers"
    )
    add_where_options(delete, "delete the group from")
    delete.add_argument("-g", "--groupName", required=True, type=names.group, help="consumer group")
    delete.add_argument(
        "-r", "--removeOffset", choices=("true", "false"), default="false", help="offsets, too"
    )

    config = add_asking_command(
        commands, "getConsumerConfig", group_config, "Get a group's settings at each broker"
    )
    config.add_argument("-g", "--groupName", required=True, type=names.group, help="consumer group")

    mode = add_asking_command(
        commands,
        "setConsumeMode",
        set_consume_mode,
        "Set whether a group pulls a topic's messages or pops them (brokers of RocketMQ 5.x)",
    )
    add_where_options(mode, "set it on")
    mode.add_argument("-t", "--topicName", required=True, type=names.read_topic, help="topic name")
    mode.add_argument("-g", "--groupName", required=True, type=names.group, help="consumer group")
    mode.add_argument("-m", "--mode", required=True, choices=("PULL", "POP"))
    mode.add_argument(
        "-q",
        "--popShareQueueNum",
        type=int,
        default=0,
        help="with POP: how many further members may share each queue; default: all",
    )


# -- updateSubGroup, deleteSubGroup ----------------------------------------------------------------


async def update_group(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.remoting.bodies import SubscriptionGroupConfig

    for name in ("retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly"):
        if getattr(options, name) < 0:
            raise ConfigError(f"{name} is {getattr(options, name)}; it must be 0 or more")
    config = SubscriptionGroupConfig(
        group_name=options.groupName.strip(),
        consume_enable=options.consumeEnable == "true",
        consume_from_min_enable=options.consumeFromMinEnable == "true",
        consume_broadcast_enable=options.consumeBroadcastEnable == "true",
        retry_queue_nums=options.retryQueueNums,
        retry_max_times=options.retryMaxTimes,
        broker_id=options.brokerId,
        which_broker_when_consume_slowly=options.whichBrokerWhenConsumeSlowly,
        notify_consumer_ids_changed_enable=options.notifyConsumerIdsChanged == "true",
    )
    addresses = await admin.update_group(
        config, cluster=given(options.clusterName), broker=given(options.brokerAddr)
    )
    text = "".join(f"create subscription group to {address} success.\n" for address in addresses)
    text += group_config_line(config) + "\n"
    return CommandOutcome(text, {"brokers": addresses, "config": config})


def group_config_line(config: SubscriptionGroupConfig) -> str:
    """SubscriptionGroupConfig.toString."""
    return f"SubscriptionGroupConfig [{java_fields(msgspec.to_builtins(config))}]"


async def delete_group(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group, cluster = options.groupName.strip(), given(options.clusterName)
    await check_is_no_kafka_group(options, group, "kafka-consumer-groups.sh --delete")
    addresses = await admin.delete_group(
        group,
        cluster=cluster,
        broker=given(options.brokerAddr),
        clean_offsets=options.removeOffset == "true",
    )
    where = f" in cluster [{cluster}]" if cluster else ""
    text = "".join(
        f"delete subscription group [{group}] from broker [{address}]{where} success.\n"
        for address in addresses
    )
    if cluster:
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            text += deleted_topic(prefix + group, cluster)
    return CommandOutcome(text, {"group": group, "cluster": cluster, "brokers": addresses})


# -- getConsumerConfig, setConsumeMode -------------------------------------------------------------


async def group_config(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group = options.groupName.strip()
    configs = await admin.group_config(group)
    if not configs:
        raise RouteError(f"no broker knows group {group}")
    table = (await admin.clusters()).cluster_addr_table
    rows, text = [], ""
    for broker, config in configs.items():
        cluster = next((name for name, brokers in table.items() if broker in brokers), "")
        rows.append(row(cluster=cluster, broker_name=broker, config=config))
        text += group_config_lines(f"{printable(cluster)}:{printable(broker)}", config)
    return CommandOutcome(text, {"group": group, "brokers": rows})


def group_config_lines(heading: str, config: SubscriptionGroupConfig) -> str:
    """Format one setting a line, in the order of SubscriptionGroupConfig.java."""
    settings: dict[str, object] = shown(msgspec.to_builtins(config))
    lines = (f"{name:<40}=  {java_text(value)}\n" for name, value in settings.items())
    return f"{'=' * 29}{heading}{'=' * 29}\n" + "".join(lines)


async def set_consume_mode(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group, topic, shared = options.groupName, options.topicName, options.popShareQueueNum
    if shared < 0:
        raise ConfigError(f"popShareQueueNum is {shared}; it must be 0 or more")
    addresses = await asked_brokers(admin, options)
    for address in addresses:
        try:
            await admin.set_consume_mode(
                group, topic, options.mode, broker=address, pop_share_queues=shared
            )
        except BrokerError as error:
            raise unsupported(error, "consume modes; its groups pull") from error
    text = "".join(f"set consume mode to {address} success.\n" for address in addresses)
    text += (
        f"topic[{topic}] group[{group}] consume mode[{options.mode}] popShareQueueNum[{shared}]\n"
    )
    document = {"group": group, "topic": topic, "mode": options.mode, "pop_share_queues": shared}
    return CommandOutcome(text, {**document, "brokers": addresses})
