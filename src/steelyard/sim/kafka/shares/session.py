"""What one member of a share group has with one leader: its session, and records to acknowledge.

As in Java's client, one request is under way at a time. A session begins with a fetch of epoch 0;
it begins anew after an error, or when the connection was lost, and acknowledgements that were to be
sent in the former one are not sent. Records that are still being processed are acknowledged in the
new session, which works if the broker has not released them. Source: the client's
ShareSessionHandler.java, ShareConsumeRequestManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from steelyard.nodes.broker.kafka.data.fetch_sessions import next_epoch
from steelyard.nodes.broker.kafka.shares.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
)
from steelyard.nodes.seam import Address, Link
from steelyard.sim.kafka.witness import Seen
from steelyard.types import Random, TopicPartition
from steelyard.wire.kafka.messages.data import FIRST_EPOCH
from steelyard.wire.kafka.messages.share_data import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    AcquiredRecords,
    ForgottenShareTopic,
)
from steelyard.wire.kafka.records import read_headers, read_records

Place = tuple[bytes, int]
"""The id of a topic, and a partition."""

Kinds = dict[TopicPartition, dict[int, int]]
"""Types of acknowledgements, by partition and offset."""

FORGET = -1
"""What an application does that never acknowledges a record."""


@dataclass(frozen=True, slots=True)
class ShareHabits:
    """What an application does with its records. The shares are of 100 records."""

    process_ms_max: int
    slow_of_100: int
    release_of_100: int
    reject_of_100: int = 3
    forget_of_100: int = 2
    renew_ms: int = 0
    """After so long, and again and again, it renews the locks of what it processes; 0: never."""

    def time_ms(self, rng: Random) -> int:
        """Return how long it processes what came in one answer."""
        work_ms = rng.randrange(self.process_ms_max + 1)
        if rng.randrange(100) < self.slow_of_100:
            work_ms *= 1 + rng.randrange(100)
        return work_ms

    def kind(self, rng: Random) -> int:
        """Return what it does with a record in the end."""
        drawn = rng.randrange(100)
        for kind, of_100 in (
            (RELEASE, self.release_of_100),
            (REJECT, self.reject_of_100),
            (FORGET, self.forget_of_100),
        ):
            if drawn < of_100:
                return kind
            drawn -= of_100
        return ACCEPT


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one fetch gets. `by_record`: no more than that many records (KIP-1206)."""

    records: int
    by_record: bool


@dataclass(slots=True)
class _Held:
    """A record that the application has. `renew_at`: None if it renews no lock."""

    count: int
    kind: int
    done_at: int
    renew_at: int | None


@dataclass(slots=True, eq=False)
class Exchange:
    """A request to the leader that is under way. `is_probe`: its epoch is a wrong one."""

    session: LeaderSession
    epoch: int
    sent_at: int
    run: int
    is_fetch: bool = False
    is_probe: bool = False
    kinds: Kinds = field(default_factory=dict)
    counts: Kinds = field(default_factory=dict)
    """The delivery counts of the same records."""
    named: dict[Place, None] = field(default_factory=dict)
    """What the session fetches if the request is answered well."""


