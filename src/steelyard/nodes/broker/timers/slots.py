"""The rows of all waiting messages on the disk, by the hour in which they are due.

A slot is a log of the topic `rmq_sys_wheel_timer_slots`: its queue id is the number of the hour
since the epoch, and the body of a record has some thousand rows, in no order. A slot is deleted
when the last of its messages was delivered.

The slots are an index: a row may be there twice, or that of a message that was lost with the power.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import CorruptError
from steelyard.nodes.broker.timers import rows as rows_of
from steelyard.nodes.broker.timers.rows import offset_in
from steelyard.nodes.broker.topics import TIMER_SLOTS_TOPIC
from steelyard.nodes.broker.writer import Draft, Writer
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.store.store import Store
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.properties import Properties

ROWS_MAX = 4_096
"""Maximum rows of a record."""

_READ_RECORDS = 32
_READ_BYTES = 2 * ROWS_MAX * rows_of.ROW_BYTES
"""What one step of reading reads: a millisecond or two."""


class Slots:
    """The slots that exist; see the module docstring."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._firsts: dict[int, int] = {}
        """By slot: the lowest offset of a message with a row in it."""
        for log in store.logs(TIMER_SLOTS_TOPIC):
            self._keep(log)
            self._firsts[log.queue_id] = self._first(log)

    @property
    def numbers(self) -> Sequence[int]:
        """The slots that exist, in no order."""
        return tuple(self._firsts)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of a message with a row in any slot; None without slots."""
        return min(self._firsts.values(), default=None)

    def write(self, slot: int, rows: Sequence[int], now: int, effects: list[Effect]) -> None:
        """Add rows, at least one, to a slot. Raises StorageError; some may have been added then."""
        for start in range(0, len(rows), ROWS_MAX):
            body = rows_of.pack(rows[start : start + ROWS_MAX])
            draft = Draft(body, Properties(""), self._writer.host, now)
            self._writer.write(TIMER_SLOTS_TOPIC, slot, draft, now, effects)
        if slot not in self._firsts:
            log = self._store.log(TIMER_SLOTS_TOPIC, slot)
            assert log is not None
            self._keep(log)
        first = min(map(offset_in, rows))
        self._firsts[slot] = min(self._firsts.get(slot, first), first)

    def read(self, slot: int, at: int) -> tuple[list[int], int]:
        """Return some rows of a slot, from the record `at` on, and where to go on.

        Raises StorageError, CorruptError if the slot is damaged there.
        """
        log = self._store.log(TIMER_SLOTS_TOPIC, slot)
        if log is None or at >= log.max_offset:
            return [], at
        found = log.read(at, _READ_RECORDS, _READ_BYTES)
        rows = [row for view in decode_records(found.data) for row in rows_of.unpack(view.body)]
        return rows, max(at + 1, found.next_offset)

    def end(self, slot: int) -> int:
        """Return where reading a slot ends."""
        log = self._store.log(TIMER_SLOTS_TOPIC, slot)
        return 0 if log is None else log.max_offset

    def delete_before(self, slot: int) -> None:
        """Delete the slots before this one. Raises StorageError."""
        for number in [number for number in self._firsts if number < slot]:
            log = self._store.log(TIMER_SLOTS_TOPIC, number)
            if log is not None:
                self._store.delete_log(log)
            del self._firsts[number]

    def _first(self, log: Log) -> int:
        """Return the lowest offset in a slot: it is in the first record."""
        try:
            found, _ = self.read(log.queue_id, log.min_offset)
        except CorruptError:
            return 0
        return min(map(offset_in, found), default=0)

    def _keep(self, log: Log) -> None:
        """A slot is never too old: its messages wait."""
        log.pin(0)

    def check(self) -> None:
        assert {log.queue_id for log in self._store.logs(TIMER_SLOTS_TOPIC)} >= self._firsts.keys()
