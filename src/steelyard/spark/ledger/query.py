"""The streaming query that computes the ledger's tables: from messages to rows.

    ledger_source --messages, split--> buckets --transformWithState--> rows --foreachBatch--> tables

Groups are divided among buckets; each has a `ledger.stream.Stream` and the states of its groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from steelyard.ledger.group import GroupState, decode, encode
from steelyard.ledger.stream import LedgerMessage, OutputRow, Stream, decode_stream, encode_stream
from steelyard.ledger.tables import TABLES
from steelyard.spark.ledger.source import LedgerSource
from steelyard.spark.shipping import Shipped
from steelyard.wording import counted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import TimerValues

MADE = "group string, table string, day date, is_open boolean, row binary"
"""Rows of all tables, encoded. A row of `GROUPS` says that all open rows of its group are in this
batch, that of `DROPS` is `Drops`."""
GROUPS, DROPS = "(groups)", "(drops)"


class Drops(msgspec.Struct, array_like=True, frozen=True):
    """How many records came too late, and how many messages came again."""

    late: int = 0
    repeated: int = 0

    def __str__(self) -> str:
        return (
            f"{counted(self.late, 'record')} that came too late,"
            f" {counted(self.repeated, 'message')} that came again"
        )


# -- state -----------------------------------------------------------------------------------------


class LedgerProcessor(StatefulProcessor, metaclass=Shipped):
    """Keeps the stream of a bucket, and the states of its groups."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the states; Spark calls this in each task."""
        self._stream = handle.getValueState("stream", "state binary")
        self._groups = handle.getMapState("groups", "name string", "state binary")

    def handleInputRows(  # noqa: N802
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take messages of the bucket; yield rows of `MADE`."""
        import pandas as pd

        (bucket,) = key
        stored = self._stream.get()
        stream = Stream(self._delay_ms) if stored is None else decode_stream(bytes(stored[0]))
        messages = [
            LedgerMessage((broker, int(queue), int(offset)), int(at), bytes(body))
            for frame in rows
            for broker, queue, offset, at, body in zip(
                frame["broker"],
                frame["queue"],
                frame["place"],
                frame["at"],
                frame["body"],
                strict=True,
            )
        ]
        taken = stream.take(messages, self._load)
        for name, state in taken.states.items():
            if state is not None:
                self._groups.updateValue((name,), (encode(state),))
            elif self._groups.containsKey((name,)):
                self._groups.removeKey((name,))
        self._stream.update((encode_stream(stream),))
        made: list[tuple[str, str, date | None, bool, bytes]] = []
        # Every bucket has the records about brokers, which are of no group.
        made += [(one.group, *_encoded(one)) for one in taken.rows if one.group or bucket == 0]
        groups = [group for group in sorted(taken.groups) if group or bucket == 0]
        made += [(group, GROUPS, None, False, b"") for group in groups]
        drops = msgspec.msgpack.encode(Drops(taken.late, taken.repeated))
        made.append(("", DROPS, None, False, drops))
        names = [column.split()[0] for column in MADE.split(", ")]
        yield pd.DataFrame(made, columns=names)

    def _load(self, group: str) -> GroupState | None:
        found = self._groups.getValue((group,)) if self._groups.containsKey((group,)) else None
        return None if found is None else decode(bytes(found[0]))

    def close(self) -> None:
        """Nothing is to be closed."""


NAMES = {table.rows: name for name, table in TABLES.items()}


def _encoded(one: OutputRow) -> tuple[str, date, bool, bytes]:
    name = NAMES[type(one.row)]
    at = getattr(one.row, TABLES[name].time)
    day = datetime.fromtimestamp(at / 1000, UTC).date()
    return name, day, one.is_open, msgspec.msgpack.encode(one.row)


def made_rows(spark: SparkSession, options: Mapping[str, str], delay_ms: int) -> DataFrame:
    """Return the rows (`MADE`) of a stream of the ledger's messages, as `LedgerSource` reads it."""
    spark.dataSource.register(LedgerSource)
    parts = spark.readStream.format(LedgerSource.name()).options(**options).load()
    return parts.groupBy("bucket").transformWithStateInPandas(
        LedgerProcessor(delay_ms), MADE, "Append", "None"
    )
