"""A member of a consumer group with Steelyard's push consumer; `Member.java` is the same with Apache's.

Commands on standard input, one answer each:

    clock                                          the monotonic clock, ns
    start NAMESERVER GROUP TOPIC NAME FILE WORK_MS   joins as bench@NAME  -> started
    stop                                           leaves cleanly       -> stopped

`--no-clean-handover` on the command line turns that off. The listener appends a record (`costs.RECORD`) to FILE for each message, then sleeps WORK_MS.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.costs import RECORD, queue_number  # noqa: E402

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer  # noqa: E402

CLEAN_HANDOVER = "--no-clean-handover" not in sys.argv


def start(
    nameserver: str, group: str, topic: str, name: str, file: str, work_ms: str
) -> PushConsumer:
    records = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    work_s = int(work_ms) / 1e3

    def listen(message: MessageView) -> None:
        now = time.monotonic_ns()
        queue = message.queue
        number = queue_number(queue.broker_name, queue.queue_id)
        os.write(records, RECORD.pack(now, number, message.queue_offset))
        time.sleep(work_s)

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, clean_handover=CLEAN_HANDOVER)
    consumer = PushConsumer(group, nameserver, listen, client_id=f"bench@{name}", config=config)
    return consumer.subscribe(topic).start()


def main() -> None:
    consumer: PushConsumer | None = None
    for line in sys.stdin:
        match line.split():
            case ["clock"]:
                print(time.monotonic_ns(), flush=True)
            case ["start", nameserver, group, topic, name, file, work_ms]:
                consumer = start(nameserver, group, topic, name, file, work_ms)
                print("started", flush=True)
            case ["stop"] if consumer is not None:
                consumer.stop()
                consumer = None
                print("stopped", flush=True)
            case words:
                raise SystemExit(f"no such command: {words}")
    if consumer is not None:
        consumer.stop()


if __name__ == "__main__":
    main()
