"""The administrator with which servers are asked here, as patient as tests on busy machines are."""

from __future__ import annotations

from steelyard.client.blocking.admin import Admin

TIMEOUT_MS = 30_000
"""Time for each request."""


def administrator(nameserver: str) -> Admin:
    """Return a new administrator, to be used as a context manager."""
    return Admin(nameserver, timeout_ms=TIMEOUT_MS)
