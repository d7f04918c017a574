"""InFlightRuns of records by offset, without gaps, which are split where one of them changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from steelyard.nodes.broker.kafka.shares.in_flight import InFlight

_first_of = attrgetter("first")


class InFlightRuns:
    """The runs from `start` on. `end`: the offset after the last, `start` if there is none."""

    def __init__(self, start: int, runs: Iterable[InFlight] = ()) -> None:
        self.start = start
        self._runs = list(runs)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def end(self) -> int:
        return self._runs[-1].last + 1 if self._runs else self.start

    def copy(self) -> tuple[int, Sequence[InFlight]]:
        """Return what `restore` takes."""
        return self.start, tuple(self._runs)

    def restore(self, copied: tuple[int, Sequence[InFlight]]) -> None:
        self.start, self._runs = copied[0], list(copied[1])

    def append(self, run: InFlight) -> None:
        """Add a run that begins at `end`."""
        assert run.first == self.end
        assert run.size > 0
        self._runs.append(run)

    def _split(self, offset: int) -> int:
        """Split the run that holds an offset there; return the index of the run that begins there.

        The offset may be `end`.
        """
        index = bisect_right(self._runs, offset, key=_first_of) - 1
        if index < 0 or offset > self._runs[index].last:
            return index + 1
        run = self._runs[index]
        if run.first == offset:
            return index
        self._runs[index : index + 1] = [
            replace(run, last=offset - 1),
            replace(run, first=offset),
        ]
        return index + 1

    def between(self, first: int, last: int) -> list[InFlight]:
        """Return the runs from `first` to `last`, cut there."""
        begin = max(bisect_right(self._runs, first, key=_first_of) - 1, 0)
        end = bisect_right(self._runs, last, key=_first_of)
        return [
            replace(run, first=max(run.first, first), last=min(run.last, last))
            for run in self._runs[begin:end]
            if run.last >= first
        ]

    def change(self, first: int, last: int, new: Callable[[InFlight], InFlight]) -> None:
        """Replace each run from `first` to `last`, both in flight."""
        begin = self._split(first)
        end = self._split(last + 1)
        self._runs[begin:end] = _joined(new(run) for run in self._runs[begin:end])

    def replace_all(self, new: Callable[[InFlight], InFlight]) -> None:
        self._runs = _joined(new(run) for run in self._runs)

    def begin_at(self, offset: int) -> None:
        """Forget what is before an offset."""
        if offset >= self.end:
            self._runs = []
        else:
            del self._runs[: self._split(offset)]
        self.start = offset

    def end_at(self, offset: int) -> None:
        """Forget what is at an offset and behind it."""
        del self._runs[self._split(offset) :]
        self.start = min(self.start, offset)

    def drop_final(self) -> None:
        """Move `start` behind the first records that are all accepted or archived."""
        count = 0
        while count < len(self._runs) and self._runs[count].is_final:
            count += 1
        if count:
            self.start = self._runs[count - 1].last + 1
            del self._runs[:count]

    def check(self) -> None:
        """Assert that there are no gaps, and that what is final was dropped at the beginning."""
        at = self.start
        for run in self._runs:
            assert run.first == at, "a gap in the records in flight"
            assert run.last >= run.first
            at = run.last + 1
        assert not (self._runs and self._runs[0].is_final)


def _joined(runs: Iterable[InFlight]) -> list[InFlight]:
    """Join neighbours that are accepted, or archived: nobody needs to know more of them."""
    joined: list[InFlight] = []
    for run in runs:
        if run.is_final and joined and joined[-1].state is run.state:
            joined[-1] = replace(joined[-1], last=run.last)
        else:
            joined.append(run)
    return joined
