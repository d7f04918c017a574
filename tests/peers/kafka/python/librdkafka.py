"""One member of a consumer group, of confluent-kafka over librdkafka; see members.py."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from tests.peers.kafka.python import lines


def main() -> None:
    options = lines.options()
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": options["client"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": int(options["poll_ms"]),
        "topic.metadata.refresh.interval.ms": int(options["refresh_ms"]),
        "fetch.wait.max.ms": 200,
    }
    if options["assignor"] == "uniform":  # the servers' own: KIP-848
        settings |= {"group.protocol": "consumer", "group.remote.assignor": "uniform"}
    else:
        settings["partition.assignment.strategy"] = options["assignor"]
        settings["session.timeout.ms"] = int(options["session_ms"])
        settings["heartbeat.interval.ms"] = int(options["heartbeat_ms"])
    if "instance" in options:
        settings["group.instance.id"] = options["instance"]
    consumer = Consumer(settings)

    def tell(event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def told(_: Consumer, places: list[TopicPartition]) -> None:
            lines.partitions(event, ((place.topic, place.partition) for place in places))

        return told

    pattern = options.get("pattern")
    topics = [pattern] if pattern else options["topics"].split(",")
    consumer.subscribe(
        topics, on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("lost")
    )
    lines.obey(
        lambda: told_of(consumer.consume(100, timeout=0.1)),
        lambda: consumer.commit(asynchronous=False),
        consumer.close,
        KafkaException,
    )


def told_of(messages: list[Message]) -> list[Message]:
    """Those of these that are records."""
    records = []
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error():
            lines.emit("error", error=str(message.error()))
        else:
            assert topic is not None
            assert partition is not None
            assert offset is not None
            lines.record(topic, partition, offset, message.value())
            records.append(message)
    return records


if __name__ == "__main__":
    main()
