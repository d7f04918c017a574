"""`steelyard produce`: send lines, messages as JSON, or generated messages."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from steelyard.admin import names
from steelyard.admin.asking import add_nameserver_option, log_to_stderr, with_credentials
from steelyard.admin.starts import seconds
from steelyard.errors import ConfigError, MessageError
from steelyard.wording import counted

if TYPE_CHECKING:
    from steelyard.types import Message, SendResult

IN_FLIGHT_MAX = 256
"""Maximum sends in flight."""

DEFAULT_SIZE = 128
"""Bytes of a generated body."""

_OPTIONS_OF_PROPERTIES = {"KEYS": "--key", "TAGS": "--tag", "DELAY": "--delay"}

DELAYS = (
    *("1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m"),
    *("10m", "20m", "30m", "1h", "2h"),
)
"""Delays of levels 1, 2, ...: MessageStoreConfig.messageDelayLevel."""

_OF_EVERY_MESSAGE = ("tag", "key", "property", "delay", "sharding_key")
"""Options for which messages as JSON have fields."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "produce",
        help="send messages",
        description="Send each line of a file or of standard input as a message, or --count"
        " generated"
        " messages."
        " To RocketMQ only: for Kafka use a Kafka producer, such as kcat.",
    )
    add_nameserver_option(parser)
    parser.add_argument(
        "-t",
        "--topic",
        type=names.written_topic,
        help="topic to send to; with --input json the default is each message's own",
    )
    parser.add_argument(
        "-g", "--group", type=names.group, default="STEELYARD_PRODUCE", help="producer group"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--file", default="-", metavar="FILE", help="one message per line; -: standard input"
    )
    what.add_argument("--body", metavar="TEXT", help="one message with this body")
    what.add_argument("--count", type=int, metavar="N", help="N generated messages")
    parser.add_argument(
        "--input",
        choices=("text", "json"),
        default="text",
        help="format of a line: the body of a message, or a message as printed by `steelyard"
        " consume --json`",
    )
    parser.add_argument(
        "--size",
        type=int,
        metavar="B",
        help=f"with --count: bytes of a generated body; default: {DEFAULT_SIZE}",
    )
    parser.add_argument("--tag", default="", help="tag of every message")
    parser.add_argument("--key", default="", help="key of every message")
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of every message; may be repeated",
    )
    parser.add_argument(
        "--delay",
        default="",
        metavar="LEVEL|DURATION",
        help=f"deliver later: a level from 1 to {len(DELAYS)} ({', '.join(DELAYS)}), or any"
        " duration, such as 90m or 250ms (RocketMQ 5.x and Steelyard)",
    )
    parser.add_argument(
        "--sharding-key",
        default="",
        metavar="KEY",
        help="send all messages to the queue for this key",
    )
    parser.add_argument("--json", action="store_true", help="print the result of each send as JSON")
    parser.set_defaults(run=run_produce)


