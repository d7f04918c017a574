"""Staged rows: read by nobody before they are committed, then once, whatever is repeated."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.api.conftest import Servers
from tests.api.kafka import KafkaServers
from tests.waiting import until

from steelyard import Admin
from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background
from steelyard.errors import ConfigError, RemotingError, SteelyardError
from steelyard.routes.brokers import BrokerEntry
from steelyard.sasl.login import login_of
from steelyard.servers.server import serve_broker, serve_nameserver
from steelyard.spark.options.access import PLAIN, Access
from steelyard.spark.options.reading import read_options
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.reading.planning import plan
from steelyard.spark.reading.pull import batches
from steelyard.spark.writing.committing import Staged, abort_all, commit_all
from steelyard.spark.writing.rows import read_rows
from steelyard.spark.writing.staging import Stager

WRITER = "spark-batch:test"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("staging"))
    yield servers
    servers.stop()


def options_of(address: str, topic: str) -> SinkOptions:
    return SinkOptions(
        nameservers=(address,), topic=topic, exactly_once=True, retry_timeout_ms=60_000
    )


def topic_of(cluster: KafkaServers, name: str) -> SinkOptions:
    with Admin(cluster.nameservers) as admin:
        admin.create_topic(name, queues=2)
    return options_of(cluster.nameservers, name)


def stage(
    options: SinkOptions, task: str, bodies: Sequence[str], writer: str = WRITER
) -> list[Staged]:
    """Write rows in one task, with themselves as keys."""
    batch = pa.RecordBatch.from_arrays([pa.array(bodies), pa.array(bodies)], names=["body", "keys"])
    with closing(Stager(options, writer, task)) as stager:
        if bodies:
            stager.send(read_rows(batch, {"body": 0, "keys": 1}))
        staged = stager.finish()
    return [] if staged is None else [staged]


def read(options: SinkOptions) -> list[str]:
    given = read_options({"nameservers": options.nameservers[0], "topic": options.topic})
    rows: list[dict[str, Any]] = [
        row for part in plan(given) for found in batches(part, given) for row in found.to_pylist()
    ]
    assert all(str(row["body"], "utf-8") == row["keys"] for row in rows)
    return sorted(row["keys"] for row in rows)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:05}" for number in range(count)]


def test_rows_are_readable_when_all_tasks_are_committed(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "Committed")
    one, two = stage(options, "0.0", names("a", 5_000)), stage(options, "1.0", names("b", 7))
    assert not stage(options, "2.0", [])
    assert read(options) == []
    commit_all(options, WRITER, 1, one + two)
    until(lambda: read(options) == names("a", 5_000) + names("b", 7))


def test_a_batch_is_committed_once_whatever_its_repetition_has(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "Once")
    writer = "spark-batch:once"
    first = stage(options, "0.0", names("a", 10), writer)
    commit_all(options, writer, 4, first)
    commit_all(options, writer, 4, first)  # the answer was lost
    for number in (4, 3):
        commit_all(options, writer, number, stage(options, "0.0", names("b", 12), writer))
    commit_all(options, writer, 5, stage(options, "0.0", names("c", 10), writer))
    until(lambda: read(options) == names("a", 10) + names("c", 10))


def test_what_dead_attempts_left_is_aborted_with_the_next_batch(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "Leftovers")
    writer = "spark-batch:leftovers"
    stage(options, "0.0", names("a", 10), writer)
    stage(options, "7.0", names("b", 10), writer)
    again = stage(options, "0.0", names("c", 10), writer)  # fences the first
    commit_all(options, writer, 1, again)
    until(lambda: read(options) == names("c", 10))  # and what follows it can be read


def test_a_batch_with_a_lost_transaction_commits_nothing(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "Lost")
    writer = "spark-batch:lost"
    one, two = (stage(options, task, names(task, 10), writer) for task in ("0.0", "1.0"))
    stage(options, "1.0", names("x", 10), writer)  # another run has the same task
    with pytest.raises(SteelyardError, match=r"batch 1 of .* was not committed.*PRODUCER_FENCED"):
        commit_all(options, writer, 1, one + two)
    repeated = [*stage(options, "0.0", names("a", 3), writer), *stage(options, "1.0", names("b", 3), writer)]  # fmt: skip
    commit_all(options, writer, 1, repeated)
    until(lambda: read(options) == names("a", 3) + names("b", 3))


@pytest.mark.parametrize("body", ["x", "x" * 300])
def test_a_topic_of_small_record_batches(cluster: KafkaServers, body: str) -> None:
    topic = f"Small{len(body)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    settings = {"max.message.bytes": "10000"}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(60)
    options = options_of(cluster.nameservers, topic)
    bodies = names(body, 3_000)
    writer = f"spark-batch:{topic}"
    commit_all(options, writer, 1, stage(options, "0.0", bodies, writer))
    until(lambda: read(options) == bodies)


def test_a_batch_of_too_many_tasks_is_told_what_to_do() -> None:
    entry = BrokerEntry("broker-a", 0, "127.0.0.1:1", "127.0.0.1:1")
    every = [Staged(f"{WRITER}:{task}.0", task, 0, entry) for task in range(10_001)]
    words = r"10001 tasks wrote rows, and with 'exactlyOnce' 10000 can be .* use coalesce"
    with pytest.raises(SteelyardError, match=words):
        commit_all(options_of("127.0.0.1:1", "T"), WRITER, 1, every)


def test_what_is_given_up_is_not_waited_for(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "GivenUp")
    abort_all(options, stage(options, "0.0", names("a", 10), "spark-batch:given-up"))
    commit_all(options, WRITER, 2, stage(options, "0.0", names("b", 10)))
    until(lambda: read(options) == names("b", 10))


def test_brokers_that_restart_between_write_and_commit(cluster: KafkaServers) -> None:
    options = topic_of(cluster, "Restarted")
    writer = "spark-batch:restarted"
    with closing(Stager(options, writer, "0.0")) as stager:
        for part in ("a", "b"):
            bodies = names(part, 2_000)
            batch = pa.RecordBatch.from_arrays([pa.array(bodies)] * 2, names=["body", "keys"])
            stager.send(read_rows(batch, {"body": 0, "keys": 1}))
            for broker in ("broker-0", "broker-1"):
                cluster.start_broker(broker, *cluster.stop_broker(broker))
        staged = stager.finish()
    assert staged is not None
    commit_all(options, writer, 1, [staged])
    for broker in ("broker-0", "broker-1"):
        cluster.start_broker(broker, *cluster.stop_broker(broker))
    until(lambda: read(options) == names("a", 2_000) + names("b", 2_000))


def test_brokers_without_a_kafka_listener(tmp_path_factory: pytest.TempPathFactory) -> None:
    servers = Servers(tmp_path_factory.mktemp("plain"))
    try:
        options = dataclasses.replace(options_of(servers.nameservers, "T"), retry_timeout_ms=0)
        with pytest.raises(RemotingError, match="needs brokers of Steelyard with a Kafka listener"):
            stage(options, "0.0", ["a"])
    finally:
        servers.stop()


def test_a_nameserver_that_is_started_anew_does_not_know_the_listeners_at_once(
    cluster: KafkaServers,
) -> None:
    options = topic_of(cluster, "Renamed")
    cluster.restart_nameserver()
    writer = "spark-batch:renamed"
    commit_all(options, writer, 1, stage(options, "0.0", names("a", 10), writer))
    until(lambda: read(options) == names("a", 10))


def test_a_time_out_that_brokers_do_not_allow(cluster: KafkaServers) -> None:
    options = SinkOptions(
        nameservers=(cluster.nameservers,),
        topic="T",
        exactly_once=True,
        transaction_timeout_ms=86_400_000,
    )
    with pytest.raises(ConfigError, match="'transactionTimeoutMs' is 86400000"):
        stage(options, "0.0", ["a"])


def test_a_listener_that_asks_for_a_login(tmp_path: Path) -> None:
    """Rows are staged and committed with a login whose sessions are shorter than the job; else one error."""
    users = tmp_path / "users.toml"
    users.write_text('[anna]\npassword = "annas-secret"\n')
    loop = Background()
    nameserver = loop.wait(serve_nameserver(port=0))
    kafka = KafkaConfig(
        sasl_enabled_mechanisms=("SCRAM-SHA-512", "PLAIN"), connections_max_reauth_ms=300
    )
    config = BrokerConfig(nameservers=(nameserver.address,), kafka=kafka, users_file=str(users))
    broker = loop.wait(serve_broker(str(tmp_path / "data"), port=0, kafka_port=0, config=config))
    try:
        loop.wait(broker.known())
        with Admin(nameserver.address) as admin:
            admin.create_topic("Guarded", queues=2)
        for mechanism in ("SCRAM-SHA-512", "PLAIN"):
            options = dataclasses.replace(
                options_of(nameserver.address, "Guarded"),
                access=Access(login=login_of(mechanism, "anna", "annas-secret")),
            )
            writer = f"spark-batch:{mechanism}"
            batch = pa.RecordBatch.from_arrays([pa.array(["a"])] * 2, names=["body", "keys"])
            with closing(Stager(options, writer, "0.0")) as stager:
                for _ in range(3):
                    stager.send(read_rows(batch, {"body": 0, "keys": 1}))
                    time.sleep(0.4)  # the session ends meanwhile
                staged = stager.finish()
            assert staged is not None
            commit_all(options, writer, 1, [staged])
        until(lambda: read(options) == ["a"] * 6)
        for access in (PLAIN, Access(login=login_of("PLAIN", "anna", "wr0ng"))):
            refused = dataclasses.replace(options, access=access, retry_timeout_ms=0)
            with pytest.raises(SteelyardError) as caught:
                stage(refused, "0.0", ["b"])
            assert "wr0ng" not in str(caught.value)
    finally:
        for server in (broker, nameserver):
            loop.wait(server.stop())
        loop.stop()
