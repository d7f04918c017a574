"""The ledger as a stream: the same rows as of all records at once, whatever the batches; and what it keeps."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from tests.examples import examples
from tests.ledger.records import got, joined, waits
from tests.ledger.stories import DELAY_MS, Story, encoded, expected, stories, told

from steelyard.ledger import group
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Record, encode
from steelyard.ledger.group import FORGET_MS, KEPT_MS, GroupState, copy_of
from steelyard.ledger.stream import (
    LedgerMessage,
    OutputRow,
    Stream,
    decode_stream,
    encode_stream,
)
from steelyard.ledger.tables import Rebalance


class Tables:
    """A stream that is stored and loaded at each batch, with the rows that it makes."""

    def __init__(self) -> None:
        self.stored = encode_stream(Stream(DELAY_MS))
        self.states: dict[str, GroupState] = {}
        self.final: list[OutputRow] = []
        self.open: dict[str, list[OutputRow]] = {}
        self.late = self.repeated = 0

    def take(self, batch: list[LedgerMessage]) -> None:
        stream = decode_stream(self.stored)
        loaded = {name: copy_of(state) for name, state in self.states.items()}
        taken = stream.take(batch, loaded.get)
        for name, state in taken.states.items():
            if state is None:
                del self.states[name]
            else:
                self.states[name] = copy_of(state)
        self.final += [one for one in taken.rows if not one.is_open]
        self.open |= {name: [] for name in taken.groups}
        for one in taken.rows:
            if one.is_open:
                self.open[one.group].append(one)
        self.late += taken.late
        self.repeated += taken.repeated
        self.stored = encode_stream(stream)

    def rows(self) -> list[OutputRow]:
        return [*self.final, *(one for rows in self.open.values() for one in rows)]


@given(stories)
@settings(max_examples=examples(200))
def test_stream_equals_batch(story: Story) -> None:
    tables = Tables()
    for batch in story.batches:
        tables.take(batch)
    assert encoded(one.row for one in tables.rows()) == expected(story.records)
    assert (tables.late, tables.repeated) == (story.late, story.repeated)


@given(stories)
@settings(max_examples=examples(50))
def test_final_rows_stay(story: Story) -> None:
    """What is final after some batches is in the tables of all records that count."""
    tables = Tables()
    for batch in story.batches:
        tables.take(batch)
    missing = [*encoded(one.row for one in tables.final)]
    for row in expected(story.records):
        if row in missing:
            missing.remove(row)
    assert missing == []


def message(offset: int, *records: Record, broker: str = "a") -> LedgerMessage:
    at = max(one.at for one in records)
    return LedgerMessage((broker, 0, offset), at, encode(records))


def test_a_broker_whose_last_record_is_read_when_it_is_back_did_not_die() -> None:
    tables = Tables()
    tables.take(
        [message(0, BrokerStarted(at=0, broker="a"), joined(0, "A", "A"), got(5, "A", 0, 1))]
    )
    tables.take([message(0, joined(90_000, "A", "A", "b"), broker="b")])
    last = message(1, BrokerStopped(at=10_000, broker="a"))
    tables.take([last, message(2, BrokerStarted(at=95_000, broker="a"))])
    found = [one.row for one in tables.rows() if isinstance(one.row, Rebalance)]
    assert [row.trigger for row in found] == ["joined", "broker_stopped", "broker_started"]
    tables.take([last, message(3, BrokerStarted(at=200_000, broker="a"))])
    found = [one.row for one in tables.rows() if isinstance(one.row, Rebalance)]
    assert [row.trigger for row in found][-1] == "broker_started"
    assert tables.late == 1


def test_rows_of_a_silent_group_become_final_and_it_is_forgotten() -> None:
    tables = Tables()
    tables.take([message(0, joined(0, "A", "A"), waits(0, 1))])
    assert [one.is_open for one in tables.rows()] == [True, True, True]
    other = joined(KEPT_MS + DELAY_MS + 60_000, "X", "X", group="h")
    tables.take([message(1, other)])
    assert {one.group for one in tables.final} == {"g"}
    assert tables.open["g"] == []
    tables.take([message(2, joined(FORGET_MS + DELAY_MS + 60_000, "X", "X", group="h"))])
    assert [*tables.states] == ["h"]


def test_a_state_stays_small() -> None:
    """Two and a half hours of four queues: what is kept is what of the last three quarters of an hour is needed."""
    tables = Tables()
    sizes: list[int] = []
    random = Random(1)
    offset = 0
    for minute in range(0, 150, 5):
        records: list[Record] = [joined(0, "A", "AB"), joined(1, "B", "AB")] if not minute else []
        for second in range(minute * 60, minute * 60 + 300, 10):
            at = second * 1_000
            records += (
                got(at, random.choice("AB"), offset, offset + 10, queue=queue) for queue in range(4)
            )
            records.append(waits(at + 500, random.randrange(9)))
            offset += 10
        tables.take([message(minute, *records)])
        sizes.append(
            len(tables.stored) + sum(len(group.encode(one)) for one in tables.states.values())
        )
    assert max(sizes[20:]) < 1.2 * max(sizes[:12])


def test_a_long_story_is_told_the_same_in_any_batches() -> None:
    """Ten hours with many rebalances, in two ways."""
    random = Random(7)
    records: list[Record] = [BrokerStarted(at=0, broker=one) for one in "ab"]
    for second in range(0, 36_000, 100):
        at = 1_000 * second
        who = "ABC"[second // 3_000 % 3]
        if second % 3_000 == 0:
            records.append(joined(at, who, "ABC"[: 1 + second // 3_000 % 3]))
        records.append(got(at + 100, who, second, second + 25, broker=random.choice("ab")))
        records.append(waits(at + 200, random.randrange(30), broker=random.choice("ab")))
    for seed in range(2):
        story = told(records, Random(seed))
        tables = Tables()
        for batch in story.batches:
            tables.take(batch)
        assert encoded(one.row for one in tables.rows()) == expected(story.records)
        assert tables.final
