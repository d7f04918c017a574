"""Fixtures of the peer tests: Apache's clients and servers beside `steelyard up`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.peers import apache
from tests.waiting import PATIENCE_S, until

STEELYARD = Path(sys.executable).with_name("steelyard")

_serial = count(1)

LIMIT_S = 900
"""For a test with all that it may have to fetch and build first; its own waits have limits of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


class Running(NamedTuple):
    """A cluster that is up: where its nameserver is, and its brokers by name."""

    kind: str
    nameserver: str
    brokers: dict[str, str]


@pytest.fixture(scope="session")
def maven() -> None:
    """The jars of all versions are there; skips, with the reason, when they cannot be had."""
    try:
        for client in (apache.OLD, apache.NEW):
            apache.prepare(client)
        for server in (apache.OLD_SERVER, apache.NEW_SERVER):
            apache.prepare_servers(server)
    except apache.Missing as reason:
        pytest.skip(f"no foreign peers: {reason}")


SETTINGS = {
    "enablePropertyFilter": "true",  # SQL92
    "transactionTimeOut": 3000,  # ms; a half message is asked after when it is so old,
    "transactionCheckInterval": 1000,  # and looked at so often
    "transactionOpBatchInterval": 100,  # 5.x notes the end of transactions so late
    "accessMessageInMemoryMaxRatio": 0,  # 4.x: as if all messages were on disk; see test_starting.py,
    "maxTransferCountOnMessageInDisk": 32,  # and as many in one pull as of memory
    "timerWheelEnable": "true",  # without it 5.x cannot tell its own figures (28)
    "recallMessageEnable": "true",
    "waitTimeMillsInSendQueue": 10_000,  # a busy machine is no reason to refuse sends
}
"""What the Apache brokers are told beyond their defaults."""


def run_apache(folder: Path, version: str) -> Iterator[Running]:
    cluster = apache.Cluster(folder, version, settings=SETTINGS)
    try:
        cluster.start().wait_ready()
        yield Running(f"apache-{version}", cluster.nameserver, cluster.brokers)
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def apache_old_cluster(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The last servers of RocketMQ 4.x: a nameserver and a broker."""
    yield from run_apache(tmp_path_factory.mktemp("apache"), apache.OLD_SERVER)


@pytest.fixture(scope="session")
def apache_cluster(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Apache RocketMQ 5.3.3: a nameserver and a broker."""
    yield from run_apache(tmp_path_factory.mktemp("apache"), apache.NEW_SERVER)


@contextmanager
def run_steelyard(folder: Path, *options: str) -> Iterator[Running]:
    """`steelyard up` with two brokers."""
    folder.mkdir(exist_ok=True)
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(STEELYARD), "up", "--brokers", "2", "--data", str(folder / "data"), "--json"),
                *("--nameserver-port", "0", "--broker-port", "0", *options),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            env=apache.java_environment(),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"steelyard up ended: {(folder / 'up.log').read_text()[-2000:]}"
        place = json.loads(line)
        yield Running("steelyard", place["nameserver"], place["brokers"])
        assert process.poll() is None, "steelyard up ended during the tests"
    finally:
        process.terminate()
        try:
            assert process.wait(PATIENCE_S) == 0, "steelyard up did not stop cleanly"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def steelyard_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`steelyard up` with two brokers."""
    with run_steelyard(tmp_path_factory.mktemp("steelyard")) as running:
        yield running


@pytest.fixture(params=["apache", "steelyard"])
def cluster(request: pytest.FixtureRequest) -> Running:
    """Each kind of cluster in turn: Apache's is the control, which tells a wrong test from a wrong server."""
    running: Running = request.getfixturevalue(f"{request.param}_cluster")
    return running


@pytest.fixture(params=["apache_old", "apache", "steelyard"])
def any_cluster(request: pytest.FixtureRequest) -> Running:
    """Each kind of cluster, and Apache's of both lines: what our client must work with."""
    running: Running = request.getfixturevalue(f"{request.param}_cluster")
    return running


@pytest.fixture(scope="session")
def peers(
    maven: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, apache.Peer]]:
    """A JVM per client version, by version."""
    folder = tmp_path_factory.mktemp("java")
    with apache.Peer(apache.OLD, folder) as old, apache.Peer(apache.NEW, folder) as new:
        yield {apache.OLD: old, apache.NEW: new}


@pytest.fixture(params=[apache.OLD, apache.NEW])
def peer(request: pytest.FixtureRequest, peers: dict[str, apache.Peer]) -> apache.Peer:
    """The Java client of each version in turn."""
    return peers[request.param]


def create_topic(cluster: Running, peer: apache.Peer, topic: str, *, queues: int = 4) -> None:
    """Make a topic with so many queues on every broker, where sends alone would make it on some."""
    words = ("updateTopic", "-n", cluster.nameserver, "-c", "DefaultCluster", "-t", topic)
    peer.mqadmin(*words, "-r", queues, "-w", queues)
    until(
        lambda: apache.brokers_of(cluster.nameserver, topic) == set(cluster.brokers),
        f"route of {topic} to all brokers",
    )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A word that no other test of this run uses: names of topics, groups and clients begin with it."""
    return f"{re.sub(r'[^a-z]+', '_', request.node.originalname)}{next(_serial)}"
