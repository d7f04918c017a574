"""Addresses as text: `host:port`, with an IPv6 address in brackets."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

PORT_MAX = 65_535

NAMESERVER_PORT, BROKER_PORT, KAFKA_PORT = 9876, 10911, 9092
"""The usual ports."""

_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*\.?")
"""A host name; Docker's have underscores."""

_DIGITS = re.compile(r"[0-9.]+")


def is_host(text: str) -> bool:
    """Return whether it is a host name, an IPv4 address, or an IPv6 address in brackets."""
    try:
        if text.startswith("["):
            IPv6Address(text[1:].removesuffix("]"))
            return text.endswith("]")
        if _DIGITS.fullmatch(text):
            IPv4Address(text)
            return True
    except AddressValueError:
        return False
    return _NAME.fullmatch(text) is not None


def is_wildcard(host: str) -> bool:
    """Return whether it stands for all addresses of a machine."""
    return host in ("", "0.0.0.0", "::", "[::]")


def is_loopback(host: str) -> bool:
    """Return whether only the machine itself reaches it. Names other than `localhost` count as no.

    They would have to be looked up.
    """
    bare = host.strip("[]")
    try:
        return (IPv6Address(bare) if ":" in bare else IPv4Address(bare)).is_loopback
    except AddressValueError:
        return bare.rstrip(".").lower() == "localhost"


def is_port(text: str) -> bool:
    """Return whether it is a port that can be connected to, 1 to 65535."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= PORT_MAX


def is_address(text: str) -> bool:
    """Return whether it is `host:port`."""
    host, _, port = text.rpartition(":")
    return is_host(host) and is_port(port)


def address(host: str, port: int) -> str:
    """Return `host:port`; an IPv6 address gets brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
