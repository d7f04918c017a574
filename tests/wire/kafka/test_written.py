"""Answers that are written in steps are those that are written at once."""

from __future__ import annotations

import pytest

from steelyard.errors import ProtocolError
from steelyard.types import joined
from steelyard.wire.kafka import schema
from steelyard.wire.kafka.messages.cluster import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.messages.data import PRODUCE, ProduceResponse

BROKERS = [MetadataResponseBroker(1, "a", 9092), MetadataResponseBroker(2, "b", 9092)]


def answer(topics: int) -> MetadataResponse:
    parts = [MetadataResponsePartition(0, index, 1, 0, (1,), (1,)) for index in range(3)]
    return MetadataResponse(
        brokers=BROKERS,
        cluster_id="c",
        topics=[
            MetadataResponseTopic(0, f"t{number}", partitions=parts) for number in range(topics)
        ],
    )


@pytest.mark.parametrize("version", range(METADATA.versions[0], METADATA.versions[1] + 1))
@pytest.mark.parametrize("step", [1, 50, 1_000_000])
def test_steps_make_no_difference(version: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_STEP_PIECES", step)
    flexible = METADATA.is_flexible(version)
    message = answer(20)
    steps = schema.written(message, version, flexible=flexible)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            in_steps = end.value
            break
        count += 1
    assert joined(schema.write(in_steps, version, flexible=flexible)) == joined(
        schema.write(message, version, flexible=flexible)
    )
    assert count >= {1: 62}.get(step, 0)
    assert not count or step < 1_000_000


def test_an_answer_without_parts_takes_no_steps() -> None:
    empty = ProduceResponse()
    steps = schema.written(empty, 9, flexible=PRODUCE.is_flexible(9))
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert schema.write(end.value.value, 9, flexible=True) == [
        joined(schema.write(empty, 9, flexible=True))
    ]


def test_what_does_not_fit_is_a_protocol_error() -> None:
    bad = MetadataResponse(brokers=[MetadataResponseBroker(2**40, "a", 1)])
    with pytest.raises(ProtocolError, match="cannot be written"):
        next(schema.written(bad, 9, flexible=True))
