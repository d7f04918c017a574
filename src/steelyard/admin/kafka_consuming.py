"""`steelyard consume --kafka`: read Kafka topics as a member of a Kafka group."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steelyard.admin import exits
from steelyard.admin.asking import kafka_brokers
from steelyard.admin.output import Printer
from steelyard.admin.ports import listening, wrong_port
from steelyard.admin.starts import At, End, Offset, Start
from steelyard.client.aio.kafka import KafkaConsumer
from steelyard.client.environment import kafka_login
from steelyard.errors import CallTimeoutError, ConnectError, RouteError, SteelyardError
from steelyard.wire.strangers import ServerKind

if TYPE_CHECKING:
    from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
    from steelyard.types import TopicPartition

POLL_MS = 1_000
POLL_RECORDS = 500
CALL_TIMEOUT_MS = 10_000


async def consume(options: argparse.Namespace, start: Start) -> int:
    """Print records until the printer has enough; return the exit code."""
    servers = kafka_brokers(options.kafka)
    if not options.tls:
        await _check(servers, options)

    printer = Printer(options)

    async def begin(partitions: Sequence[TopicPartition]) -> None:
        try:
            await _begin(consumer, partitions, start)
        except SteelyardError as error:  # to continue would be to read from elsewhere
            printer.fail(error)

    login = kafka_login()
    consumer = KafkaConsumer(
        options.topic,
        bootstrap_servers=servers,
        group_id=options.group,
        on_assigned=begin,
        tls=options.tls,
        sasl_mechanism="" if login is None else login.mechanism,  # type: ignore[arg-type]
        sasl_username="" if login is None else login.user,
        sasl_password="" if login is None else login.password,
        auto_offset_reset="earliest" if start is End.EARLIEST else "latest",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        default_api_timeout_ms=CALL_TIMEOUT_MS,
    )
    async with consumer:
        if not await consumer.partitions_for_topic(options.topic):
            raise RouteError(
                f"topic {options.topic} does not exist on the Kafka brokers at {options.kafka}"
            )
        printing = asyncio.ensure_future(_print(consumer, printer, as_json=options.json))
        printing.add_done_callback(lambda _: printer.end(exits.FAILED))
        try:
            return await printer.wait()
        finally:
            await printing


async def _check(servers: Sequence[str], options: argparse.Namespace) -> None:
    """Raise ConnectError unless one address is a Kafka broker's; the consumer would keep trying."""
    for address in servers:
        found = await listening(address, ServerKind.KAFKA)
        if found is ServerKind.KAFKA:
            return
        if found is not None:
            raise ConnectError(wrong_port(address, found, ServerKind.KAFKA, options))
    raise ConnectError(f"no Kafka broker answers at {', '.join(servers)}; check host and port")


async def _print(consumer: KafkaConsumer, printer: Printer, *, as_json: bool) -> None:
    """Print and commit poll by poll until the end.

    Later records of the last poll stay uncommitted.
    """
    while not printer.ended.done():
        wanted = POLL_RECORDS if printer.left is None else min(POLL_RECORDS, printer.left)
        poll = asyncio.ensure_future(consumer.poll(POLL_MS, wanted))
        either: tuple[asyncio.Future[Any], ...] = (poll, printer.ended)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if printer.ended.done():
            poll.cancel()
            await asyncio.wait([poll])
            return
        records = poll.result()
        if records and printer.print([_line(record, as_json=as_json) for record in records]):
            await consumer.commit()


def _line(record: ConsumerRecord, *, as_json: bool) -> bytes:
    from steelyard.admin.ndjson import record_line

    return record_line(record) if as_json else record.value or b""


async def _begin(
    consumer: KafkaConsumer, partitions: Sequence[TopicPartition], start: Start
) -> None:
    """Find where to begin in all these partitions, before the first record is printed.

    Commits are of all positions then: who continues the group misses nothing in partitions of which
    nothing was printed.
    """
    if isinstance(start, End):  # the consumer seeks by itself
        asked = map(consumer.position, partitions)
        for position in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(position, CallTimeoutError):
                continue  # its broker is down: read the others meanwhile
            if isinstance(position, BaseException):
                raise position
        return
    new = [partition for partition in partitions if await consumer.committed(partition) is None]
    ends = await consumer.end_offsets(new)
    if isinstance(start, At):
        places = await consumer.offsets_for_times(dict.fromkeys(new, start.timestamp))
        for partition, at in places.items():
            await consumer.seek(partition, ends[partition] if at is None else at.offset)
        return
    assert isinstance(start, Offset)
    firsts = await consumer.beginning_offsets(new)
    for partition in new:
        place = min(max(start.offset, firsts[partition]), ends[partition])
        await consumer.seek(partition, place)
