"""Addresses as text: what is one, and what is not."""

from __future__ import annotations

import pytest

from steelyard.addresses import address, is_address, is_host, is_loopback, is_port, is_wildcard


@pytest.mark.parametrize(
    "host",
    ["localhost", "queue-1.example.com.", "my_service", "a", "10.0.0.1", "[::1]", "[fd00::1:2]"],
)
def test_hosts(host: str) -> None:
    assert is_host(host)
    assert is_address(f"{host}:1")


@pytest.mark.parametrize(
    "host",
    [
        *("", "a b", "-a", "a-", "a..b", ".a", "a/b", "http://a", "a=b", "a,b", "häuser", "a\n"),
        *("10.0.0", "10.0.0.256", "::1", "[::1", "::1]", "[]", "[10.0.0.1]", "[a]", "a" * 254),
    ],
)
def test_no_hosts(host: str) -> None:
    assert not is_host(host)
    assert not is_address(f"{host}:1")


def test_ports() -> None:
    assert all(map(is_port, ("1", "65535", "00080")))
    assert not any(map(is_port, ("", "0", "65536", "-1", "+1", " 1", "1 ", "x", "٣", "1" * 5_000)))


def test_who_reaches_a_host() -> None:
    assert all(map(is_wildcard, ("", "0.0.0.0", "::", "[::]")))
    assert not any(map(is_wildcard, ("127.0.0.1", "a", "::1")))
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "localhost", "::1", "[::1]")))
    assert not any(map(is_loopback, ("10.0.0.1", "example.com", "0.0.0.0", "[fd00::1]")))


def test_ipv6_addresses_get_brackets() -> None:
    assert address("::1", 5) == address("[::1]", 5) == "[::1]:5"
    assert address("a", 5) == "a:5"
