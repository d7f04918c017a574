"""mqadmin's queryCq: the index of a queue.

Source: tools/command/queue/QueryConsumeQueueCommand.java of 4.9.8, ConsumeQueueData.toString.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steelyard.admin import names
from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, given
from steelyard.admin.printing import java_text, pretty, shown
from steelyard.errors import ConfigError, RouteError

if TYPE_CHECKING:
    from steelyard.client.administration.consume_queues import ConsumeQueueData, ConsumeQueueRows
    from steelyard.client.aio.admin import Admin

LINE = "======================================\n"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rows = add_asking_command(
        commands, "queryCq", consume_queue, "Query the index of a queue (consume queue)"
    )
    rows.add_argument("-t", "--topic", required=True, type=names.read_topic, help="topic name")
    rows.add_argument("-q", "--queue", required=True, type=int, help="id of the queue")
    rows.add_argument("-i", "--index", required=True, type=int, help="offset of the first row")
    rows.add_argument(
        "-c", "--count", type=int, default=10, help="number of rows; default: %(default)s"
    )
    rows.add_argument("-b", "--broker", help="the broker's address; default: the topic's first")
    rows.add_argument(
        "-g", "--consumer", type=names.group, help="also show this group's subscription"
    )


async def consume_queue(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.client.administration.asking import broker_addresses
    from steelyard.client.administration.consume_queues import ROWS_MAX

    if not 1 <= options.count <= ROWS_MAX:
        raise ConfigError(f"count is {options.count}; it must be from 1 to {ROWS_MAX}")
    for name, largest in (("queue", 2**31 - 1), ("index", 2**63 - 1)):
        if not 0 <= getattr(options, name) <= largest:
            raise ConfigError(f"{name} is {getattr(options, name)}; it must be 0 or more")
    topic, broker = options.topic, given(options.broker)
    if broker is None:
        addresses = broker_addresses(await admin.route(topic))
        broker = next(iter(addresses.values()), None)
    if broker is None:
        raise RouteError(f"topic {topic} has no broker")
    rows = await admin.consume_queue(
        topic,
        options.queue,
        options.index,
        broker=broker,
        count=options.count,
        group=options.consumer,
    )
    document = {
        "broker": broker,
        "topic": topic,
        "queue_id": options.queue,
        "min_offset": rows.min_queue_index,
        "max_offset": rows.max_queue_index,
        "subscription": rows.subscription_data,
        "filter": rows.filter_data,
        "rows": [
            {"queue_offset": options.index + number, "data": data}
            for number, data in enumerate(rows.queue_data or ())
        ],
    }
    return CommandOutcome(rows_text(rows, options.index), document)


def rows_text(rows: ConsumeQueueRows, index: int) -> str:
    """Format rows, the first of which has the offset `index`, as mqadmin does."""
    import msgspec

    rows = shown(rows)
    text = ""
    if rows.subscription_data is not None:
        fields: dict[str, object] = msgspec.to_builtins(rows.subscription_data)
        tree = pretty({name: fields[name] for name in sorted(fields)})
        text += f"Subscription data: \n{tree}\n{LINE}"
    if rows.filter_data is not None:
        text += f"Filter data: \n{rows.filter_data}\n{LINE}"
    text += f"Queue data: \nmax: {rows.max_queue_index}, min: {rows.min_queue_index}\n{LINE}"
    for number, data in enumerate(rows.queue_data or (), index):
        text += f"idx: {number}\n{row_text(data)}\n{LINE}"
    return text


def row_text(data: ConsumeQueueData) -> str:
    """ConsumeQueueData.toString."""
    return (
        f"ConsumeQueueData{{physicOffset={data.physic_offset}, physicSize={data.physic_size},"
        f" tagsCode={data.tags_code}, extendDataJson='{java_text(data.extend_data_json)}',"
        f" bitMap='{java_text(data.bit_map)}', eval={java_text(data.eval)},"
        f" msg='{java_text(data.msg)}'}}"
    )
