"""Numbered messages that `Peer.java` and Python make alike, and what must arrive of them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from steelyard import Message, MessageView, Producer


class Seen(NamedTuple):
    """What a consumer, of either side, saw of one message."""

    md5: str
    tags: str
    keys: str
    colour: str
    number: str


def message(topic: str, prefix: str, index: int, size: int) -> Message:
    """Message `index` of the series `prefix`, as `Peer.message` makes it."""
    head = f"{prefix}-{index}|".encode()
    body = head + bytes((index + 7 * position) & 0xFF for position in range(len(head), size))
    return Message(
        topic,
        body,
        tags=f"tag{index % 3}",
        keys=f"{prefix}-key-{index}",
        properties={"colour": f"grün-中-{index}", "number": str(index)},
    )


def expected(topic: str, prefix: str, sizes: dict[range, int]) -> list[Seen]:
    """What must be seen, sorted, of the messages of each range, whose bodies have that size."""
    seen = []
    for indices, size in sizes.items():
        for index in indices:
            sent = message(topic, prefix, index, size)
            assert isinstance(sent.keys, str)
            md5 = hashlib.md5(sent.body).hexdigest()
            seen.append(Seen(md5, sent.tags, sent.keys, sent.properties["colour"], str(index)))
    return sorted(seen)


def seen_by_java(event: dict[str, Any]) -> Seen:
    """The line that `Peer.java` printed for a message."""
    properties = event["properties"]
    return Seen(
        event["md5"], event["tags"], event["keys"], properties["colour"], properties["number"]
    )


def seen_by_steelyard(view: MessageView) -> Seen:
    """A message as the listener of a Steelyard consumer got it."""
    md5 = hashlib.md5(view.body).hexdigest()
    return Seen(md5, view.tags, view.keys, view.properties["colour"], view.properties["number"])


def numbers(views: Iterable[MessageView]) -> list[int]:
    """The numbers of messages of a series."""
    return [int(view.properties["number"]) for view in views]


class Sending(threading.Thread):
    """Sends numbered messages, `batch` of them some two hundred times a second, until it is told to stop."""

    def __init__(self, nameserver: str, topic: str, *, batch: int = 1) -> None:
        super().__init__()
        self.sent = 0
        self._nameserver, self._topic, self._batch = nameserver, topic, batch
        self._enough = threading.Event()

    def run(self) -> None:
        with Producer(f"{self._topic}pg", self._nameserver) as producer:
            while not self._enough.wait(0.005):
                numbers = range(self.sent, self.sent + self._batch)
                messages = [message(self._topic, "s", number, 60) for number in numbers]
                if self._batch == 1:
                    producer.send(messages[0])
                else:
                    producer.send_batch(messages)
                self.sent += self._batch

    def stop(self) -> int:
        self._enough.set()
        self.join()
        return self.sent
