"""One member of a consumer group, of kafka-python; see members.py."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from tests.peers.kafka.python import lines

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Told(lines.Told, ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """As kafka-python wants it."""


def main() -> None:
    options = lines.options()
    assignors = [ASSIGNORS[options["assignor"]]]
    consumer = KafkaConsumer(**lines.settings(options), partition_assignment_strategy=assignors)
    consumer.subscribe(**lines.subscription(options), listener=Told())

    def poll() -> Sized:
        # Longer than a rebalance takes: 3.0.12 forgets one that ends after its poll, when metadata come meanwhile.
        batches: dict[object, list[Any]] = consumer.poll(timeout_ms=4000)
        for records in batches.values():
            for record in records:
                lines.record(record.topic, record.partition, record.offset, record.value)
        return batches

    lines.obey(poll, consumer.commit, consumer.close, KafkaError)


if __name__ == "__main__":
    main()
