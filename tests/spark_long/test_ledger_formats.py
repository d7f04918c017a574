"""The ledger's tables as Delta and Iceberg tables, read by Spark and by the formats' own libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.ledger.records import got, joined
from tests.spark.conftest import Peer, listening

from steelyard.errors import ConfigError
from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, BrokerStarted, Record
from steelyard.spark import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(900)]

RECORDS: list[Record] = [
    BrokerStarted(at=500, broker="a"),
    joined(1_000, "A", "A"),
    joined(1_000, "X", "X", group="h"),
    got(2_000, "A", 0, 10),
    joined(20_000, "B", "AB"),
    got(21_000, "B", 8, 20),
    got(8_000_000, "A", 20, 30),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from steelyard.spark.session import session

    made = session()
    yield made
    made.stop()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with listening() as made:
        yield made


def kept(path: Path, table_format: str) -> set[tuple[str, str]]:
    """Rebalances and their batches, as the format's own library finds them."""
    if table_format == "delta":
        import deltalake

        found = deltalake.DeltaTable(path / "rebalances").to_pyarrow_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog(
            "steelyard", uri=f"sqlite:///{path}/catalog.db", warehouse=path.as_uri()
        )
        found = catalog.load_table("ledger.rebalances").scan().to_arrow()
    columns = (found.column(name).to_pylist() for name in ("rebalance", "batch"))
    return {*zip(*columns, strict=True)}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_tables_with_transactions(
    table_format: str, spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    """Rows of group g are open at first; those of its rebalances are final when it is heard of 2 hours later."""
    for count in (4, 6, 7):
        peer.put(LEDGER_TOPIC, *(ledger.encode([one]) for one in RECORDS[:count]))
        tables = pipeline.ledger_tables(spark, peer.address, tmp_path, table_format=table_format)
        assert tables.collect() == cost.costs(RECORDS[:count])
    batches = dict(kept(tmp_path, table_format))
    assert batches["h/1000"] == "open"
    assert batches["g/1000"] == batches["g/20000"] != "open"
    assert tables.events.count() == 4
    assert tables.balance.where("day = '1970-01-01' and client = 'A'").count() == 2


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_batch_that_is_written_again_changes_nothing(
    table_format: str, spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    """As if the driver had been killed after the tables were written, and before the batch was done."""
    peer.put(LEDGER_TOPIC, *(ledger.encode([one]) for one in RECORDS))
    pipeline.ledger_tables(spark, peer.address, tmp_path, table_format=table_format)
    before = kept(tmp_path, table_format)
    done = tmp_path / "_checkpoint" / "commits"
    last = max(int(path.name) for path in done.iterdir() if path.name.isdecimal())
    for path in (done / str(last), done / f".{last}.crc"):
        path.unlink(missing_ok=True)
    tables = pipeline.ledger_tables(spark, peer.address, tmp_path, table_format=table_format)
    assert kept(tmp_path, table_format) == before
    assert tables.collect() == cost.costs(RECORDS)


def test_an_unknown_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'orc' is no format of tables"):
        pipeline.tables_in(spark, tmp_path, table_format="orc")
