"""A member of a consumer group with Steelyard's push consumer; `Member.java` is the same with Apache's.

It joins as bench@NAME. Commands: see `commands`. `--no-clean-handover` on the command line turns that off.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.commands import Joining, serve  # noqa: E402
from bench.costs import queue_number  # noqa: E402

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer  # noqa: E402

CLEAN_HANDOVER = "--no-clean-handover" not in sys.argv


def start(joining: Joining) -> PushConsumer:
    def listen(message: MessageView) -> None:
        at = time.monotonic_ns()
        queue = message.queue
        number = queue_number(queue.broker_name, queue.queue_id)
        joining.listener.listen(at, number, message.queue_offset)

    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, clean_handover=CLEAN_HANDOVER)
    client_id = f"bench@{joining.name}"
    consumer = PushConsumer(
        joining.group, joining.servers, listen, client_id=client_id, config=config
    )
    return consumer.subscribe(joining.topic).start()


if __name__ == "__main__":
    serve(start)
