"""Which transactions are open, and when their producers are to be asked about them.

A transaction is identified by the offset of its half message in the half topic. An open one is

- fresh: begun, and its producer was not asked yet; only the half topic itself records it, or
- kept: it has a row in the table `transactions`, from `offset` to `checks ask_at`: how often its
  producer was asked, and when it is to be asked next.

Besides the rows, the table has `half` and `op`: every half message from the offset `half` on is
open unless an operation from the offset `op` on ends it, and no operation before `op` ends one of
those. Below `half` only the rows are open. So a restart reads no more of the two topics than a few
seconds have written.

The row of a transaction that has ended is deleted with a later write, which also advances `half`
and `op`: until then the operation that ended it is found from `op` on. That write waits until the
disk has the operation and the message that it publishes (`durability`): after a power failure the
table may be all that is left of them. Within a write the rows come first, because a crash may leave
only the first part of it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable

import msgspec

from steelyard.nodes.broker.durability import Durability
from steelyard.store.tables import Table

HALF = "half"
OP = "op"

SLOT_MS = 100
"""Times to ask are rounded up to this, so that many transactions share a timer and a write."""

_STALE_MAX = 1_000
"""Limit of stale entries in the queue of times, in addition to the number of open transactions."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """The row of an open transaction."""

    offset: int
    checks: int
    ask_at: int


class _Unsynced(msgspec.Struct, frozen=True, gc=False):
    """What the disk may lack before `mark`: how a transaction ended, or a message that was owed.

    Until then `half` and `op` must not go beyond these offsets (`half_offset`: None if it may), and
    the row of the transaction `ended`, None if it has none, must stay.
    """

    mark: int
    ended: int | None
    half_offset: int | None
    op_offset: int


class OpenTransactions:
    """The open transactions; see the module docstring. `count_max`: when they are `full`."""

    def __init__(self, table: Table, durability: Durability, count_max: int) -> None:
        self._table = table
        self._durability = durability
        self._count_max = count_max
        self._fresh: dict[int, int] = {}
        """By offset, ascending: the first operation that can end the transaction."""
        self._kept: dict[int, int] = {}
        """By offset: how often the producer was asked."""
        self._times: list[tuple[int, int]] = []
        """A heap of (when to ask, offset), with some that have ended."""
        self._unsynced: deque[_Unsynced] = deque()
        self._ended: list[int] = []
        """Offsets whose rows are to be deleted."""
        self.half_offset = int(table.get(HALF) or b"0")
        self.op_offset = int(table.get(OP) or b"0")
        for key, value in table.items():
            if key not in (HALF, OP):
                checks, ask_at = map(int, value.split())
                self._kept[int(key)] = checks
                self._push(int(key), ask_at)

    def __contains__(self, offset: int) -> bool:
        return offset in self._fresh or offset in self._kept

    def __len__(self) -> int:
        return len(self._fresh) + len(self._kept)

    @property
    def full(self) -> bool:
        return len(self) >= self._count_max

    @property
    def next_at(self) -> int | None:
        """When to ask next, None if there is nobody to ask; may be for one that has ended."""
        return self._times[0][0] if self._times else None

    def checks(self, offset: int) -> int:
        """Return how often the producer was asked."""
        return self._kept.get(offset, 0)

    def kept(self) -> list[int]:
        """Return the offsets of the transactions that have a row."""
        return list(self._kept)

    def later_than(self, at: int) -> list[int]:
        """Return the offsets of transactions to ask about after a time."""
        return [offset for ask_at, offset in self._times if ask_at > at and offset in self]

    def hasten(self, offsets: Collection[int], ask_at: int) -> None:
        """Ask about these transactions at this time, which is earlier than before."""
        if offsets:
            self._times = [
                (ask_at if offset in offsets else at, offset) for at, offset in self._times
            ]
            heapq.heapify(self._times)

    def begin(self, offset: int, ask_at: int, op_offset: int) -> None:
        """Note that a half message was stored. `op_offset`: the offset of the next operation."""
        self._fresh[offset] = op_offset
        self._push(offset, ask_at)

    def end(self, offset: int, op_offset: int) -> None:
        """Note that a transaction has ended.

        `op_offset`: of the operation that ended it, or of the next one if none did.
        """
        mark, first_op_offset = self._durability.mark(), self._fresh.pop(offset, None)
        if first_op_offset is None:
            del self._kept[offset]
            self._unsynced.append(_Unsynced(mark, offset, None, op_offset))
        else:
            self._unsynced.append(_Unsynced(mark, None, offset, first_op_offset))
        self._catch_up()
        if len(self._times) > 2 * len(self) + _STALE_MAX:
            self._times = [pair for pair in self._times if pair[1] in self]
            heapq.heapify(self._times)

    def hold(self) -> None:
        """Keep `op` where it is until the disk has what was written until now."""
        self._unsynced.append(_Unsynced(self._durability.mark(), None, None, self.op_offset))

    def all_synced(self) -> None:
        """Note that the disk has everything written until now."""
        while self._unsynced:
            self._note_synced(self._unsynced.popleft())

    def _catch_up(self) -> None:
        """Forget what the disk has by now."""
        while self._unsynced and self._durability.has(self._unsynced[0].mark):
            self._note_synced(self._unsynced.popleft())

    def _note_synced(self, synced: _Unsynced) -> None:
        if synced.ended is not None:
            self._ended.append(synced.ended)

    def due(self, now: int, count_max: int) -> list[int]:
        """Return up to `count_max` offsets whose time has come.

        Each of them must be passed to `keep` or `postpone`, or end.
        """
        found: list[int] = []
        while self._times and self._times[0][0] <= now and len(found) < count_max:
            offset = heapq.heappop(self._times)[1]
            if offset in self:
                found.append(offset)
        return found

    def postpone(self, offsets: Iterable[int], ask_at: int) -> None:
        """Ask about these transactions later, without writing anything."""
        for offset in offsets:
            if offset in self:
                self._push(offset, ask_at)

    def keep(self, rows: Iterable[Row], half_end: int, op_end: int) -> None:
        """Write rows, and how far the topics need not be read again.

        `half_end`, `op_end`: the next offsets of the two topics. Raises StorageError; nothing has
        changed then.
        """
        rows = list(rows)
        written = {row.offset for row in rows}
        fresh = ((offset, op) for offset, op in self._fresh.items() if offset not in written)
        half_offset, op_offset = next(fresh, (half_end, op_end))
        self._catch_up()
        for each in self._unsynced:
            op_offset = min(op_offset, each.op_offset)
            if each.half_offset is not None:
                half_offset = min(half_offset, each.half_offset)
        pairs: list[tuple[str, bytes | None]] = [(str(offset), None) for offset in self._ended]
        pairs += [(str(row.offset), b"%d %d" % (row.checks, row.ask_at)) for row in rows]
        if half_offset != self.half_offset:
            pairs.append((HALF, b"%d" % half_offset))
        if op_offset != self.op_offset:
            pairs.append((OP, b"%d" % op_offset))
        self._table.put_many(pairs)
        self._ended.clear()
        self.half_offset, self.op_offset = half_offset, op_offset
        for row in rows:
            self._fresh.pop(row.offset, None)
            self._kept[row.offset] = row.checks
            self._push(row.offset, row.ask_at)

    def keep_all(self, half_end: int, op_end: int) -> None:
        """Write rows for all that have none, as `keep`; neither topic need be read again then."""
        ask_at: dict[int, int] = {}
        for at, offset in sorted(self._times):
            ask_at.setdefault(offset, at)
        rows = [Row(offset, 0, ask_at[offset]) for offset in self._fresh]
        self.keep(rows, half_end, op_end)

    def _push(self, offset: int, ask_at: int) -> None:
        heapq.heappush(self._times, (-(-ask_at // SLOT_MS) * SLOT_MS, offset))

    def check(self, half_end: int) -> None:
        """Assert every invariant; `half_end` is the next offset of the half topic."""
        assert not self._fresh.keys() & self._kept.keys()
        assert list(self._fresh) == sorted(self._fresh)
        assert all(self.half_offset <= offset < half_end for offset in self._fresh)
        assert all(offset < half_end for offset in self._kept)
        assert {*self._fresh, *self._kept} <= {offset for _, offset in self._times}
        for each in self._unsynced:
            assert each.half_offset is None or each.half_offset >= self.half_offset
            assert each.op_offset >= self.op_offset
        ended = {each.ended for each in self._unsynced if each.ended is not None}
        rows = {int(key) for key, _ in self._table.items() if key not in (HALF, OP)}
        assert rows == self._kept.keys() | ended | set(self._ended)
