"""The results of `Store.open`: what was found and repaired, as data for operators and tests."""

from __future__ import annotations

import msgspec


class SegmentRepair(msgspec.Struct, frozen=True):
    """The repair of one segment; all zero if nothing was wrong.

    `rows_made`: index rows rebuilt from the log. `rows_cut`: index rows that pointed at nothing.
    `bytes_cut`: bytes at the end of the log file that were not a whole entry. `damaged`: places in
    the log that are not as they were written; they are kept, and refused to readers.
    """

    rows_made: int = 0
    rows_cut: int = 0
    bytes_cut: int = 0
    damaged: int = 0


class LogRecovery(msgspec.Struct, frozen=True):
    """The repair of one log.

    `segments_cut`: segments removed after a gap; their bytes count as cut.
    """

    topic: str
    queue_id: int
    entries: int
    rows_made: int = 0
    rows_cut: int = 0
    bytes_cut: int = 0
    segments_cut: int = 0
    damaged: int = 0


class TableDamage(msgspec.Struct, frozen=True):
    """Bytes in a table's file that are neither a record nor a torn write.

    `key`: the key they seem to belong to, if it can be determined. `problem`: another fault of the
    file as a whole, or of a log's folder.
    """

    path: str
    position: int
    size: int
    key: str = ""
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.path} {self.problem}"
        last = self.position + self.size - 1
        whose = f" (key {self.key!r})" if self.key else ""
        return (
            f"{self.path} is damaged: bytes {self.position} to {last}{whose} are not a record"
            " whose checksum matches, and not an incomplete write"
        )


class TableRecovery(msgspec.Struct, frozen=True):
    """The number of records found in a table, the bytes of a torn write that were cut, and where.

    With `damage` nothing was cut, and the store was not opened.
    """

    name: str
    records: int
    bytes_cut: int = 0
    position: int = 0
    damage: tuple[TableDamage, ...] = ()


class Recovery(msgspec.Struct, frozen=True):
    """The result of `Store.open`: `logs` with `entries` in all, and what had to be repaired.

    `repaired`: the logs that were not as a clean stop leaves them. Missing index rows are normal
    after a kill; `bytes_cut` means that a write was torn, which no reply had acknowledged unless
    the machine lost power. `unknown`: folders of logs that no table lists; they are left alone.
    `upgraded_from`: the format that the folder had, 0 if it was current.
    """

    logs: int = 0
    entries: int = 0
    repaired: tuple[LogRecovery, ...] = ()
    tables: tuple[TableRecovery, ...] = ()
    unknown: tuple[str, ...] = ()
    upgraded_from: int = 0

    def __str__(self) -> str:
        found = [f"queues: {self.logs}", f"entries: {self.entries}"]
        if self.repaired:
            found.append(f"queues repaired after an unclean stop: {len(self.repaired)}")
        if self.upgraded_from:
            found.append(f"upgraded from format {self.upgraded_from}")
        return f"data directory opened ({', '.join(found)})"

    @property
    def bytes_cut(self) -> int:
        """Bytes cut from logs and tables together."""
        cut = sum(log.bytes_cut for log in self.repaired)
        return cut + sum(table.bytes_cut for table in self.tables)

    def warnings(self) -> list[str]:
        """Report everything that was cut, with file, position and size, for operators."""
        found = [
            f"tables/{table.name}.table: a write at the end was not finished;"
            f" {table.bytes_cut} bytes from byte {table.position} on were cut"
            for table in self.tables
            if table.bytes_cut
        ]
        found += [
            f"the log of {log.topic}, queue {log.queue_id}: {log.bytes_cut} bytes that do not make"
            " a whole entry were cut from the end"
            for log in self.repaired
            if log.bytes_cut
        ]
        found += [
            f"{folder} holds a log that no table lists; `steelyard check --repair` can add it"
            for folder in self.unknown
        ]
        return found
