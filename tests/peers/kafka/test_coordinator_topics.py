"""`__consumer_offsets` and `__transaction_state`, read with Kafka's own formatters, on Kafka and on ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.peers.kafka.servers import Running
from tests.peers.kafka.test_tools import TOOLS, TOPICS, tool
from tests.waiting import until

pytestmark = pytest.mark.peer

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def formatted(cluster: Running, topic: str, formatter: str) -> list[dict[str, Any]]:
    """What the console consumer prints of a topic, from its beginning to its end."""
    text = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning"),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
        *("--timeout-ms", 8000, "--command-property", "exclude.internal.topics=false"),
    )
    return list(objects(text))


def objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that follow each other without a separator, as the formatters print them."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def latest(records: list[dict[str, Any]], **key: object) -> dict[str, Any] | None:
    """The last value of the records whose key has these fields."""
    values = [record["value"] for record in records if key.items() <= record["key"]["data"].items()]
    assert values, f"no record of {key}"
    value: dict[str, Any] | None = values[-1]
    return value


def consumer(cluster: Running, group: str, **more: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def test_offsets_and_groups(cluster: Running, name: str) -> None:
    tool(
        TOPICS,
        "--bootstrap-server",
        cluster.bootstrap,
        "--create",
        "--topic",
        name,
        "--partitions",
        2,
    )
    classic, modern = f"{name}-classic", f"{name}-modern"
    members = [
        consumer(cluster, classic, client_id="one"),
        consumer(cluster, modern, group_protocol="consumer", client_id="two"),
    ]
    for member in members:
        member.subscribe([name])

    def assigned() -> bool:
        for member in members:
            member.poll(0.2)
        return all(len(member.assignment()) == 2 for member in members)

    until(assigned, "both groups have their partitions")
    for member in members:
        member.commit(offsets=[TopicPartition(name, 1, 7, metadata="seven")], asynchronous=False)

    offsets = formatted(cluster, OFFSETS, "OffsetsMessageFormatter")
    for group in (classic, modern):
        committed = latest(offsets, group=group, topic=name, partition=1)
        assert committed is not None
        assert committed["version"] in (3, 4)
        assert committed["data"]["offset"] == 7
        assert committed["data"]["metadata"].rstrip("\0") == "seven"  # librdkafka adds a NUL
    stored = latest(formatted(cluster, OFFSETS, "GroupMetadataMessageFormatter"), group=classic)
    assert stored is not None
    assert stored["version"] in (3, 4)
    data = stored["data"]
    assert (data["protocolType"], data["generation"], data["protocol"]) == ("consumer", 1, "range")
    assert [member["clientId"] for member in data["members"]] == ["one"]

    for member in members:
        member.close()
    tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        cluster.bootstrap,
        "--delete",
        "--group",
        classic,
    )
    assert latest(formatted(cluster, OFFSETS, "OffsetsMessageFormatter"), group=classic) is None
    groups = formatted(cluster, OFFSETS, "GroupMetadataMessageFormatter")
    assert latest(groups, group=classic) is None


def test_transactions(cluster: Running, name: str) -> None:
    tool(TOPICS, "--bootstrap-server", cluster.bootstrap, "--create", "--topic", name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"one")
    producer.commit_transaction(30)

    def complete() -> bool:
        records = formatted(cluster, TRANSACTIONS, "TransactionLogMessageFormatter")
        value = latest(records, transactionalId=name)
        return value is not None and value["data"]["transactionStatus"] == 4

    until(complete, "the transaction is complete in its log")
