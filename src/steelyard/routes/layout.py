"""The mapping between queues of brokers (RocketMQ) and partitions (Kafka).

A topic's layout is a list of extents, `broker-a:8,broker-b:8`: partitions 0 to 7 are the queues 0
to 7 of broker-a, 8 to 15 those of broker-b. It grows only at its end, so that a partition never
changes, even while its broker is down. The queues of a broker with several extents are numbered
across them: in `a:2,b:2,a:1` partition 4 is queue 2 of a.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError

EXTENTS_MAX = 10_000
"""Maximum extents in one layout."""
PARTITIONS_MAX = 1_000_000
"""Maximum partitions in one layout."""


LAYOUT_ATTRIBUTE = "steelyard.layout"
"""The attribute of a topic that its layout is kept in."""


def layouts_namespace(cluster: str) -> str:
    """Return where nameservers keep the attributes of a cluster's topics, with their layouts."""
    return f"STEELYARD_KAFKA_LAYOUT@{cluster}"


class Extent(NamedTuple):
    """Consecutive partitions on one broker."""

    broker: str
    queues: int


class Layout(msgspec.Struct, frozen=True, gc=False):
    """A layout; see the module docstring. Neighbouring extents have different brokers.

    Each extent has at least one queue.
    """

    extents: tuple[Extent, ...] = ()

    @property
    def partitions(self) -> int:
        return sum(extent.queues for extent in self.extents)

    def place(self, partition: int) -> tuple[str, int] | None:
        """Return the broker and queue id of a partition; None if it is not in the layout."""
        if partition < 0:
            return None
        left = partition
        for position, (broker, queues) in enumerate(self.extents):
            if left < queues:
                before = self.extents[:position]
                return broker, left + sum(queues for name, queues in before if name == broker)
            left -= queues
        return None

    def partition_of(self, broker: str, queue_id: int) -> int | None:
        """Return the partition of a broker's queue; None if it is not in the layout."""
        if queue_id < 0:
            return None
        first = 0
        left = queue_id
        for name, queues in self.extents:
            if name == broker:
                if left < queues:
                    return first + left
                left -= queues
            first += queues
        return None

    def leaders(self) -> list[tuple[str, int]]:
        """Return (broker, queue id) of every partition, in order."""
        found: list[tuple[str, int]] = []
        used: dict[str, int] = {}
        for broker, queues in self.extents:
            first = used.get(broker, 0)
            found += [(broker, first + number) for number in range(queues)]
            used[broker] = first + queues
        return found

    def queues(self) -> dict[str, int]:
        """Return the number of queues per broker, in the order in which brokers appear."""
        counts: dict[str, int] = {}
        for broker, queues in self.extents:
            counts[broker] = counts.get(broker, 0) + queues
        return counts

    def grown(self, extents: Iterable[Extent]) -> Layout:
        """Return this layout with more partitions at its end."""
        joined = list(self.extents)
        for extent in extents:
            if not extent.queues:
                continue
            if joined and joined[-1].broker == extent.broker:
                joined[-1] = Extent(extent.broker, joined[-1].queues + extent.queues)
            else:
                joined.append(extent)
        return Layout(tuple(joined))

    def covering(self, queues: Mapping[str, int]) -> Layout:
        """Return this layout extended by those brokers' queues that it lacks, by broker name."""
        have = self.queues()
        return self.grown(
            Extent(broker, queues[broker] - have.get(broker, 0))
            for broker in sorted(queues)
            if queues[broker] > have.get(broker, 0)
        )

    def extends(self, other: Layout) -> bool:
        """Return whether this is `other`, or an extension of it."""
        return self.leaders()[: other.partitions] == other.leaders()


def spread(partitions: int, brokers: Sequence[str]) -> list[Extent]:
    """Spread partitions over brokers in contiguous extents as evenly as possible.

    The first brokers have one more.
    """
    each, odd = divmod(partitions, len(brokers))
    return [Extent(broker, each + (position < odd)) for position, broker in enumerate(brokers)]


def of_brokers(brokers: Iterable[str]) -> Layout:
    """Return the layout in which partition n is on the n-th broker given."""
    return Layout().grown(Extent(broker, 1) for broker in brokers)


def write(layout: Layout) -> str:
    """Format as `broker-a:8,broker-b:8`."""
    return ",".join(f"{broker}:{queues}" for broker, queues in layout.extents)


def read(text: str) -> Layout:
    """Parse a layout that `write` wrote. Raises ProtocolError for anything else."""
    parts = text.split(",", EXTENTS_MAX) if text else []
    if len(parts) > EXTENTS_MAX:
        raise ProtocolError(f"a layout of more than {EXTENTS_MAX} extents")
    extents: list[Extent] = []
    for part in parts:
        broker, _, count = part.rpartition(":")
        if not broker or not (count.isascii() and count.isdigit()) or len(count) > 7:
            raise ProtocolError(f"{part[:100]!r} is not an extent BROKER:QUEUES of a layout")
        extents.append(Extent(broker, int(count)))
    layout = Layout().grown(extents)
    if layout.partitions > PARTITIONS_MAX:
        raise ProtocolError(f"a layout of more than {PARTITIONS_MAX} partitions")
    return layout
