"""The conftest for the tests of sentry-arroyo, which find their broker in an environment variable."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def broker(request: pytest.FixtureRequest) -> None:
    """A server of Steelyard, unless there is another one already."""
    if "DEFAULT_BROKERS" not in os.environ:
        os.environ["DEFAULT_BROKERS"] = request.getfixturevalue("kafka_bootstrap")
