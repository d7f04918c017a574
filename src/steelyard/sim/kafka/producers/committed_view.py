"""What a reader of committed records has read of a topic, checked as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from steelyard.sim.kafka.producers.written import ProducedRecord
from steelyard.sim.world import Violation


class PartitionEnd(NamedTuple):
    """What a broker last said of a partition."""

    last_stable_offset: int
    high_watermark: int


class CommittedView:
    """One reading of the topic, from the first offset on. Raises Violation."""

    def __init__(
        self, written: Mapping[bytes, ProducedRecord], former: CommittedView | None = None
    ) -> None:
        """`written`: all records, by value.

        `former`: of the reading before, which must have had the same records.
        """
        self._written = written
        self._former = former
        self.places: dict[bytes, tuple[int, int]] = {}
        """The partition and offset of each record."""
        self.positions: dict[int, int] = {}
        """The next offset of each partition."""
        self._ends: dict[int, PartitionEnd] = {}
        self._ranks: dict[tuple[int, str], tuple[int, int]] = {}
        """The last record of each source in a partition."""

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """Check a record that readers of committed records get."""
        where = f"offset {offset} of partition {partition}"
        written = self._written.get(value)
        if written is None or written.partition != partition:
            raise Violation(f"{where} has {value!r}, which nobody has written there")
        if value in self.places:
            raise Violation(f"{where} has {value!r}, which is at {self.places[value]} as well")
        transaction = written.transaction
        if transaction is not None and not transaction.may_be_read:
            how = "aborted" if transaction.outcome is False else "not committed"
            raise Violation(f"{where} has {value!r}, whose transaction is {how}")
        source = partition, written.source
        before = self._ranks.get(source)
        if before is not None and before > written.rank:
            raise Violation(f"{where} has {value!r}, which comes after a later one: {before}")
        self._ranks[source] = written.rank
        if self._former is not None:
            place = self._former.places.get(value, (partition, offset))
            if place != (partition, offset) or (
                value not in self._former.places
                and offset < self._former.positions.get(partition, 0)
            ):
                raise Violation(f"{where} has {value!r}, which another reader did not get there")
        self.places[value] = partition, offset

    def reached(self, partition: int, position: int, end: PartitionEnd) -> None:
        """Note how far a partition has been read, and where it ends."""
        if position > end.last_stable_offset:
            raise Violation(
                f"partition {partition} was read up to {position}, beyond its last stable offset"
                f" {end.last_stable_offset}"
            )
        self.positions[partition] = position
        self._ends[partition] = end

    def not_read(self, partitions: int) -> str | None:
        """Return None if all partitions were read to their ends; otherwise what is wrong."""
        for partition in range(partitions):
            end = self._ends.get(partition)
            if end is None:
                return f"partition {partition} was not read"
            if end.last_stable_offset < end.high_watermark:
                return (
                    f"a transaction is open in partition {partition} from"
                    f" {end.last_stable_offset} on"
                )
            if self.positions[partition] < end.high_watermark:
                return f"partition {partition} was not read from {self.positions[partition]} on"
        if self._former is not None:
            for value, place in self._former.places.items():
                if value not in self.places:
                    return f"{value!r} was read before at {place}, and is gone"
        return None
