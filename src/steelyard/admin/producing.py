"""`steelyard produce`: send lines, or generated messages, to a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from steelyard.admin.asking import add_nameserver_option, log_to_stderr, with_credentials
from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.types import SendResult

IN_FLIGHT_MAX = 256
"""Sends under way at once."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "produce",
        help="send messages",
        description="Sends one message per line of a file or of standard input, or --count generated ones.",
    )
    add_nameserver_option(parser)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-g", "--group", default="STEELYARD_PRODUCE", help="producer group")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--file", default="-", metavar="FILE", help="one message per line; -: standard input"
    )
    what.add_argument("--body", metavar="TEXT", help="one message with this body")
    what.add_argument("--count", type=int, metavar="N", help="N generated messages")
    parser.add_argument(
        "--size", type=int, default=128, metavar="B", help="bytes of a generated body"
    )
    parser.add_argument("--tag", default="", help="tag of every message")
    parser.add_argument("--key", default="", help="key of every message")
    parser.add_argument(
        "--sharding-key", default="", metavar="KEY", help="send all to the one queue of this key"
    )
    parser.add_argument("--json", action="store_true", help="print the result of each send as JSON")
    parser.set_defaults(run=run_produce)


def run_produce(options: argparse.Namespace) -> int:
    from steelyard.driver.loops import run

    if options.count is not None and options.count < 0:
        raise ConfigError(f"count is {options.count}; it must be 0 or more")
    if options.size < 0:
        raise ConfigError(f"size is {options.size}; it must be 0 or more")
    log_to_stderr("CRITICAL")
    try:
        sent, seconds = run(_produce(options))
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
    if not options.json:
        print(f"sent {sent} messages to {options.topic} in {seconds:.2f} s")
    return 0


def bodies(options: argparse.Namespace) -> Iterator[bytes]:
    """What to send, one body after the other."""
    if options.body is not None:
        yield options.body.encode()
    elif options.count is not None:
        for number in range(options.count):
            yield b"%d " % number + b"x" * (options.size - len(b"%d " % number))
    elif options.file == "-":
        yield from _lines(sys.stdin.buffer)
    else:
        with open(options.file, "rb") as source:
            yield from _lines(source)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    for line in source:
        yield line.rstrip(b"\r\n")


async def _produce(options: argparse.Namespace) -> tuple[int, float]:
    """Send everything; how many messages, and how long it took. The first error ends it."""
    import asyncio

    from steelyard.client.aio.producer import Producer
    from steelyard.config import ProducerConfig

    loop = asyncio.get_running_loop()
    begun = loop.time()
    sent = 0
    source = bodies(options)
    config = with_credentials(ProducerConfig())
    async with Producer(
        options.group, options.nameservers, config=config, tls=options.tls
    ) as producer:

        async def work() -> None:
            # A line that is slow to come holds up the loop; nothing else is waiting for it then.
            nonlocal sent
            for body in source:
                result = await producer.send(
                    options.topic,
                    body,
                    tags=options.tag,
                    keys=options.key,
                    sharding_key=options.sharding_key,
                )
                sent += 1
                if options.json:
                    print(_result_json(result), flush=True)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_workers(options)):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return sent, loop.time() - begun


def _workers(options: argparse.Namespace) -> int:
    """Lines keep their order per queue only when they are sent one by one; generated messages need none."""
    return 1 if options.count is None else min(IN_FLIGHT_MAX, max(1, options.count))


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
