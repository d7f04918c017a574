"""mqadmin's commands about clients: consumerStatus, producerConnection, getConsumerStatus; doctor.

Source: tools/command/{consumer,connection,offset}/*.java, ConsumerRunningInfo.formatString
(4.9.8).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.admin import exits, names
from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.described_groups import findings
from steelyard.admin.files import write_file
from steelyard.admin.printing import date_digits, fixed, front, java_fields, shown, version_name
from steelyard.errors import RouteError
from steelyard.printable import printable
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.bodies import ConsumerRunningInfo, ProcessQueueInfo

MINUTE_MS = 60_000

NO_ANSWER = "no answer"
"""In place of the file of a member that hangs, or cannot be reached by the broker."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    status = add_asking_command(
        commands, "consumerStatus", consumer_status, "Query a consumer's internal data structures"
    )
    status.add_argument(
        "-g", "--consumerGroup", required=True, type=names.group, help="consumer group"
    )
    status.add_argument(
        "-i", "--clientId", help="print this member's data; default: write files for all members"
    )
    status.add_argument(
        "-b", "--brokerAddr", help="ask this broker for the members; default: one of the group's"
    )
    status.add_argument("-s", "--jstack", action="store_true", help="include thread stacks")

    producers = add_asking_command(
        commands,
        "producerConnection",
        producer_connection,
        "Query producers' connections and client versions",
    )
    producers.add_argument(
        "-g", "--producerGroup", required=True, type=names.group, help="producer group"
    )
    producers.add_argument(
        "-t", "--topic", required=True, type=names.read_topic, help="a topic to which they send"
    )

    offsets = add_asking_command(
        commands, "getConsumerStatus", member_offsets, "Get the offsets that members report"
    )
    offsets.add_argument("-g", "--group", required=True, type=names.group, help="consumer group")
    offsets.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    offsets.add_argument("-i", "--originClientId", default="", help="only this member")

    doctor = add_asking_command(
        commands,
        "doctor",
        diagnose,
        "Say what keeps a group, RocketMQ's or Kafka's, from working, and what to change",
        watched=True,
    )
    doctor.epilog = f"It ends with {exits.FAILED} if it finds a problem. {exits.EXPLAINED}"
    doctor.add_argument("-g", "--consumerGroup", required=True, help="consumer group")


# -- consumerStatus --------------------------------------------------------------------------------


