"""One member of a consumer group, of aiokafka; see members.py."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from tests.peers.kafka.python import lines

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Told(lines.Told, ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """As aiokafka wants it."""


async def main() -> None:
    """The one program that does not `obey`: who stalls its application freezes it."""
    options = lines.options()
    assignors = [ASSIGNORS[options["assignor"]]]
    consumer = AIOKafkaConsumer(**lines.settings(options), partition_assignment_strategy=assignors)
    consumer.subscribe(**lines.subscription(options), listener=Told())
    await consumer.start()
    commands = lines.commands()
    while commands.empty():
        try:
            batches = await consumer.getmany(timeout_ms=100)
            for records in batches.values():
                for record in records:
                    lines.record(record.topic, record.partition, record.offset, record.value)
            if batches:
                await consumer.commit()
                lines.emit("committed")
        except KafkaError as error:
            lines.emit("error", error=str(error))
    await consumer.stop()
    lines.emit("left")


if __name__ == "__main__":
    asyncio.run(main())
