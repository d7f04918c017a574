"""Which limit stops the pulling of a queue."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import record

from steelyard.consume.flow import Limits, Reason, blocked, shared
from steelyard.consume.process_queue import ProcessQueue
from steelyard.wire.remoting.message import decode_records


def queue_of(*offsets: int, body: bytes = b"body") -> ProcessQueue:
    queue = ProcessQueue(0)
    records = b"".join(record("T", 0, offset, body=body) for offset in offsets)
    queue.add(decode_records(records), max(offsets, default=-1) + 1)
    return queue


@pytest.mark.parametrize(
    ("offsets", "limits", "reason"),
    [
        ((), Limits(0, 0, 0), None),
        ((0, 1), Limits(2, 8, 1), None),
        ((0, 1, 2), Limits(2, 100, 100), Reason.MESSAGES),
        ((0, 1), Limits(9, 7, 100), Reason.BYTES),
        ((0, 5), Limits(9, 100, 4), Reason.SPAN),
        ((0, 5), Limits(9, 100, None), None),
    ],
)
def test_limits(offsets: tuple[int, ...], limits: Limits, reason: Reason | None) -> None:
    assert blocked(queue_of(*offsets), limits) is reason


OF_A_QUEUE = Limits(1_000, 5_000, 2_000)


@pytest.mark.parametrize(
    ("messages_max", "bytes_max", "queues", "expected"),
    [
        (0, 0, 4, OF_A_QUEUE),
        (100, 0, 4, Limits(25, 5_000, 2_000)),
        (0, 100, 4, Limits(1_000, 25, 2_000)),
        (8_000, 80_000, 2, Limits(4_000, 40_000, 2_000)),
        (3, 3, 4, Limits(1, 1, 2_000)),
        (3, 3, 0, Limits(3, 3, 2_000)),
    ],
)
def test_a_limit_of_the_topic_is_divided_by_its_queues(
    messages_max: int, bytes_max: int, queues: int, expected: Limits
) -> None:
    assert shared(OF_A_QUEUE, messages_max, bytes_max, queues) == expected