class LeaderSession:
    """See the module docstring. `leader`: its address."""

    def __init__(self, leader: Address, habits: ShareHabits, rng: Random) -> None:
        self.leader = leader
        self._habits = habits
        self._rng = rng
        self.epoch = FIRST_EPOCH
        self.link: Link = -1
        """The connection on which the session began."""
        self.wanted: dict[Place, None] = {}
        """The member's partitions of this leader."""
        self.named: dict[Place, None] = {}
        """Those that the session fetches."""
        self.exchange: Exchange | None = None
        self.lost = 0
        """Requests without an answer, which may come to the leader late, on another connection."""
        self.next_at: int | None = 0
        """When the next request is due, unless one is under way; None if nothing is to be sent."""
        self.throttled_until = 0
        """The leader reads nothing before, because its client exceeded its quota (KIP-219)."""
        self._held: dict[TopicPartition, dict[int, _Held]] = {}

    @property
    def asks_at(self) -> int | None:
        """Return when to send the next request; None if there is none, or one is under way."""
        if self.exchange is not None or self.next_at is None:
            return None
        return max(self.next_at, self.throttled_until)

    @property
    def size(self) -> int:
        """Return how many records the application has."""
        return sum(map(len, self._held.values()))

    def wants(self, places: dict[Place, None], now: int) -> None:
        """Take the member's partitions of this leader."""
        if places != self.wanted:
            self.wanted = places
            self.next_at = now

    # -- records -----------------------------------------------------------------------------------

    def take(
        self, partition: TopicPartition, data: bytes, acquired: Iterable[AcquiredRecords], now: int
    ) -> list[tuple[Seen, int]]:
        """Take what was delivered of a partition; return the records with their delivery counts."""
        values: dict[int, bytes] = {}
        for position, _ in read_headers(data):
            for record in read_records(data, position):
                if record.value is not None:
                    values[record.offset] = record.value
        found = []
        held = self._held.setdefault(partition, {})
        habits, done_at = self._habits, now + self._habits.time_ms(self._rng)
        renew_at = now + habits.renew_ms if habits.renew_ms else None
        for some in acquired:
            for offset in range(some.first_offset, some.last_offset + 1):
                value = values.get(offset)
                count = some.delivery_count
                if value is None:
                    held[offset] = _Held(count, GAP, now, None)
                    continue
                held[offset] = _Held(count, habits.kind(self._rng), done_at, renew_at)
                found.append((Seen(partition, offset, value), count))
        return found

    def due(self, now: int) -> Kinds:
        """Return what the application has to say of its records, without those to be forgotten."""
        kinds: Kinds = {}
        for partition, held in sorted(self._held.items()):
            for offset, one in sorted(held.items()):
                if one.done_at <= now:
                    if one.kind == FORGET:
                        del held[offset]
                    else:
                        kinds.setdefault(partition, {})[offset] = one.kind
                elif one.renew_at is not None and one.renew_at <= now:
                    kinds.setdefault(partition, {})[offset] = RENEW
        return kinds

    @property
    def due_at(self) -> int | None:
        """Return when the application has something to say next."""
        return min(
            (
                one.done_at if one.renew_at is None else min(one.done_at, one.renew_at)
                for held in self._held.values()
                for one in held.values()
            ),
            default=None,
        )

    def say(self, kinds: Kinds, now: int) -> Kinds:
        """Note that this is sent; return the delivery counts of the records."""
        counts: Kinds = {}
        for partition, offsets in kinds.items():
            held = self._held[partition]
            for offset, kind in offsets.items():
                one = held[offset]
                counts.setdefault(partition, {})[offset] = one.count
                if kind == RENEW:
                    one.renew_at = now + self._habits.renew_ms
                else:
                    del held[offset]
        return counts

    # -- sessions ----------------------------------------------------------------------------------

    def reset(self, now: int) -> None:
        """Begin anew with the next request: what would have been said by now stays unsaid."""
        self.epoch, self.link, self.named = FIRST_EPOCH, -1, {}
        self.say(self.due(now), now)

    def advance(self) -> None:
        """Go on to the next epoch."""
        self.epoch = next_epoch(self.epoch)

    def topics(
        self, kinds: Kinds, ids: Mapping[str, bytes], named: Iterable[Place]
    ) -> list[AcknowledgeTopic]:
        """Return what a request says of partitions: `kinds`, or that it wants those `named`."""
        parts: dict[Place, list[AcknowledgementBatch]] = {place: [] for place in named}
        for partition, offsets in kinds.items():
            place = ids[partition.topic], partition.partition
            parts[place] = _batches(offsets, self._rng)
        topics: dict[bytes, list[AcknowledgePartition]] = {}
        for (topic_id, number), batches in parts.items():
            topics.setdefault(topic_id, []).append(AcknowledgePartition(number, batches))
        return [AcknowledgeTopic(*each) for each in topics.items()]


def forgotten(places: Iterable[Place]) -> list[ForgottenShareTopic]:
    """Return how a request says that it does not want partitions any longer."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in places:
        topics.setdefault(topic_id, []).append(number)
    return [ForgottenShareTopic(*each) for each in topics.items()]


def _batches(kinds: Mapping[int, int], rng: Random) -> list[AcknowledgementBatch]:
    """Return acknowledgements in batches: with one type each, or one for each offset."""
    is_mixed = rng.random() < 0.5
    batches: list[AcknowledgementBatch] = []
    for offset, kind in sorted(kinds.items()):
        if batches and batches[-1].last_offset == offset - 1:
            first, types = batches[-1].first_offset, batches[-1].acknowledge_types
            if is_mixed or types == [kind]:
                types = [*types, kind] if is_mixed else [kind]
                batches[-1] = AcknowledgementBatch(first, offset, types)
                continue
        batches.append(AcknowledgementBatch(offset, offset, [kind]))
    return batches
