"""A program that is one member of a Kafka consumer group: confluent-kafka, as it is for everybody.

    python -m demo.kafka_member SERVERS GROUP NAME NOTES_FILE

The notes are lines `flight_row partition offset stored_ms at_ns`: a flight that it was given, when
the message was sent and when it came, both since the epoch. SIGTERM stops it cleanly.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException

from demo.flights import TOPIC

POLL_SECONDS = 0.05


def main(servers: str, group: str, name: str, notes_file: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([TOPIC])
    print('{"ready": true}', flush=True)
    with open(notes_file, "a") as notes:
        while not stopped.is_set():
            message = consumer.poll(0) or consumer.poll(POLL_SECONDS)
            if message is None:
                notes.flush()
                continue
            at_ns = time.time_ns()
            if message.error():
                raise KafkaException(message.error())
            row = dict(message.headers())["flight_row"].decode()
            _, stored_ms = message.timestamp()
            place = f"{message.partition()} {message.offset()}"
            notes.write(f"{row} {place} {stored_ms} {at_ns}\n")
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
