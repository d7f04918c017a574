"""`steelyard consume`: join a group and print messages."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from steelyard.admin.asking import (
    add_nameserver_option,
    log_to_stderr,
    new_admin,
    with_credentials,
)
from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.config import ConsumerConfig
    from steelyard.wire.remoting.message import MessageView


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "consume",
        help="join a group and print messages",
        description="Joins a consumer group and prints the body of each message, one a line.",
    )
    add_nameserver_option(parser)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-g", "--group", required=True, help="consumer group")
    parser.add_argument("--tags", default="*", help="'*', or tags joined by '||'")
    parser.add_argument(
        "--from",
        dest="start",
        default="last",
        metavar="first|last|MILLISECONDS",
        help="where a new group starts: first, last, or milliseconds since 1970",
    )
    parser.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop after S seconds")
    parser.add_argument("--json", action="store_true", help="print messages as JSON")
    parser.set_defaults(run=run_consume)


def run_consume(options: argparse.Namespace) -> int:
    from steelyard.driver.loops import run

    if options.count is not None and options.count < 1:
        raise ConfigError(f"count is {options.count}; it must be 1 or more")
    log_to_stderr("WARNING")
    return run(_consume(options))


async def _consume(options: argparse.Namespace) -> int:
    import asyncio
    import signal

    from steelyard.client.aio.push import PushConsumer

    config = with_credentials(_config(options))
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    printed = 0

    async def show(message: MessageView) -> bool:
        nonlocal printed
        if stop.is_set():
            return False
        line = _as_json(message) if options.json else message.body
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        printed += 1
        if printed == options.count:
            stop.set()
        return True

    async with new_admin(options) as admin:
        await admin.clusters()  # a consumer waits for its nameserver; a person wants to know
    consumer = PushConsumer(
        options.group, options.nameservers, show, config=config, tls=options.tls
    )
    async with consumer.subscribe(options.topic, options.tags):
        try:
            async with asyncio.timeout(options.timeout):
                await stop.wait()
        except TimeoutError:
            return 0 if options.count is None else 1
    return 0


def _config(options: argparse.Namespace) -> ConsumerConfig:
    from steelyard.config import ConsumerConfig
    from steelyard.types import ConsumeFrom

    match options.start:
        case "first":
            return ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        case "last":
            return ConsumerConfig(consume_from=ConsumeFrom.LAST_OFFSET)
        case text if text.isascii() and text.isdigit():
            return ConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp=int(text))
        case text:
            raise ConfigError(
                f"--from is {text!r}; it must be first, last or milliseconds since 1970"
            )


def _as_json(message: MessageView) -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "topic": message.topic,
            "broker": message.queue.broker_name,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "message_id": message.message_id,
            "tags": message.tags,
            "keys": message.keys,
            "born_timestamp": message.born_timestamp,
            "store_timestamp": message.store_timestamp,
            "reconsume_times": message.reconsume_times,
            "properties": dict(message.properties),
            "body": message.body.decode("utf-8", "replace"),
        }
    )
