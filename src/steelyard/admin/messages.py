"""mqadmin's message commands: queryMsgById, queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset.

Source: tools/command/message/*SubCommand.java of 4.9.8, for flags and layout.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.files import write_file
from steelyard.admin.printing import date_milliseconds, java_fields, shown
from steelyard.errors import ConfigError, RouteError
from steelyard.printable import printable

if TYPE_CHECKING:
    from steelyard.client.aio.admin import Admin
    from steelyard.groups.overview import MessageTrack
    from steelyard.wire.remoting.bodies import ConsumeMessageDirectlyResult
    from steelyard.wire.remoting.message import MessageView

BODIES = Path(tempfile.gettempdir(), "rocketmq", "msgbodys")
"""Where mqadmin writes bodies."""

INTEGERS_MAX = {"queueId": 2**31 - 1, "offset": 2**63 - 1}
"""Java's Integer and Long."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    by_id = add_asking_command(commands, "queryMsgById", by_ids, "Query messages by id")
    by_id.add_argument(
        "-i", "--msgId", required=True, help="offset message ids, separated by commas"
    )
    _add_member_options(by_id)

    key = add_asking_command(commands, "queryMsgByKey", by_key, "Query messages by key")
    key.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    key.add_argument("-k", "--msgKey", required=True, help="one of the messages' keys")

    unique = add_asking_command(
        commands, "queryMsgByUniqueKey", by_unique_key, "Query a message by its producer's id"
    )
    unique.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    unique.add_argument(
        "-i", "--msgId", required=True, help="the message id returned to the producer"
    )
    unique.add_argument(
        "-a", "--showAll", action="store_true", help="print all messages with this id"
    )
    _add_member_options(unique)

    offset = add_asking_command(
        commands, "queryMsgByOffset", by_offset, "Query a message by its offset in a queue"
    )
    offset.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    offset.add_argument("-b", "--brokerName", required=True, help="name of the queue's broker")
    offset.add_argument("-i", "--queueId", required=True, type=int, help="id of the queue")
    offset.add_argument("-o", "--offset", required=True, type=int, help="offset in the queue")
    offset.add_argument(
        "-f",
        "--bodyFormat",
        metavar="CHARSET",
        help="also print the body, as text in this encoding, such as UTF-8",
    )


def _add_member_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-g", "--consumerGroup", help="with -d: the group whose member consumes the message now"
    )
    parser.add_argument("-d", "--clientId", help="with -g: the member's client id")


