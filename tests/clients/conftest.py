"""Real, unmodified Kafka clients for Python against `steelyard up`: what `./dev test` proves on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for a pytest that is not started with `python -m`

from tests.clients.aio import AioKafka  # noqa: E402
from tests.clients.confluent import Confluent  # noqa: E402
from tests.clients.kafka_python import KafkaPython  # noqa: E402
from tests.clients.libraries import Library  # noqa: E402
from tests.peers.kafka import servers  # noqa: E402
from tests.peers.kafka.servers import Running  # noqa: E402

_serial = count(1)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`steelyard up` with two brokers: partitions, coordinators and leaders are spread."""
    with servers.run_steelyard(tmp_path_factory.mktemp("kafka"), brokers=2) as running:
        yield running


@pytest.fixture(params=[Confluent, KafkaPython, AioKafka], ids=lambda kind: kind.name)
def library(request: pytest.FixtureRequest, kafka: Running) -> Iterator[Library]:
    """Each client library in turn."""
    library: Library = request.param(kafka.bootstrap)
    yield library
    library.close()


@pytest.fixture
def name() -> str:
    """A word that no other test of this run uses, for topics, groups and transactional ids."""
    return f"clients{next(_serial)}"
