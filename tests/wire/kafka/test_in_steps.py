"""Requests that are read in steps, and answers that are written in steps, are what they are in one go."""

from __future__ import annotations

import random

import pytest
from tests.wire.kafka.test_messages import struct_of

from steelyard.errors import ProtocolError
from steelyard.types import Sendable, joined
from steelyard.wire.kafka import frame, primitives, schema
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from steelyard.wire.kafka.schema import Api, ApiMessage, Unread


def read_in_steps(
    kind: type[ApiMessage], data: bytes, version: int, flexible: bool
) -> tuple[ApiMessage, int]:
    steps = schema.read_in_steps(Unread(kind, data, version, flexible, 0))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_message_in_steps(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_STEP_EFFORT", 1)
    monkeypatch.setattr(schema, "_STEP_PIECES", 1)
    rng = random.Random(api.name)
    for version in range(api.versions[0], api.versions[1] + 1):
        flexible = api.is_flexible(version)
        for kind in (api.request, api.response):
            message = struct_of(kind, rng)
            assert isinstance(message, ApiMessage)
            data = joined(schema.write(message, version, flexible=flexible))
            back, _ = read_in_steps(kind, data, version, flexible)
            assert joined(schema.write(back, version, flexible=flexible)) == data
            written, _ = _written(message, version, flexible)
            assert joined(schema.write(written, version, flexible=flexible)) == data
            if data:
                with pytest.raises(ProtocolError):
                    read_in_steps(kind, data[: len(data) * 2 // 3], version, flexible)


def _written(message: ApiMessage, version: int, flexible: bool) -> tuple[ApiMessage, int]:
    steps = schema.written(message, version, flexible=flexible)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_a_step_reads_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_STEP_EFFORT", 10)
    parts = [OffsetCommitRequestPartition(number, 1) for number in range(1_000)]
    message = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=parts)])
    data = joined(schema.write(message, 8, flexible=True))
    back, steps = read_in_steps(OffsetCommitRequest, data, 8, True)
    assert back == message
    assert steps >= 100


def test_the_items_of_a_message_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 100 MiB of names would take gigabytes of memory, and minutes."""
    monkeypatch.setattr(schema, "ITEMS_MAX", 100)
    for count, is_allowed in ((10, True), (11, False)):
        indexes = range(9)
        topics = [OffsetFetchRequestTopic(f"t{n}", partition_indexes=indexes) for n in range(count)]
        message = OffsetFetchRequest("g", topics)
        data = joined(schema.write(message, 7, flexible=True))
        if is_allowed:
            read_in_steps(OffsetFetchRequest, data, 7, True)
        else:
            with pytest.raises(ProtocolError, match="OffsetFetchRequest version 7: more than 100"):
                read_in_steps(OffsetFetchRequest, data, 7, True)


def test_only_large_requests_are_left_unread() -> None:
    for size, kind in ((100, OffsetCommitRequest), (frame.AT_ONCE_BYTES, Unread)):
        part = OffsetCommitRequestPartition(1, 1, committed_metadata="m" * size)
        topics = [OffsetCommitRequestTopic("t", partitions=[part])]
        data = frame.encode(
            frame.Request(OFFSET_COMMIT, 7, 1, "c", OffsetCommitRequest("g", topics=topics))
        )
        (request,) = frame.server_decoder().feed(data)
        assert type(request.message) is kind
        (request,) = frame.RequestDecoder().feed(data)
        assert type(request.message) is OffsetCommitRequest


def test_tagged_fields_are_bounded() -> None:
    tags = [(number, b"") for number in range(primitives.TAGS_MAX + 1)]
    out: list[Sendable] = []
    primitives.write_tags(out, tags)
    with pytest.raises(ProtocolError, match="101 tagged fields; 100 are allowed"):
        primitives.read_tags(joined(out), 0)
