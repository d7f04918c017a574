"""The ledger's tables in Spark's words, and as people read them."""

from __future__ import annotations

import msgspec
import pytest

from steelyard.ledger.columns import Column, ColumnKind
from steelyard.ledger.tables import Handoff, Rebalance
from steelyard.spark.tables import SQL_TYPES, ddl, shown


def test_every_kind_has_a_type_in_spark() -> None:
    assert SQL_TYPES.keys() == set(ColumnKind)


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        (
            Handoff,
            "group string, topic string, broker string, queue int, kind string, from_client string, to_client string,"
            " last_delivery_ms bigint, first_delivery_ms bigint, pause_ms bigint, first_fetch_ms bigint,"
            " listener_pause_ms bigint, redelivered bigint, reprocessed_min bigint,"
            " reprocessed_max bigint, rebalance string",
        ),
        (
            Rebalance,
            "group string, rebalance string, started_at timestamp, reason string, trigger string, members_before array<string>,"
            " members_after array<string>, detect_ms bigint, rebalance_ms bigint, first_fetch_ms bigint,"
            " queues_moved int, queues_stalled int, pause_p50_ms bigint, pause_p99_ms bigint, pause_max_ms bigint,"
            " redelivered bigint, reprocessed_min bigint, reprocessed_max bigint, spike double, drain_ms bigint",
        ),
    ],
)
def test_the_schemas_that_users_rely_on(table: type[msgspec.Struct], schema: str) -> None:
    assert ddl(table) == schema


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ColumnKind.TEXT, "a", "a"),
        (ColumnKind.CLIENTS, ("a", "b"), "a, b"),
        (ColumnKind.NUMBER, 1234, "1234"),
        (ColumnKind.COUNT, 1234, "1,234"),
        (ColumnKind.FACTOR, 2.25, "2.2×"),
        (ColumnKind.FACTOR, None, "–"),
        (ColumnKind.MOMENT, 1_700_000_000_000, "22:13:20"),
        (ColumnKind.DURATION_MS, 9_999, "9,999 ms"),
        (ColumnKind.DURATION_MS, 12_345, "12.3 s"),
    ],
)
def test_values_for_people(kind: ColumnKind, value: object, text: str) -> None:
    assert shown(Column(kind, "What it means."), value) == text
