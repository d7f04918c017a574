"""What an operator sees of a group."""

from __future__ import annotations

import pytest

from steelyard.groups.overview import (
    GroupProgress,
    QueueProgress,
    TrackKind,
    group_progress,
    track_kind,
)
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import ConsumerConnection, OffsetWrapper, SubscriptionData
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record

QUEUES = [MessageQueue("T", "b", number) for number in range(2)]


def message(tags: str) -> MessageView:
    record = encode_record(
        topic="T",
        queue_id=1,
        flag=0,
        queue_offset=5,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=bytes(8),
        store_timestamp=0,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        properties=f"TAGS\x01{tags}\x02".encode() if tags else b"",
    )
    return decode_records(record, "b")[0]


def test_progress() -> None:
    offsets = {QUEUES[1]: OffsetWrapper(9, 4, 77), QUEUES[0]: OffsetWrapper(3, 3)}
    progress = group_progress("g", offsets, 1.5, {QUEUES[1]: "c"})
    rows = (QueueProgress(QUEUES[0], 3, 3, 0), QueueProgress(QUEUES[1], 9, 4, 77, "c"))
    assert progress == GroupProgress("g", rows, 1.5)
    assert [row.lag for row in rows] == [0, 5]
    assert progress.lag == 5


@pytest.mark.parametrize(
    ("tags", "wanted", "offset", "kind"),
    [
        ("x", ("x", "y"), 6, TrackKind.CONSUMED),
        ("x", ("x", "y"), 5, TrackKind.NOT_CONSUME_YET),
        ("z", ("x", "y"), 6, TrackKind.CONSUMED_BUT_FILTERED),
        ("", ("x", "y"), 6, TrackKind.CONSUMED_BUT_FILTERED),
        ("z", ("x", "y"), 5, TrackKind.NOT_CONSUME_YET),
        ("z", (), 6, TrackKind.CONSUMED),
        ("z", ("*",), 6, TrackKind.CONSUMED),
    ],
)
def test_what_became_of_a_message(
    tags: str, wanted: tuple[str, ...], offset: int, kind: TrackKind
) -> None:
    subscriptions = {"T": SubscriptionData("T", tags_set=wanted)}
    offsets = {QUEUES[0]: OffsetWrapper(9, 9), QUEUES[1]: OffsetWrapper(9, offset)}
    connection = ConsumerConnection((), subscriptions, "CONSUME_PASSIVELY", "CLUSTERING", "")
    assert track_kind(message(tags), connection, offsets) is kind


@pytest.mark.parametrize(
    ("consume_type", "model", "kind"),
    [
        ("CONSUME_ACTIVELY", "CLUSTERING", TrackKind.PULL),
        ("CONSUME_PASSIVELY", "BROADCASTING", TrackKind.CONSUME_BROADCASTING),
        ("CONSUME_PASSIVELY", "CLUSTERING", TrackKind.NOT_CONSUME_YET),
    ],
)
def test_where_brokers_cannot_know(consume_type: str, model: str, kind: TrackKind) -> None:
    connection = ConsumerConnection((), {}, consume_type, model, "")
    assert track_kind(message("x"), connection, {}) is kind
