"""Fixtures of the Kafka peer tests: real clients beside Apache Kafka, the control, and `steelyard up`."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from tests.peers.apache import Missing
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """A test that cannot have its client is skipped, with the reason."""
    try:
        return (yield)
    except Missing as reason:
        pytest.skip(f"no foreign peer: {reason}")


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One Apache Kafka broker; skips, with the reason, when it cannot be had."""
    try:
        with servers.run_apache(tmp_path_factory.mktemp("apache")) as running:
            yield running
    except Missing as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


@pytest.fixture(scope="session")
def steelyard_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`steelyard up` with two brokers: partitions, coordinators and leaders are spread."""
    with servers.run_steelyard(tmp_path_factory.mktemp("steelyard"), brokers=2) as running:
        yield running


@pytest.fixture(params=["apache", "steelyard"])
def cluster(request: pytest.FixtureRequest) -> Running:
    """Each kind of cluster in turn: Apache's is the control, which tells a wrong test from a wrong server."""
    running: Running = request.getfixturevalue(f"{request.param}_kafka")
    return running
