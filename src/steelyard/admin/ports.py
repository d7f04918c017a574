"""Detection of a wrong port when a command failed: which server listens at an address."""

from __future__ import annotations

import argparse
from contextlib import suppress

from steelyard.errors import ConfigError
from steelyard.wire.strangers import ServerKind, Stranger, recognised

TIMEOUT_MS = 2_000
"""Time-out of each of the two requests; a listening server is nearby."""

_WANTED = {
    ServerKind.NAMESERVER: "give a nameserver's address with -n (port 9876 unless changed)",
    ServerKind.BROKER: "give a broker's address with -b (port 10911 unless changed)",
    ServerKind.KAFKA: "give a Kafka broker's address with --kafka (port 9092 unless changed)",
}


def mistaken(options: argparse.Namespace) -> str:
    """Describe wrong addresses among a command's options; empty if none is known to be wrong."""
    from steelyard.driver.loops import run

    return "" if getattr(options, "tls", False) else run(_mistaken(options))


async def _mistaken(options: argparse.Namespace) -> str:
    for address, wanted in _given(options):
        found = await listening(address, wanted)
        if found is not None and not found.may_be(wanted):
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


async def listening(address: str, wanted: ServerKind) -> ServerKind | None:
    """The server that answers at `host:port`; None where nobody does, or one of another kind.

    It is asked in the protocol of the wanted one first: brokers warn of clients that speak another.
    """
    from steelyard.driver.probing import probe

    order = (Stranger.KAFKA, Stranger.REMOTING)  # each is sent a request of the other protocol
    for wants in order[::-1] if wanted is ServerKind.KAFKA else order:
        with suppress(OSError, ValueError, OverflowError):
            found = recognised(wants, await probe(address, wants, TIMEOUT_MS))
            if found is not None:
                return found
    return None
