"""Addresses of other servers than the one that is meant: the error says what is there, and nothing is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType
from tests.api.kafka import KafkaServers

from steelyard.errors import ConfigError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.spark import pipeline
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.source import RocketMQReader
from steelyard.spark.writing.sink import batch_writer

NOT_KAFKA = "a Kafka broker answers at this address, not a RocketMQ nameserver or broker: give a"
NOT_A_BROKER = "is the port of a RocketMQ broker, not of a nameserver: give a nameserver's address"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path_factory.mktemp("servers"), brokers=1)
    yield made
    made.stop()


@pytest.fixture(params=["kafka", "broker"])
def wrong(request: pytest.FixtureRequest, servers: KafkaServers) -> tuple[str, str]:
    """An address where a nameserver's should be, and what the error must say."""
    if request.param == "kafka":
        return servers.bootstrap, f"{servers.bootstrap}: {NOT_KAFKA}"
    (broker,) = servers._brokers.values()
    return broker.address, f"{broker.address} {NOT_A_BROKER}"


def told(wrong: tuple[str, str], attempt: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        attempt()
    assert str(caught.value).startswith(wrong[1])


def test_reads(wrong: tuple[str, str]) -> None:
    told(wrong, RocketMQReader(read_options({"nameservers": wrong[0], "topic": "T"})).partitions)
    for subscription in ({"subscribe": "T"}, {"subscribePattern": "T.*"}):
        options = read_options({"nameservers": wrong[0], **subscription}, "stream")
        told(wrong, RocketMQStreamReader(options).initialOffset)
        told(wrong, RocketMQStreamReader(options).prepareForTriggerAvailableNow)


@pytest.mark.parametrize("more", [{}, {"exactlyonce": "true", "sinkid": "s"}])
def test_writes(wrong: tuple[str, str], more: dict[str, str]) -> None:
    options = {"nameservers": wrong[0], "topic": "T", **more}
    schema = StructType().add("body", "string")
    told(wrong, lambda: batch_writer(options, schema, overwrite=False))


def test_a_nameserver_among_others_is_enough(servers: KafkaServers, wrong: tuple[str, str]) -> None:
    options = {"nameservers": f"{wrong[0]};{servers.nameservers}", "topic": LEDGER_TOPIC}
    assert RocketMQReader(read_options(options)).partitions()


@pytest.mark.parametrize("job", ["ledger", "sink", "move"])
def test_the_command_line(job: str, wrong: tuple[str, str], tmp_path: Path, capsys: Any) -> None:
    """In one line, and before Spark is started."""
    arguments = {
        "ledger": ["-n", wrong[0], "--out", tmp_path / "out"],
        "sink": ["-n", wrong[0], "-t", "T", "--out", tmp_path / "out"],
        "move": ["rocketmq", "--from", wrong[0], "--to", wrong[0], "-t", "T", "--state", tmp_path],
    }
    assert pipeline.main([job, *map(str, arguments[job])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"steelyard pipeline: {wrong[1]}")


def test_no_kafka_where_kafka_is_meant(servers: KafkaServers, tmp_path: Path, capsys: Any) -> None:
    addresses = ["--from", servers.nameservers, "--to", servers.bootstrap]
    assert pipeline.main(["move", "kafka", *addresses, "-t", "T", "--state", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"steelyard pipeline: {servers.nameservers}: a RocketMQ nameserver answers at this address,"
        " not a Kafka broker: give a Kafka broker's address"
    )


@pytest.mark.parametrize("job", ["incident", "archive-offsets"])
def test_what_is_no_kafka_is_not_waited_for(
    job: str, servers: KafkaServers, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a nameserver or a broker is enough: no consumer is started that would wait."""
    monkeypatch.setattr("steelyard.spark.incidents.sources.CONNECT_TIMEOUT_S", 100_000)
    (broker,) = servers._brokers.values()
    more = ["--out", str(tmp_path)] if job == "archive-offsets" else []
    for address, kind in (
        (servers.nameservers, "a RocketMQ nameserver"),
        (broker.address, "a RocketMQ broker"),
    ):
        assert pipeline.main([job, "--kafka", address, *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f"steelyard pipeline: {address}: {kind} answers at this address, not a Kafka broker: give"
        )
