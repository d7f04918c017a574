"""Words that several parts of the console use in their sentences."""

from __future__ import annotations

UNKNOWN = "unknown"
"""Trigger of a rebalance whose reason the servers do not tell."""


def in_seconds(milliseconds: int) -> str:
    """Return a duration in words."""
    return f"{max(0, milliseconds) / 1000:.1f} s"


def named(name: str, host: str) -> str:
    """Return a member's name with its host, if it is known."""
    host = host.removeprefix("/")
    return f"{name} ({host})" if host else name
