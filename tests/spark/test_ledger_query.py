"""The query of the ledger's tables without a JVM: stream equals batch, for the pure fold and for Spark's state."""

from __future__ import annotations

from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.examples import examples
from tests.ledger.stories import DELAY_MS, Story, encoded, expected, stories

from steelyard.ledger.cost import costs
from steelyard.ledger.stream import OutputRow
from steelyard.ledger.tables import TABLES, Costs
from steelyard.spark.ledger.query import DROPS, GROUPS, Drops, LedgerProcessor
from steelyard.spark.ledger.source import BUCKETS, bucket_of, split

pytestmark = pytest.mark.spark


def fed(tester: TwsTester, bucket: int, rows: list[tuple[object, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["broker", "queue", "place", "at", "body"])
    return tester.testInPandas(bucket, frame)


def rows_of(frame: pd.DataFrame) -> list[Any]:
    return [*frame.itertuples()]


@given(stories)
@settings(max_examples=examples(25))
def test_stream_equals_batch_in_sparks_state(story: Story) -> None:
    tester = TwsTester(LedgerProcessor(DELAY_MS), timeMode="None", outputMode="Append")
    final: list[OutputRow] = []
    open_rows: dict[str, list[OutputRow]] = {}
    drops = Drops()
    for batch in story.batches:
        parts: dict[int, list[tuple[object, ...]]] = {}
        for message in batch:
            for bucket, (at, body) in split(message.body).items():
                parts.setdefault(bucket, []).append((*message.place, at, body))
        for bucket, rows in sorted(parts.items()):
            made = rows_of(fed(tester, bucket, rows))
            open_rows |= {row.group: [] for row in made if row.table == GROUPS}
            for row in made:
                if row.table in TABLES:
                    kind = TABLES[row.table].rows
                    decoded = msgspec.msgpack.decode(row.row, type=kind)
                    one = OutputRow(row.group, decoded, row.is_open)
                    (open_rows[row.group] if row.is_open else final).append(one)
                elif row.table == DROPS and bucket == bucket_of("g"):
                    more = msgspec.msgpack.decode(row.row, type=Drops)
                    drops = Drops(drops.late + more.late, drops.repeated + more.repeated)
    found = [*final, *(one for each in open_rows.values() for one in each)]
    assert encoded(one.row for one in found) == expected(story.records)
    assert drops.late == story.late


def test_records_about_brokers_go_to_every_bucket() -> None:
    body = b'[{"kind":"broker_started","at":5,"broker":"a"}, {"kind":"x","at":7,"group":"g"}]'
    parts = split(body)
    assert [*sorted(parts)] == [*range(BUCKETS)]
    mine = bucket_of("g")
    assert parts[mine] == (
        7,
        b'[{"kind":"x","at":7,"group":"g"},{"kind":"broker_started","at":5,"broker":"a"}]',
    )
    others = {part for bucket, part in parts.items() if bucket != mine}
    assert others == {(5, b'[{"kind":"broker_started","at":5,"broker":"a"}]')}


def test_no_group_no_rows() -> None:
    assert costs([]) == Costs([], [])
    assert split(b"[]") == {}
