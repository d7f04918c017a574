"""What the member programs share: options in, commands in, one JSON object a line out; members.py says which.

It needs the standard library only: each program imports one client library, which others need not have.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sized

_out = threading.Lock()


def options() -> dict[str, str]:
    """The arguments, KEY=VALUE each."""
    pairs = (argument.partition("=") for argument in sys.argv[1:])
    return {key: value for key, _, value in pairs}


def settings(options: dict[str, str]) -> dict[str, object]:
    """The settings of a consumer that kafka-python and aiokafka call alike."""
    return {
        "bootstrap_servers": options["bootstrap"],
        "group_id": options["group"],
        "group_instance_id": options.get("instance"),
        "client_id": options["client"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": int(options["session_ms"]),
        "heartbeat_interval_ms": int(options["heartbeat_ms"]),
        "max_poll_interval_ms": int(options["poll_ms"]),
        "metadata_max_age_ms": int(options["refresh_ms"]),
        "fetch_max_wait_ms": 200,
    }


def subscription(options: dict[str, str]) -> dict[str, object]:
    """The arguments of their `subscribe`."""
    if "pattern" in options:
        return {"pattern": options["pattern"]}
    return {"topics": options["topics"].split(",")}


class Told:
    """The methods of their ConsumerRebalanceListener."""

    def on_partitions_assigned(self, assigned: Iterable[tuple[str, int]]) -> None:
        partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[tuple[str, int]]) -> None:
        partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[tuple[str, int]]) -> None:
        partitions("lost", lost)


def commands() -> queue.Queue[str]:
    """The lines of standard input, as they come; its end is the command leave."""
    waiting: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line.strip())
        waiting.put("leave")

    threading.Thread(target=read, daemon=True).start()
    return waiting


def obey(
    poll: Callable[[], Sized],
    commit: Callable[[], object],
    close: Callable[[], object],
    *errors: type[Exception],
) -> None:
    """Poll, which tells the records, and commit them, until it is told to leave.

    `errors`: whatever the library raises. They are told and forgotten: a commit that a rebalance has overtaken
    fails, and the next owner reads the records again.
    """
    waiting = commands()
    command = ""
    while command != "leave":
        if command == "stall":
            waiting.get()
        try:
            if len(poll()):
                commit()
                emit("committed")
        except errors as error:
            emit("error", error=str(error))
        command = "" if waiting.empty() else waiting.get()
    close()
    emit("left")


def emit(event: str, **fields: object) -> None:
    with _out:
        print(json.dumps({"event": event, "at": time.time(), **fields}), flush=True)


def partitions(event: str, places: Iterable[tuple[str, int]]) -> None:
    emit(event, partitions=[f"{topic}-{number}" for topic, number in places])


def record(topic: str, partition: int, offset: int, value: bytes | None) -> None:
    emit("record", partition=f"{topic}-{partition}", offset=offset, value=(value or b"").decode())
