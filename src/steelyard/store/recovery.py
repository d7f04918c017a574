"""What `Store.open` found and repaired, as data for the operator and for tests."""

from __future__ import annotations

import msgspec


class SegmentRepair(msgspec.Struct, frozen=True):
    """What recovery did to one segment; all zero when nothing was wrong.

    `rows_made`: index rows made anew from the log. `rows_cut`: index rows that pointed at nothing.
    `bytes_cut`: bytes at the end of the log file that were no whole entry.
    """

    rows_made: int = 0
    rows_cut: int = 0
    bytes_cut: int = 0


class LogRecovery(msgspec.Struct, frozen=True):
    """What recovery did to one log. `segments_cut`: segments after a gap, removed; their bytes count as cut."""

    topic: str
    queue_id: int
    entries: int
    rows_made: int = 0
    rows_cut: int = 0
    bytes_cut: int = 0
    segments_cut: int = 0


class TableRecovery(msgspec.Struct, frozen=True):
    """Records of a table that were found, and bytes of a torn tail that were cut."""

    name: str
    records: int
    bytes_cut: int = 0


class Recovery(msgspec.Struct, frozen=True):
    """What `Store.open` found: `logs` with `entries` in all, and what had to be repaired.

    `repaired`: the logs that were not as a clean stop leaves them. Missing index rows are ordinary
    after a kill; `bytes_cut` means that a write was torn, which no reply had acknowledged unless the
    machine lost power. `unknown`: folders of logs that no table lists; they are left alone.
    """

    logs: int = 0
    entries: int = 0
    repaired: tuple[LogRecovery, ...] = ()
    tables: tuple[TableRecovery, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def bytes_cut(self) -> int:
        """Bytes cut from logs and tables together."""
        cut = sum(log.bytes_cut for log in self.repaired)
        return cut + sum(table.bytes_cut for table in self.tables)
