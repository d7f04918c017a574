"""A program that is one member of the consumer group; it notes every flight it was given.

    python -m demo.member NAMESERVER GROUP NAME NOTES_FILE

The notes are lines `flight_row broker queue offset`, written with one system call before the
listener reports success: what is committed is in the notes even if the member is killed. SIGTERM
stops it cleanly.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

from demo.flights import TOPIC
from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer

CLIENT_HOST = "127.0.0.1@"
"""What the client ids of the members begin with, before their names."""


def main(nameserver: str, group: str, name: str, notes_file: str) -> None:
    notes = os.open(notes_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(flights: Sequence[MessageView]) -> None:
        lines = [
            f"{f.properties['flight_row']} {queue.broker_name} {queue.queue_id} {f.queue_offset}\n"
            for f in flights
            for queue in (f.queue,)
        ]
        os.write(notes, "".join(lines).encode())

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    config = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch=32, route_poll_ms=5_000
    )
    consumer = PushConsumer(
        group, nameserver, batch_listener=note, client_id=f"{CLIENT_HOST}{name}", config=config
    )
    with consumer.subscribe(TOPIC):
        print('{"ready": true}', flush=True)
        stopped.wait()


if __name__ == "__main__":
    main(*sys.argv[1:5])
