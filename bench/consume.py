"""What a message costs the Steelyard client: CPU time of this process per message pulled, the listener does nothing.

`python consume.py NAMESERVER TOPIC COUNT one|batch` reads COUNT messages with a fresh group and prints a JSON line.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer


def main(nameserver: str, topic: str, count: int, mode: str) -> None:
    seen = 0
    done = threading.Event()
    lock = threading.Lock()

    def listen(_message: MessageView) -> None:
        nonlocal seen
        with lock:
            seen += 1
        if seen >= count:
            done.set()

    def listen_to_batch(messages: Sequence[MessageView]) -> None:
        nonlocal seen
        with lock:
            seen += len(messages)
        if seen >= count:
            done.set()

    group = f"bench-{mode}-{time.time_ns()}"
    first = ConsumeFrom.FIRST_OFFSET
    if mode == "batch":
        config = ConsumerConfig(consume_from=first, consume_batch=32)
        consumer = PushConsumer(group, nameserver, batch_listener=listen_to_batch, config=config)
    else:
        consumer = PushConsumer(
            group, nameserver, listen, config=ConsumerConfig(consume_from=first)
        )
    cpu, begun = time.process_time(), time.perf_counter()
    with consumer.subscribe(topic):
        if not done.wait(60):
            raise SystemExit(f"{seen} of {count} messages after 60 s")
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - begun
    print(
        json.dumps(
            {
                "messages": seen,
                "seconds": seconds,
                "messages_per_s": seen / seconds,
                "cpu_us_per_message": cpu * 1e6 / seen,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
