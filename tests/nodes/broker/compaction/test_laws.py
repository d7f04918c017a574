"""The laws of compaction, whatever was written, for a whole broker and its consumers.

A reader from any offset ends with the table that a log without compaction would give; what is left keeps its offset,
timestamp, headers and value; of a key that has not ended, the last record stays.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.nodes.broker.compaction.conftest import compact, ready_rig, records, state
from tests.nodes.broker.driver import START
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.test_markers import mark
from tests.nodes.broker.kafka.test_produce import send

from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.records import TRANSACTIONAL, Record, write_batch

KEYS = st.sampled_from([b"a", b"b", b"c", b"a long key, of which the map keeps a hash"])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "ü"]), VALUES), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(KEYS, VALUES, HEADERS, st.integers(0, 5)), min_size=1, max_size=6)


class Write(NamedTuple):
    """A batch. `producer`: -1 for none; 0 writes by itself, 1 and 2 in transactions."""

    records: list[tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...], int]]
    compression: int
    producer: int


class End(NamedTuple):
    """The end of a producer's transaction."""

    producer: int
    commit: bool


class Wait(NamedTuple):
    """Time passes, and the log is compacted."""

    ms: int


class Restart(NamedTuple):
    """The broker is killed and started again."""


EVENTS = st.lists(
    st.one_of(
        st.builds(Write, RECORDS, st.sampled_from(list(Compression)), st.integers(-1, 2)),
        st.builds(Write, RECORDS, st.just(0), st.just(-1)),
        st.builds(End, st.integers(1, 2), st.booleans()),
        st.builds(Wait, st.sampled_from([0, 0, 150_000])),
        st.builds(Restart),
    ),
    max_size=40,
)


class Model:
    """What was written, and which of it consumers may see."""

    def __init__(self, rig: KafkaRig) -> None:
        self.rig = rig
        self.visible: dict[int, Record] = {}
        self.open: dict[int, dict[int, Record]] = {}
        self.sequences: dict[int, int] = {}
        self.last: dict[int, tuple[bytes, int]] = {}

    def write(self, event: Write) -> None:
        rows = [
            Record(number, START + time, key, value, headers)
            for number, (key, value, headers, time) in enumerate(event.records)
        ]
        producer, transactional = event.producer, event.producer > 0
        sequence = self.sequences.get(producer, 0)
        data = write_batch(
            rows,
            compression=event.compression,
            producer_id=producer + 100 if producer >= 0 else -1,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            attributes=TRANSACTIONAL if transactional else 0,
        )
        answer = send(self.rig, data)
        assert answer.error_code == 0
        if producer >= 0:
            self.sequences[producer] = sequence + len(rows)
            self.last[producer] = data, answer.base_offset
        stored = {
            answer.base_offset + row.offset: replace(row, offset=answer.base_offset + row.offset)
            for row in rows
        }
        target = self.open.setdefault(producer, {}) if transactional else self.visible
        target.update(stored)

    def end(self, event: End) -> None:
        opened = self.open.pop(event.producer, None)
        if opened is None:
            return
        assert mark(self.rig, event.producer + 100, commit=event.commit) == 0
        if event.commit:
            self.visible.update(opened)

    def check(self) -> None:
        everything = [record for _, record in sorted(self.visible.items())]
        firsts = [min(opened) for opened in self.open.values()]
        stable = min(firsts, default=self.rig.log().max_offset if everything or firsts else 0)
        expected = [record for record in everything if record.offset < stable]
        found = records(self.rig)
        assert state(found) == state(expected)
        by_offset = {record.offset: record for record in expected}
        assert [by_offset[record.offset] for record in found] == found
        assert [each.offset for each in found] == sorted({each.offset for each in found})
        last = {record.key: record for record in expected}
        left = {record.offset for record in found}
        assert {each.offset for each in last.values() if each.value is not None} <= left
        for start in [record.offset + 1 for record in found][:3]:
            assert records(self.rig, start) == [each for each in found if each.offset >= start]
        for producer, (data, offset) in self.last.items():
            if producer not in self.open:
                answer = send(self.rig, data)
                assert (answer.error_code, answer.base_offset) == (0, offset), "written twice"


def run(events: list[Write | End | Wait | Restart]) -> KafkaRig:
    rig = ready_rig()
    model = Model(rig)
    for event in events:
        match event:
            case Write():
                model.write(event)
            case End():
                model.end(event)
            case Wait(ms):
                rig.advance(ms)
                compact(rig)
                if rig.store.log("TopicA", 0) is not None:
                    model.check()
            case Restart():
                rig.restart()
    if rig.store.log("TopicA", 0) is not None:
        compact(rig)
        model.check()
        rig.restart()
        model.check()
    return rig


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_readers_end_with_the_same_table(events: list[Write | End | Wait | Restart]) -> None:
    run(events)


@pytest.mark.proof
@settings(max_examples=600, deadline=None)
@given(EVENTS)
def test_readers_end_with_the_same_table_often(
    events: list[Write | End | Wait | Restart],
) -> None:
    run(events)
