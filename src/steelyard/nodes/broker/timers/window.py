"""The rows that are next, in memory: a heap of all rows up to a ceiling.

Rows above the ceiling are elsewhere, on the disk or waiting to be written there. When the heap has
grown beyond its limit the ceiling is lowered, and the rows above it are dropped; they can be read
again. So memory does not depend on how many messages wait.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

ROWS_MAX = 50_000
"""What the heap is filled up to, and cut to when it holds twice as many: 4 MB."""


class Window:
    """See the module docstring."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> int | None:
        """The lowest row; None if there is none up to the ceiling."""
        return self._heap[0] if self._heap else None

    @property
    def has_room(self) -> bool:
        """Whether more rows should be read, if there are any."""
        return len(self._heap) < ROWS_MAX // 2

    def pop(self) -> None:
        """Remove the lowest row."""
        heappop(self._heap)

    def add(self, row: int) -> None:
        """Add a new row, if it is not above the ceiling."""
        if row <= self.ceiling:
            heappush(self._heap, row)
            if len(self._heap) > 2 * ROWS_MAX:
                self._heap.sort()
                del self._heap[ROWS_MAX:]
                self.ceiling = self._heap[-1]

    def extend(self, rows: list[int], ceiling: int) -> None:
        """Raise the ceiling, and add all rows from the old to the new one."""
        assert ceiling >= self.ceiling
        self._heap += rows
        heapify(self._heap)
        self.ceiling = ceiling

    def check(self) -> None:
        assert len(self._heap) <= 3 * ROWS_MAX
        assert all(row <= self.ceiling for row in self._heap)


class NextRows:
    """The lowest rows of a slot, while it is read: those in a range, at most ROWS_MAX of them."""

    def __init__(self, above: int, ceiling: int) -> None:
        self.above = above
        self.ceiling = ceiling
        self._rows: list[int] = []

    def add(self, rows: list[int]) -> None:
        above, ceiling = self.above, self.ceiling
        self._rows += [row for row in rows if above < row <= ceiling]
        if len(self._rows) > 2 * ROWS_MAX:
            self._cut()

    def _cut(self) -> None:
        self._rows = sorted(set(self._rows))
        if len(self._rows) > ROWS_MAX:
            del self._rows[ROWS_MAX:]
            self.ceiling = self._rows[-1]

    def result(self) -> tuple[list[int], int]:
        """Return the rows, each once and in order, and the ceiling up to which they are all."""
        self._cut()
        return self._rows, self.ceiling
