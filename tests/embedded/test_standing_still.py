"""A broker that stood still for longer than the sessions of its clients blames none of them."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from itertools import count

from tests.waiting import until

from steelyard import KafkaConsumer, Producer, PushConsumer, Server
from steelyard.config import KafkaConsumerConfig

SESSION_MS = 6_000
"""The shortest session of classic groups that brokers allow by default, and here everybody's."""

STOPPED_S = 7.5
"""Longer than a session, but not than clients wait for answers."""

SETTINGS = {
    "client_expiry_ms": str(SESSION_MS),
    "client_scan_interval_ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
}

GROUPS = ("classic", "consumer", "remoting")


def test_nobody_dies_of_a_broker_that_stood_still() -> None:
    """Members of all kinds send heartbeats to a stopped broker, which finds them when it goes on.

    Its ledger shows no rebalance, all groups read on, and one line in its log says what happened.
    """
    with ExitStack() as stack:
        server = stack.enter_context(Server(settings=SETTINGS))
        topic = server.create_topic("Still", queues=2)
        read: dict[str, set[bytes]] = {group: set() for group in GROUPS}
        classic = KafkaConsumerConfig(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=500)
        configs = {
            "classic": classic,
            "consumer": KafkaConsumerConfig(group_protocol="consumer"),
        }
        kafka = [
            (
                group,
                stack.enter_context(
                    KafkaConsumer(
                        topic,
                        group_id=group,
                        bootstrap_servers=server.bootstrap_servers,
                        config=config,
                    )
                ),
            )
            for group, config in configs.items()
            for _ in range(2)
        ]
        for number in range(2):
            consumer = PushConsumer(
                "remoting",
                server.nameserver,
                lambda message: read["remoting"].add(message.body),
                client_id=f"still-{number}",
                heartbeat_interval_ms=500,
            )
            consumer.subscribe(topic)
            stack.enter_context(consumer)
        producer = stack.enter_context(Producer("p", server.nameserver))
        bodies = (b"%d" % number for number in count())

        def all_read() -> bool:
            """Whether every group reads what is sent, by members that all have a queue."""
            body = next(bodies)
            producer.send(topic, body)
            for _ in range(20):
                for group, consumer in kafka:
                    read[group].update(record.value or b"" for record in consumer.poll(20))
                if all(body in read[group] for group in GROUPS):
                    return all(len(consumer.assignment()) == 1 for _, consumer in kafka)
            return False

        until(all_read, read)
        before, logged = server.rebalances(), server.log_size()
        server.pause_broker()
        time.sleep(STOPPED_S)
        server.resume_broker()
        until(all_read, read)
        assert [(row.group, row.trigger) for row in server.rebalances()] == [
            (row.group, row.trigger) for row in before
        ]
        told = re.findall(
            r"WARNING steelyard.broker-a: stood still for (\d+\.\d) s", server.log(logged)
        )
        assert max(float(seconds) for seconds in told) > STOPPED_S - 1.5
