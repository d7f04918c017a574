"""The conftest for the tests of kombu, which expect their broker at localhost:9092."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> str:
    """A server of Steelyard, unless there is another one already."""
    return os.environ.get("DEFAULT_BROKERS") or str(request.getfixturevalue("kafka_bootstrap"))


@pytest.fixture(autouse=True)
def _its_place(
    broker: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lead the connections of all tests there."""
    host, _, port = broker.rpartition(":")
    for name in ("get_connection", "get_failover_connection"):
        made = getattr(request.module, name)
        monkeypatch.setattr(request.module, name, lambda made=made, **_: made(host, port))