async def by_ids(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.remoting.ids import is_unique_id

    text, rows = "", []
    for message_id in filter(None, map(str.strip, options.msgId.split(","))):
        if is_unique_id(message_id):
            raise ConfigError(
                f"{message_id!r} is the unique id that the producer has made, not an offset message"
                " id; use queryMsgByUniqueKey, with the message's topic"
            )
        message = await admin.message(message_id)
        if _to_member(options):
            result = await _consume(admin, options, message)
            text += direct_result(result) + "\n"
            rows.append({**message_row(message), "result": result})
        else:
            shown_text, shown_row = await _shown(admin, message)
            text += _offset_id_line(message) + shown_text
            rows.append(shown_row)
    return CommandOutcome(text, {"messages": rows})


def _offset_id_line(message: MessageView) -> str:
    return f"{'OffsetID:':<20} {message.offset_message_id}\n"


async def by_offset(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.types import MessageQueue

    encoding = given(options.bodyFormat)
    if encoding is not None:
        _check_encoding(encoding)
    for name in ("queueId", "offset"):
        if not 0 <= getattr(options, name) <= INTEGERS_MAX[name]:
            raise ConfigError(f"{name} is {getattr(options, name)}; it must be 0 or more")
    queue = MessageQueue(options.topic, options.brokerName.strip(), options.queueId)
    message = await admin.message_at(queue, options.offset)
    text, found = await _shown(admin, message, encoding=encoding)
    return CommandOutcome(_offset_id_line(message) + text, {"messages": [found]})


def _check_encoding(encoding: str) -> None:
    try:
        " ".encode(encoding).decode(encoding, "replace")
    except (LookupError, UnicodeError):
        raise ConfigError(f"bodyFormat is {encoding!r}, which is no encoding of text") from None


async def by_key(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    messages = await admin.messages_by_key(options.topic.strip(), options.msgKey.strip())
    line = "{:<50} {:>4} {:>40}\n"
    text = line.format("#Message ID", "#QID", "#Offset")
    for message in messages:
        text += line.format(message.message_id, message.queue_id, message.queue_offset)
    return CommandOutcome(text, {"messages": [message_row(message) for message in messages]})


async def by_unique_key(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    topic, message_id = options.topic.strip(), options.msgId.strip()
    messages = await admin.messages_by_unique_key(topic, message_id)
    if not messages:
        raise RouteError(f"topic {topic} has no message with the id {message_id}")
    if _to_member(options):
        result = await _consume(admin, options, messages[0])
        rows = [{**message_row(messages[0]), "result": result}]
        return CommandOutcome(direct_result(result) + "\n", {"messages": rows})
    text, rows = "", []
    for number, message in enumerate(messages if options.showAll else messages[:1]):
        one = await _shown(admin, message, f"_{number}" if number else "")
        text += one[0]
        rows.append(one[1])
    return CommandOutcome(text, {"messages": rows})


def message_row(message: MessageView) -> dict[str, object]:
    """Return a message without its body. Times are in ms since 1970."""
    return {
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "reconsume_times": message.reconsume_times,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "sys_flag": message.sys_flag,
        "properties": dict(message.properties),
    }


def _to_member(options: argparse.Namespace) -> bool:
    group, client_id = given(options.consumerGroup), given(options.clientId)
    if (group is None) != (client_id is None):
        raise ConfigError(
            "-g and -d must be given together: the group, and the client id of its member"
        )
    return group is not None


async def _consume(
    admin: Admin, options: argparse.Namespace, message: MessageView
) -> ConsumeMessageDirectlyResult:
    group, client_id = options.consumerGroup.strip(), options.clientId.strip()
    return await admin.consume_directly(group, client_id, message)


def direct_result(result: ConsumeMessageDirectlyResult) -> str:
    """ConsumeMessageDirectlyResult.toString."""
    values = {
        "order": result.order,
        "autoCommit": result.auto_commit,
        "consumeResult": result.consume_result,
        "remark": result.remark,
        "spentTimeMills": result.spent_time_mills,
    }
    return f"ConsumeMessageDirectlyResult [{java_fields(values)}]"


async def _shown(
    admin: Admin, message: MessageView, suffix: str = "", *, encoding: str | None = None
) -> tuple[str, dict[str, object]]:
    """Write the body to a file, as mqadmin; return the text and the row of a message.

    `encoding`: also print the body, as text.
    """
    path = BODIES / (message.message_id + suffix)
    write_file(path, message.body)
    tracks = await admin.track(message)
    found: dict[str, object] = {"body_path": str(path), "tracks": tracks}
    text = message_text(message, str(path))
    if encoding is not None:
        found["body"] = message.body.decode(encoding, "replace")
        text += f"{'Message Body:':<20} {printable(str(found['body']))}\n"
    return text + track_lines(tracks), message_row(message) | found


def message_text(message: MessageView, body_path: str) -> str:
    rows: dict[str, object] = {
        "Topic": message.topic,
        "Tags": f"[{message.tags or 'null'}]",
        "Keys": f"[{message.keys or 'null'}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": date_milliseconds(message.born_timestamp),
        "Store Timestamp": date_milliseconds(message.store_timestamp),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": f"{{{java_fields(message.properties)}}}",
        "Message Body Path": body_path,
    }
    return "".join(f"{name + ':':<20} {value}\n" for name, value in shown(rows).items())


def track_lines(tracks: Sequence[MessageTrack]) -> str:
    if not tracks:
        return "\n\nWARN: No Consumer\n"
    lines = (
        java_fields(
            {
                "consumerGroup": track.group,
                "trackType": track.kind.value,
                "exceptionDesc": track.description,
            }
        )
        for track in tracks
    )
    return "\n\n" + "".join(f"MessageTrack [{line}]\n" for line in lines)