async def consumer_status(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group, client_id = options.consumerGroup.strip(), given(options.clientId)
    if client_id is not None:
        info = await admin.running_info(group, client_id, threads=options.jstack)
        return CommandOutcome(running_info_text(info), _member_document(group, {client_id: info}))
    connection = await admin.members(group, given(options.brokerAddr))
    now = time.time_ns() // 1_000_000
    line = "{:<10} {:<40} {:<20} {}\n"
    text = line.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    asked = await admin.running_infos(
        group, [one.client_id for one in connection.connection_set], threads=options.jstack
    )
    infos = {client_id: info for client_id, info in asked.items() if info is not None}
    for number, member in enumerate(connection.connection_set, 1):
        path: Path | str = NO_ANSWER
        if member.client_id in infos:
            path = Path(str(now), member.client_id.replace("/", "_"))
            write_file(path, running_info_text(infos[member.client_id]).encode())
        text += line.format(number, member.client_id, version_name(member.version), path)
    silent = sorted(asked.keys() - infos.keys())
    document = {**_member_document(group, infos), "silent": silent}
    if not silent:
        return CommandOutcome(text + verdict(infos, now), document)
    text += f"\n\n{len(silent)} of {counted(len(asked), 'member')} did not answer\n"
    return CommandOutcome(text, document, exits.UNREACHABLE)


def _member_document(group: str, infos: dict[str, ConsumerRunningInfo]) -> dict[str, object]:
    members = [{"client_id": client_id, **row(info)} for client_id, info in infos.items()]
    return {"group": group, "members": members}


def verdict(infos: dict[str, ConsumerRunningInfo], now: int) -> str:
    """Return what mqadmin concludes from all members; `steelyard admin doctor` examines more."""
    subscriptions = {
        frozenset((item.topic, item.sub_string) for item in info.subscription_set)
        for info in infos.values()
    }
    if len(subscriptions) > 1:
        return "\n\nWARN: Different subscription in the same group of consumer!!!\n"
    text = "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n"
    infos = shown(dict(infos))
    for client_id in sorted(infos):
        info = infos[client_id]
        orderly = info.properties.get("PROP_CONSUMEORDERLY") == "true"
        for queue, held in info.mq_table.items():
            name = (
                f"{client_id} MessageQueue [topic={queue.topic},"
                f" brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            )
            idle = now - held.last_consume_timestamp
            if orderly and not held.locked:
                idle = now - held.last_lock_timestamp
                text += f"{name} can't lock for a while, {idle}ms\n"
            elif orderly and held.dropped and held.try_unlock_times > 0:
                text += f"{name} unlock {held.try_unlock_times} times, still failed\n"
            elif not orderly and held.cached_msg_count > 0 and idle > MINUTE_MS:
                text += f"{name} can't consume for a while, maybe blocked, {idle}ms\n"
    return text


HEADING = "{:<64}  {:<32}  {:<4}  {:<20}\n"


def running_info_text(info: ConsumerRunningInfo) -> str:
    """Format like ConsumerRunningInfo.formatString, including its misaligned columns."""
    jstack, info = info.jstack, shown(info)
    text = "#Consumer Properties#\n"
    for name, value in info.properties.items():
        text += f"{name:<40}: {value}\n"
    text += "\n\n#Consumer Subscription#\n"
    for number, item in enumerate(info.subscription_set, 1):
        class_filter = "true" if item.class_filter_mode else "false"
        text += (
            f"{number:03d} Topic: {item.topic:<40} ClassFilter: {class_filter:<8}"
            f" SubExpression: {item.sub_string}\n"
        )
    text += "\n\n#Consumer Offset#\n"
    text += HEADING.format("#Topic", "#Broker Name", "#QID", "#Consumer Offset")
    for (topic, broker, queue_id), held in info.mq_table.items():
        text += f"{topic:<32}  {broker:<32}  {queue_id:<4}  {held.commit_offset:<20}\n"
    text += "\n\n#Consumer MQ Detail#\n"
    text += HEADING.format("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    for (topic, broker, queue_id), held in info.mq_table.items():
        text += f"{topic:<64}  {broker:<32}  {queue_id:<4}  {process_queue_text(held)}\n"
    text += "\n\n#Consumer RT&TPS#\n" + rates_text(info)
    if jstack is not None:
        text += f"\n\n#Consumer jstack#\n{jstack}"
    return text


def rates_text(info: ConsumerRunningInfo) -> str:
    columns = " {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}\n"
    text = f"{'#Topic':<64} " + columns.format(
        "#Pull RT",
        "#Pull TPS",
        "#Consume RT",
        "#ConsumeOK TPS",
        "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour",
    )
    for topic, rates in info.status_table.items():
        text += f"{topic:<32} " + columns.format(
            fixed(rates.pull_rt, 2),
            fixed(rates.pull_tps, 2),
            fixed(rates.consume_rt, 2),
            fixed(rates.consume_ok_tps, 2),
            fixed(rates.consume_failed_tps, 2),
            rates.consume_failed_msgs,
        )
    return text


def process_queue_text(held: ProcessQueueInfo) -> str:
    """ProcessQueueInfo.toString."""
    values = {
        "commitOffset": held.commit_offset,
        "cachedMsgMinOffset": held.cached_msg_min_offset,
        "cachedMsgMaxOffset": held.cached_msg_max_offset,
        "cachedMsgCount": held.cached_msg_count,
        "cachedMsgSizeInMiB": held.cached_msg_size_in_mib,
        "transactionMsgMinOffset": held.transaction_msg_min_offset,
        "transactionMsgMaxOffset": held.transaction_msg_max_offset,
        "transactionMsgCount": held.transaction_msg_count,
        "locked": held.locked,
        "tryUnlockTimes": held.try_unlock_times,
        "lastLockTimestamp": date_digits(held.last_lock_timestamp),
        "droped": held.dropped,
        "lastPullTimestamp": date_digits(held.last_pull_timestamp),
        "lastConsumeTimestamp": date_digits(held.last_consume_timestamp),
    }
    return f"ProcessQueueInfo [{java_fields(values)}]"


# -- producerConnection, getConsumerStatus ---------------------------------------------------------


async def producer_connection(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group, topic = options.producerGroup.strip(), options.topic.strip()
    producers = await admin.producers(group, topic)
    if not producers:
        raise RouteError(f"no producer of group {group} is connected to the topic's brokers")
    text = "".join(
        f"{number:04d}  {member.client_id:<32} {member.client_addr:<22} {member.language:<8}"
        f" {version_name(member.version)}\n"
        for number, member in enumerate(shown(producers), 1)
    )
    return CommandOutcome(text, {"group": group, "topic": topic, "producers": producers})


async def member_offsets(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group, topic = options.group.strip(), options.topic.strip()
    client_id = options.originClientId.strip()
    found = await admin.member_offsets(group, topic, client_id)
    table = shown(found)
    text = (
        f"get consumer status from client. group={group}, topic={topic},"
        f" originClientId={client_id}\n"
    )
    line = "{:<50}  {:<15}  {:<15}  {:<20}\n"
    text += line.format("#clientId", "#brokerName", "#queueId", "#offset")
    for member in sorted(table):
        for queue, offset in sorted(table[member].items()):
            text += line.format(front(member, 50), queue.broker_name, queue.queue_id, offset)
    rows = [
        {
            "client_id": member,
            "queues": [row(queue, offset=at) for queue, at in sorted(its.items())],
        }
        for member, its in sorted(found.items())
    ]
    return CommandOutcome(text, {"group": group, "topic": topic, "members": rows})


# -- doctor ----------------------------------------------------------------------------------------


async def diagnose(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    group = options.consumerGroup.strip()
    found = await findings(admin, options, group)
    document = {"group": group, "findings": found}
    if not found:
        return CommandOutcome(f"group {printable(group)}: nothing is wrong\n", document)
    text = "".join(
        f"{number}. {finding.what}\n   {finding.advice}\n"
        for number, finding in enumerate(shown(found), 1)
    )
    return CommandOutcome(text, document, exits.FAILED)
