"""Detection of a wrong port when a command failed: which server listens at an address.

A nameserver answers GET_BROKER_CLUSTER_INFO (106), a RocketMQ broker rejects that request as
unknown, and a Kafka broker answers ApiVersions (18).
"""

from __future__ import annotations

import argparse
import asyncio
import struct
from contextlib import suppress
from enum import Enum

from steelyard.errors import BrokerError, ConfigError, SteelyardError

TIMEOUT_SECONDS = 2.0
"""Time-out of each of the two requests; a listening server is nearby.
"""

_SIZE_AND_NUMBER = struct.Struct(">ii")


class ServerKind(Enum):
    NAMESERVER = "a RocketMQ nameserver"
    BROKER = "a RocketMQ broker"
    KAFKA = "a Kafka broker"


_WANTED = {
    ServerKind.NAMESERVER: "give a nameserver's address with -n (port 9876 unless it was changed)",
    ServerKind.BROKER: "give a broker's address with -b (port 10911 unless it was changed)",
    ServerKind.KAFKA: "give a Kafka broker's address with --kafka (port 9092 unless it was changed)",
}


def mistaken(options: argparse.Namespace) -> str:
    """Describe wrong addresses among a command's options; empty if none is known to be wrong."""
    from steelyard.driver.loops import run

    return "" if getattr(options, "tls", False) else run(_mistaken(options))


async def _mistaken(options: argparse.Namespace) -> str:
    for address, wanted in _given(options):
        found = await listening(address)
        if found not in (None, wanted):
            assert found is not None
            return wrong_port(address, found, wanted, options)
    return ""


def wrong_port(
    address: str, found: ServerKind, wanted: ServerKind, options: argparse.Namespace
) -> str:
    """What to tell who gave the address of one server for another's."""
    advice = _WANTED[wanted]
    if found is ServerKind.KAFKA and hasattr(options, "kafka"):
        advice += f", or read from Kafka with --kafka {address}"
    elif wanted is ServerKind.KAFKA and found is ServerKind.NAMESERVER:
        advice += f", or read from RocketMQ with -n {address}"
    return f"{address} is the port of {found.value}, not of {wanted.value}: {advice}"


def _given(options: argparse.Namespace) -> list[tuple[str, ServerKind]]:
    from steelyard.client.settings import nameserver_addresses

    kafka = getattr(options, "kafka", None)
    if kafka:
        return [(address.strip(), ServerKind.KAFKA) for address in kafka.split(",")]
    if not hasattr(options, "nameservers"):
        return []
    broker = getattr(options, "brokerAddr", None)
    given = [(broker.strip(), ServerKind.BROKER)] if broker else []
    with suppress(ConfigError):
        given += [(a, ServerKind.NAMESERVER) for a in nameserver_addresses(options.nameservers)]
    return given


async def listening(address: str) -> ServerKind | None:
    """The server that answers at `host:port`; None where nobody does, or one of another kind."""
    return await _of_rocketmq(address) or await _of_kafka(address)


async def _of_rocketmq(address: str) -> ServerKind | None:
    from steelyard.client.aio.admin import Admin
    from steelyard.wire.remoting.codes import RequestCode, ResponseCode

    try:
        async with Admin(address, timeout_ms=int(TIMEOUT_SECONDS * 1000)) as admin:
            await admin.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    except BrokerError as error:
        unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return ServerKind.BROKER if unknown else None
    except SteelyardError:
        return None
    return ServerKind.NAMESERVER


async def _of_kafka(address: str) -> ServerKind | None:
    from steelyard.wire.kafka.frame import Request, encode
    from steelyard.wire.kafka.messages.cluster import API_VERSIONS, ApiVersionsRequest

    host, _, port = address.rpartition(":")
    number = 1
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(
                    encode(Request(API_VERSIONS, 0, number, "steelyard", ApiVersionsRequest()))
                )
                _, answered = _SIZE_AND_NUMBER.unpack(
                    await reader.readexactly(_SIZE_AND_NUMBER.size)
                )
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        return None
    return ServerKind.KAFKA if answered == number else None
