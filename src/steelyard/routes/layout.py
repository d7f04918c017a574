"""Which queue of which broker a partition is: the translator between RocketMQ's numbering and Kafka's.

A topic's layout is a list of extents, `broker-a:8,broker-b:8`: partitions 0 to 7 are the queues 0 to 7 of broker-a,
8 to 15 those of broker-b. It only ever grows at its end, so that a partition stays what it is, also while its
broker is down. A broker with several extents has its queues in their order: in `a:2,b:2,a:1` partition 4 is queue 2 of a.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError

EXTENTS_MAX = 10_000
"""Most extents in one layout."""
PARTITIONS_MAX = 1_000_000
"""Most partitions in one layout."""


class Extent(NamedTuple):
    """Partitions in a row on one broker."""

    broker: str
    queues: int


class Layout(msgspec.Struct, frozen=True, gc=False):
    """See the module's text. Neighbouring extents are of different brokers; each has at least one queue."""

    extents: tuple[Extent, ...] = ()

    @property
    def partitions(self) -> int:
        return sum(extent.queues for extent in self.extents)

    def place(self, partition: int) -> tuple[str, int] | None:
        """The broker and the queue id of a partition, None for none of the layout."""
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
        """The partition that a broker's queue is, None for none of the layout."""
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
        """(broker, queue id) of every partition, in their order."""
        found: list[tuple[str, int]] = []
        used: dict[str, int] = {}
        for broker, queues in self.extents:
            first = used.get(broker, 0)
            found += [(broker, first + number) for number in range(queues)]
            used[broker] = first + queues
        return found

    def queues(self) -> dict[str, int]:
        """How many queues each broker has, in the order in which the brokers come."""
        counts: dict[str, int] = {}
        for broker, queues in self.extents:
            counts[broker] = counts.get(broker, 0) + queues
        return counts

    def grown(self, extents: Iterable[Extent]) -> Layout:
        """This layout with more partitions at its end."""
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
        """This layout, grown by those of the brokers' queues that it does not have, by broker name."""
        have = self.queues()
        return self.grown(
            Extent(broker, queues[broker] - have.get(broker, 0))
            for broker in sorted(queues)
            if queues[broker] > have.get(broker, 0)
        )

    def extends(self, other: Layout) -> bool:
        """True where this is `other`, or `other` grown."""
        return self.leaders()[: other.partitions] == other.leaders()


def spread(partitions: int, brokers: Sequence[str]) -> list[Extent]:
    """Partitions over brokers in contiguous extents, as even as can be; the first brokers have the odd ones."""
    each, odd = divmod(partitions, len(brokers))
    return [Extent(broker, each + (position < odd)) for position, broker in enumerate(brokers)]


def of_brokers(brokers: Iterable[str]) -> Layout:
    """The layout in which partition n is on the n-th broker given."""
    return Layout().grown(Extent(broker, 1) for broker in brokers)


def write(layout: Layout) -> str:
    """`broker-a:8,broker-b:8`."""
    return ",".join(f"{broker}:{queues}" for broker, queues in layout.extents)


def read(text: str) -> Layout:
    """The layout that `write` wrote. Raises ProtocolError for anything else."""
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
