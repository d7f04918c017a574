"""Names that hostile peers chose cannot split a line of a table nor reach the terminal as control characters."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.admin import clusters, groups, members, printing, topics
from steelyard.types import MessageQueue
from steelyard.wire.remoting import bodies

NAME = "n\x1b[31m\nforged\u2028\u202e\x85"
SHOWN = "n\\x1b[31m\\nforged\\u2028\\u202e\\x85"
QUEUE = MessageQueue(NAME, NAME, 1)
SUBSCRIPTION = bodies.SubscriptionData(NAME, NAME)


def running_info() -> bodies.ConsumerRunningInfo:
    held = {QUEUE: bodies.ProcessQueueInfo(1)}
    rates = {NAME: bodies.ConsumeStatusInfo()}
    return bodies.ConsumerRunningInfo({NAME: NAME}, (SUBSCRIPTION,), held, rates)


TABLES: dict[str, Any] = {
    "consumerConnection": lambda: groups.connection_table(
        bodies.ConsumerConnection((bodies.Connection(NAME, NAME, NAME, 1),), {NAME: SUBSCRIPTION})
    ),
    "consumerStatus": lambda: members.running_info_text(running_info()),
    "topicRoute": lambda: topics.route_table(
        bodies.TopicRouteData(
            (bodies.QueueData(NAME, 1, 1, 6),), (bodies.BrokerData(NAME, NAME, {0: NAME}),)
        )
    ),
    "topicStatus": lambda: topics.status_table({QUEUE: bodies.TopicOffset(0, 1, 0)}),
    "brokerStatus": lambda: clusters.status_lines(None, {NAME: NAME}),
    "getBrokerConfig": lambda: clusters.config_lines("heading", {NAME: NAME}),
    "clusterList": lambda: clusters.cluster_row(*[NAME] * 10),
    "fields": lambda: printing.java_fields({"name": NAME}),
    "front": lambda: printing.front(NAME, 100),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_name_splits_no_line(name: str) -> None:
    text = TABLES[name]()
    assert SHOWN in text
    assert not set(text) & set("\x1b\u2028\u202e\x85")
    assert not any(line.startswith("forged") for line in text.splitlines())


def test_everything_in_a_structure_is_shown() -> None:
    value = {NAME: [(QUEUE, SUBSCRIPTION, 1, None)]}
    shown = printing.shown(value)
    assert shown == {
        SHOWN: [(MessageQueue(SHOWN, SHOWN, 1), bodies.SubscriptionData(SHOWN, SHOWN), 1, None)]
    }
    assert value == {NAME: [(QUEUE, SUBSCRIPTION, 1, None)]}
