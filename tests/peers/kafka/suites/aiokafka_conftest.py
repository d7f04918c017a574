"""The conftest for aiokafka's tests, which start Kafka with Docker: here it is a server that runs already.

`SUITE_LISTENERS` has its addresses in JSON, by security protocol. With `SUITE_PROTOCOL=SASL_SSL` each client that is
told nothing else encrypts and logs in, as kafka-python's tests do too; `SUITE_CERTIFICATES` is the folder with `ca-cert`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.helpers import create_ssl_context

LISTENERS: dict[str, str] = json.loads(os.environ["SUITE_LISTENERS"])
PROTOCOL = os.environ["SUITE_PROTOCOL"]


def pytest_configure() -> None:
    """Change what clients do that are told nothing, if this is the secured run."""
    if PROTOCOL == "PLAINTEXT":
        return
    ca = Path(os.environ["SUITE_CERTIFICATES"]) / "ca-cert"
    secured = {
        "security_protocol": PROTOCOL,
        "ssl_context": create_ssl_context(cafile=str(ca)),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    made = AIOKafkaClient.__init__

    def make(self: AIOKafkaClient, **options: Any) -> None:
        told = options.get("security_protocol", "PLAINTEXT") != "PLAINTEXT"
        made(self, **(options if told else {**options, **secured}))

    AIOKafkaClient.__init__ = make


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop of a class of tests."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    """For classes that need no server."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """For classes that do."""
    host, _, port = LISTENERS[PROTOCOL].rpartition(":")
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = host, int(port)
    request.cls.hosts = [LISTENERS[PROTOCOL]]
    request.cls.kafka_version = "4.3.1"
