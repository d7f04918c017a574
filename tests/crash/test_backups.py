"""A broker is backed up while it is written to; another one serves the copy, with all that was acknowledged before."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.crash.conftest import SECONDS_MAX, Broker, Notes, Publisher, Queue, Reader
from tests.waiting import until

from steelyard.admin.main import main

pytestmark = pytest.mark.timeout(400)  # some seconds on an idle machine

ROUNDS = 2
KINDS = ("single", "batch", "creation")


def until_noted(notes: Notes, count: int) -> None:
    until(lambda: notes.count > count, "acknowledgements")


def acknowledged(notes: Notes) -> dict[Queue, dict[int, bytes]]:
    return {queue: dict(offsets) for queue, offsets in list(notes.acknowledged.items())}


def test_backups_of_a_busy_broker(tmp_path: Path, nameserver: str) -> None:
    broker, notes = Broker(tmp_path / "data", nameserver, "async"), Notes()
    broker.start()
    notes.arm(broker, 1 << 40)
    publishers = [
        Publisher(broker, notes, kind, kind, 2, Random(number)) for number, kind in enumerate(KINDS)
    ]
    for publisher in publishers:
        publisher.start()
    before: list[dict[Queue, dict[int, bytes]]] = []
    try:
        for number in range(ROUNDS):
            until_noted(notes, notes.count + 100)
            before.append(acknowledged(notes))
            assert main(["backup", str(tmp_path / "data"), str(tmp_path / f"copy-{number}")]) == 0
    finally:
        broker.kill()
        for publisher in publishers:
            publisher.join(SECONDS_MAX)
        broker.wait()
    assert [publisher.failure for publisher in publishers] == [None] * len(KINDS)
    for number, queues in enumerate(before):
        compare(Broker(tmp_path / f"copy-{number}", nameserver, "async"), notes, queues)


def compare(copy: Broker, notes: Notes, queues: dict[Queue, dict[int, bytes]]) -> None:
    """Everything in `queues` is in the copy, and nothing that was never sent."""
    then = Notes()
    then.sent, then.acknowledged = notes.sent, queues
    copy.start()
    try:
        reader = Reader(copy, then)
        for queue in sorted(queues):
            reader.compare(queue, 0)
        reader.close()
    finally:
        copy.kill()
        copy.wait()
