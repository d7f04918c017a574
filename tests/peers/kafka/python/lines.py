"""What the member programs share: options in, commands in, one JSON object a line out; members.py says which."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterable

_out = threading.Lock()


def options() -> dict[str, str]:
    """The arguments, KEY=VALUE each."""
    pairs = (argument.partition("=") for argument in sys.argv[1:])
    return {key: value for key, _, value in pairs}


def commands() -> queue.Queue[str]:
    """The lines of standard input, as they come; its end is the command leave."""
    waiting: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line.strip())
        waiting.put("leave")

    threading.Thread(target=read, daemon=True).start()
    return waiting


def emit(event: str, **fields: object) -> None:
    with _out:
        print(json.dumps({"event": event, **fields}), flush=True)


def partitions(event: str, places: Iterable[tuple[str, int]]) -> None:
    emit(event, partitions=[f"{topic}-{number}" for topic, number in places])


def record(topic: str, partition: int, offset: int, value: bytes) -> None:
    emit("record", partition=f"{topic}-{partition}", offset=offset, value=value.decode())
