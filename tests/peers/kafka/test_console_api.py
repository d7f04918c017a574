"""Many requests to consoles of Apache's clusters and ours, made from the API's description (schemathesis)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.kafka.servers import Running
from tests.web.console.conftest import console
from tests.web.console.descriptions import keeps_to_the_description

from steelyard.config import HttpConfig
from steelyard.web.console.operations import OPERATIONS

pytestmark = pytest.mark.peer

EXAMPLES = 50
"""Requests of each operation."""


def test_answers_are_those_of_the_description(cluster: Running, name: str) -> None:
    """By Kafka's protocol, and of Steelyard by its nameserver, too; changes are allowed."""
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(client)
    (made,) = admin.create_topics([NewTopic(name, 3, 1)]).values()
    made.result(60)
    producer = Producer(client)
    for number in range(30):
        producer.produce(name, b"%d" % number, key=b"k", partition=number % 3)
    assert producer.flush(60) == 0
    consumer = Consumer({**client, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    consumer.close()
    known = {
        "dialect": ["kafka", "rocketmq"],
        "group": [name, "nobody"],
        "topic": [name, "nothing"],
        "queue": [f"{name}/0"],
        "from": ["earliest", "latest", "0", "1700000000000", "next:0=3"],
    }
    config = HttpConfig(allow_changes=True, timeout_ms=20_000)
    by_name = HttpConfig(nameservers=(cluster.nameserver,), allow_changes=True, timeout_ms=20_000)
    ways = [(config, cluster.bootstrap)] + ([(by_name, "")] if cluster.nameserver else [])
    for settings, kafka in ways:
        with console(settings, kafka) as address:
            for one in OPERATIONS:
                if one.answer is not None:
                    keeps_to_the_description(address, one, known, EXAMPLES)