def run_produce(options: argparse.Namespace) -> int:
    from steelyard.driver.loops import run

    _check(options)
    log_to_stderr("CRITICAL")
    try:
        sent, taken, last = run(_produce(options))
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
    if not options.json:
        topic = "" if options.topic is None else f" to {options.topic}"
        where = "" if last is None else f", the last to {_place(last)}"
        print(f"sent {counted(sent, 'message')}{topic} in {taken:.2f} s{where}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raise ConfigError for wrong options or combinations."""
    if options.count is not None and options.count < 0:
        raise ConfigError(f"count is {options.count}; it must be 0 or more")
    if options.size is not None and options.count is None:
        raise ConfigError("--size is that of generated messages; give --count as well")
    if options.size is not None and options.size < 0:
        raise ConfigError(f"size is {options.size}; it must be 0 or more")
    properties(options.property)
    read_delay(options.delay)
    if options.input == "text":
        if options.topic is None:
            raise ConfigError("give the topic to send to: -t TOPIC")
        return
    if options.body is not None or options.count is not None:
        raise ConfigError(
            "--input json reads messages from --file or standard input; leave out --body and"
            " --count"
        )
    for name in _OF_EVERY_MESSAGE:
        if getattr(options, name):
            option = name.replace("_", "-")
            raise ConfigError(
                f"with --input json each message has its own values; leave out --{option}"
            )


def properties(settings: list[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` texts. Raises ConfigError."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value):
            raise ConfigError(
                f"--property is {setting!r}; it must be NAME=VALUE, and neither may be empty"
            )
        if name in _OPTIONS_OF_PROPERTIES:
            raise ConfigError(f"property {name} is set with {_OPTIONS_OF_PROPERTIES[name]}")
        if name in found:
            raise ConfigError(f"property {name!r} is given twice")
        found[name] = value
    return found


class Delay(NamedTuple):
    """When a message is delivered: a level of RocketMQ's, or after `ms`; both 0: at once."""

    level: int = 0
    ms: int = 0


def read_delay(text: str) -> Delay:
    """Parse a level, or a duration, which is a level where RocketMQ has one. Raises ConfigError."""
    if not text:
        return Delay()
    if text.isascii() and text.isdigit():
        level = int(text)
        if not 1 <= level <= len(DELAYS):
            raise ConfigError(f"--delay is {text}; levels go from 1 to {len(DELAYS)}")
        return Delay(level)
    number = text.removesuffix("ms")
    if number != text and number.isascii() and number.isdigit():
        ms = int(number)
    else:
        try:
            ms = seconds(text) * 1_000
        except ConfigError:
            ms = 0
    if ms <= 0:
        raise ConfigError(
            f"--delay is {text!r}; it must be a level, such as 3, or a duration, such as 10s, 90m"
            " or 250ms"
        )
    lengths = [seconds(delay) * 1_000 for delay in DELAYS]
    return Delay(lengths.index(ms) + 1) if ms in lengths else Delay(ms=ms)


async def messages(options: argparse.Namespace) -> AsyncIterator[tuple[int, Message]]:
    """Yield the messages to send with their line numbers. Raises MessageError, OSError."""
    import msgspec

    from steelyard.admin.ndjson import parse_message
    from steelyard.types import Message

    delay = read_delay(options.delay)
    shared = Message(
        topic=options.topic or "",
        body=b"",
        tags=options.tag,
        keys=options.key,
        properties=properties(options.property),
        delay_level=delay.level,
        delay_ms=delay.ms,
        sharding_key=options.sharding_key,
    )
    number = 0
    async for body in _bodies(options):
        number += 1
        if options.input == "text":
            yield number, msgspec.structs.replace(shared, body=body)
            continue
        with _named(number):
            message = parse_message(body, options.topic)
        yield number, message


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Add the line number to errors."""
    try:
        yield
    except MessageError as error:
        raise MessageError(f"message {number}: {error}") from None


async def _bodies(options: argparse.Namespace) -> AsyncIterator[bytes]:
    from steelyard.admin.pipes import input_lines

    if options.body is not None:
        yield os.fsencode(options.body)
    elif options.count is not None:
        size = DEFAULT_SIZE if options.size is None else options.size
        for number in range(options.count):
            yield b"%d " % number + b"x" * (size - len(b"%d " % number))
    elif options.file == "-":
        async for line in input_lines():
            yield line
    else:
        with open(options.file, "rb") as source:
            for line in source:
                yield line.removesuffix(b"\n").removesuffix(b"\r")


async def _produce(options: argparse.Namespace) -> tuple[int, float, SendResult | None]:
    """Send everything; return the number of messages, the time and the last result.

    The first error ends it.
    """
    import asyncio

    from steelyard.client.aio.producer import Producer
    from steelyard.config import ProducerConfig

    loop = asyncio.get_running_loop()
    begun = loop.time()
    sent = 0
    last: SendResult | None = None
    source = messages(options)
    turn = asyncio.Lock()
    config = with_credentials(ProducerConfig())
    async with Producer(
        options.group, options.nameservers, config=config, tls=options.tls
    ) as producer:

        async def work() -> None:
            nonlocal sent, last
            while True:
                async with turn:
                    found = await anext(source, None)
                if found is None:
                    return
                number, message = found
                with _named(number):
                    last = await producer.send(message)
                sent += 1
                if options.json:
                    print(_result_json(last), flush=True)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_workers(options)):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return sent, loop.time() - begun, last


def _workers(options: argparse.Namespace) -> int:
    """Return the number of senders: one for lines, to keep their order per queue."""
    return 1 if options.count is None else min(IN_FLIGHT_MAX, max(1, options.count))


def _place(result: SendResult) -> str:
    queue = result.queue
    return f"{queue.broker_name}, queue {queue.queue_id}, offset {result.queue_offset}"


def _result_json(result: SendResult) -> str:
    import msgspec

    return msgspec.json.encode(
        {
            "message_id": result.message_id,
            "broker": result.queue.broker_name,
            "queue_id": result.queue.queue_id,
            "queue_offset": result.queue_offset,
            "status": result.status.value,
        }
    ).decode()
