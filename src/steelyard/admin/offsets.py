"""mqadmin's resetOffsetByTime, and resetOffset for one queue; cloneGroupOffset.

Source: tools/command/offset/ResetOffsetByTimeCommand.java,
ResetOffsetByTimeOldCommand.java, CloneGroupOffsetCommand.java of 4.9.8.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome, row
from steelyard.admin.asking import add_asking_command, check_is_no_kafka_group
from steelyard.admin.printing import front
from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.groups.overview import QueueReset

NOW = "now"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    reset = add_asking_command(
        commands,
        "resetOffsetByTime",
        reset_offset,
        "Reset a group's offsets to a time, or one queue's to an offset, while its members keep"
        " running",
    )
    reset.add_argument("-g", "--group", required=True, type=names.group, help="consumer group")
    reset.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    reset.add_argument(
        "-s",
        "--timestamp",
        metavar="now|MILLISECONDS|yyyy-MM-dd#HH:mm:ss:SSS",
        help="time to resume from (when messages were stored), or now for the end",
    )
    reset.add_argument(
        "-f",
        "--force",
        choices=("true", "false"),
        default="true",
        help="move the group forward as well as back; default: %(default)s",
    )
    reset.add_argument("-b", "--broker", help="with -q and -o: name of the queue's broker")
    reset.add_argument(
        "-q", "--queue", type=int, help="with -b and -o: id of the only queue to move"
    )
    reset.add_argument("-o", "--offset", type=int, help="offset to resume from in the queue")

    clone = add_asking_command(
        commands,
        "cloneGroupOffset",
        clone_offsets,
        "Give a group without members the offsets of another group in a topic",
    )
    clone.add_argument(
        "-s", "--srcGroup", required=True, type=names.group, help="the group that has the offsets"
    )
    clone.add_argument(
        "-d", "--destGroup", required=True, type=names.group, help="the group that gets them"
    )
    clone.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    clone.add_argument(
        "-o",
        "--offline",
        choices=("true", "false"),
        default="false",
        help="also if the first group has members and none of them subscribes to the topic",
    )


async def reset_offset(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.types import MessageQueue

    group, topic = options.group.strip(), options.topic.strip()
    one_queue = (options.broker, options.queue, options.offset)
    if options.timestamp is None:
        if None in one_queue:
            raise ConfigError(
                "give a time (-s), or a queue and an offset to resume from (-b, -q, -o)"
            )
        await _check_protocol(options, group)
        queue = MessageQueue(topic, options.broker.strip(), options.queue)
        moved = await admin.reset_offset(group, topic, queue=queue, offset=options.offset)
        return CommandOutcome(moved_table(moved), _document(group, moved))
    if one_queue != (None, None, None):
        raise ConfigError("-b, -q and -o cannot be combined with -s, which resets all queues")
    text = options.timestamp.strip()
    timestamp = parse_time(text)
    force = options.force == "true"
    await _check_protocol(options, group)
    resets = await admin.reset_offset(group, topic, timestamp=timestamp, force=force)
    text = (
        f"rollback consumer offset by specified group[{group}], topic[{topic}],"
        f" force[{options.force}], timestamp(string)[{text}], timestamp(long)[{timestamp}]\n"
        + reset_table(resets)
    )
    return CommandOutcome(text, _document(group, resets))


async def _check_protocol(options: argparse.Namespace, group: str) -> None:
    await check_is_no_kafka_group(options, group, "kafka-consumer-groups.sh --reset-offsets")


def _document(group: str, resets: Sequence[QueueReset]) -> dict[str, object]:
    queues = [
        row(
            reset.queue,
            offset=reset.offset,
            before=reset.before,
            broker_offset=reset.broker_offset,
        )
        for reset in resets
    ]
    return {"group": group, "queues": queues}


def parse_time(text: str) -> int:
    """Parse a time to milliseconds since 1970, -1 for `now`. Raises ConfigError."""
    if text == NOW:
        return -1
    if text.isascii() and text.isdigit():
        return int(text)
    begin, _, milliseconds = text.rpartition(":")
    try:
        moment = time.strptime(begin, "%Y-%m-%d#%H:%M:%S")
        if len(milliseconds) != 3:
            raise ValueError
        return int(time.mktime(moment)) * 1000 + int(milliseconds)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time; write now, milliseconds since 1970, or"
            " yyyy-MM-dd#HH:mm:ss:SSS"
        ) from None


def reset_table(resets: Sequence[QueueReset]) -> str:
    """Format the new offset of each queue, as mqadmin does for online groups."""
    row = "{:<40}  {:<40}  {:<40}\n"
    text = row.format("#brokerName", "#queueId", "#offset")
    for reset in resets:
        broker = front(reset.queue.broker_name, 32)
        text += row.format(broker, reset.queue.queue_id, reset.offset)
    return text


def moved_table(resets: Sequence[QueueReset]) -> str:
    """As `reset_table`, with previous offsets; N/A if the members reset themselves."""
    row = "{:<32}  {:<8}  {:<20}  {:<20}\n"
    text = row.format("#brokerName", "#queueId", "#consumerOffset", "#rollbackOffset")
    for reset in resets:
        before = "N/A" if reset.before is None else reset.before
        broker = front(reset.queue.broker_name, 32)
        text += row.format(broker, reset.queue.queue_id, before, reset.offset)
    return text


# -- cloneGroupOffset ------------------------------------------------------------------------------


async def clone_offsets(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    source, target, topic = options.srcGroup, options.destGroup, options.topic
    if source == target:
        raise ConfigError(f"-s and -d are both {source}; give two groups")
    offsets = await admin.clone_offsets(source, target, topic, offline=options.offline == "true")
    text = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]\n"
    rows = [row(queue, offset=offset) for queue, offset in offsets.items()]
    document = {"source": source, "group": target, "topic": topic, "queues": rows}
    return CommandOutcome(text, document)
