"""What a Kafka group's applications see, and the rules that the group must keep.

Safety, at every moment, `who` being one run of a member:
- a position (partition, offset) holds one message for ever, one that was sent to that topic, and it
  comes as it was sent;
- records come only of partitions that the application was told are its own, and nothing is told
  while it is at work;
- what a partition's owner gets begins at or below what the group has finished, and then comes
  offset by offset;
- no partition is told to a member while another of the same generation has it; where nothing fails
  (`planned`), of no matter which generation. A member has what it was told until it is told
  otherwise or dies. One that the group has gone on without may believe in more for a while: it has
  not synchronized in the generation of its successor, or was refused;
- in a KIP-848 group, nobody that the coordinator still takes for a member has a partition that a
  member of a higher epoch has;
- an offset that is committed is not above what applications have finished;
- offsets are passed over only where an operator gave up a damaged entry (of whichever queue of the
  topic: which one a partition is turns out at the end);
- what the coordinator has acknowledged of a partition is not forgotten: whoever asks it after that
  where to begin, begins at an offset that was committed. (Not at the latest one in any case: a
  commit that was under way on a link that is gone may come last.) Or at the first one, where a bit
  flipped in the coordinator's table and a repair lost the partition's offset. A member that asked
  before, and was cut off until the group had gone on without it, may begin at the first one.

Liveness: `unfinished`, asked after the faults; a partition is one RocketMQ queue: `compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from steelyard.sim.checkers import Floor, Witness, number_of
from steelyard.sim.world import Violation
from steelyard.types import MessageQueue, TopicPartition


class Seen(NamedTuple):
    """A record as delivered, reduced to what the rules need."""

    partition: TopicPartition
    offset: int
    value: bytes


def message_in(record: Seen, witness: Witness) -> int:
    """Return the number of the message in a record. Raises Violation unless it was sent so."""
    where = f"{record.partition} offset {record.offset}"
    number = number_of(record.value)
    sent = witness.messages.get(number)
    if sent is None:
        raise Violation(f"{where}: message {number} was never sent")
    if number in witness.withheld:
        raise Violation(f"{where}: message {number} was not committed")
    if (sent.topic, sent.body) != (record.partition.topic, record.value):
        raise Violation(f"{where}: {record.value!r} is not what was sent: {sent}")
    return number


class _Run:
    """One run of a member."""

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self.is_alive = is_alive
        self.generation = -1
        """The generation in which it last synchronized; in a KIP-848 group its last epoch."""
        self.confirmed = -1
        """The last one that it was in for certain."""
        self.next: dict[TopicPartition, int | None] = {}
        """Its partitions, with the next expected offset; None before the first record."""
        self.rival = ""
        """Who had a partition of its in a higher epoch when it sent its last heartbeat."""
        self.is_new = True
        """Whether a KIP-848 member has yet to send a heartbeat in an epoch of its group."""
        self.anew: set[TopicPartition] = set()
        """Those without an acknowledged offset when it requested the start."""


class KafkaWitness:
    """Observes members' assignments, deliveries and commits. Raises Violation.

    `by_generations`: whether a generation has one owner of each partition; members of a KIP-848
    group go from epoch to epoch at their own pace. `migrates`: whether the group changes its
    protocol; an empty one then begins again with epoch 1.
    """

    def __init__(
        self,
        witness: Witness,
        *,
        planned: bool,
        by_generations: bool = True,
        migrates: bool = False,
    ) -> None:
        self._witness = witness
        self._planned = planned
        self._by_generations = by_generations
        self._migrates = migrates
        self._runs: dict[str, _Run] = {}
        self._numbers: dict[tuple[TopicPartition, int], int] = {}
        self.floors: dict[TopicPartition, Floor] = {}
        self._ends: dict[TopicPartition, int] = {}
        """One past the highest delivered offset."""
        self._finished: set[int] = set()
        self._offered: dict[TopicPartition, set[int]] = {}
        """All offsets that members sent to the coordinator."""
        self._unanswered: dict[str, dict[TopicPartition, int]] = {}
        self._kept: dict[TopicPartition, int] = {}
        """The last offset that the coordinator acknowledged, per partition."""
        self.deliveries = 0
        self.duplicates = 0
        """Deliveries of a position after its first one."""
        self.first_duplicate: tuple[TopicPartition, int] | None = None
        self.commits = 0

    # -- what members do ---------------------------------------------------------------------------

    def joined(self, who: str, is_alive: Callable[[], bool]) -> None:
        """Note that a member starts."""
        self._runs[who] = _Run(is_alive)

    def synchronized(self, who: str, generation: int) -> None:
        """Note that it takes part in a generation: it requests its assignment."""
        self._runs[who].generation = generation

    def heartbeats(self, who: str, generation: int) -> None:
        """Note that it is in a generation: it sends heartbeats."""
        self._runs[who].confirmed = generation

    def searches(self, who: str) -> None:
        """Note that it searches for its coordinator: it may have been refused its assignment.

        A coordinator that could not store a generation may use its number again after a restart.
        """
        run = self._runs[who]
        if self._by_generations:
            run.generation = run.confirmed

    def beats(self, who: str, epoch: int, *, is_complete: bool) -> None:
        """Check a heartbeat of a KIP-848 member.

        One that says only what is new shows that the one before it was answered: whoever sent that
        was a member then, with the partitions that it had.
        """
        mine = self._runs[who]
        if epoch <= 0:  # it joins or leaves
            mine.rival, mine.is_new = "", True
            return
        if mine.is_new and self._migrates:
            self._began_anew(epoch)
        mine.is_new = False
        if mine.rival and not is_complete:
            raise Violation(f"{who} is heard in epoch {mine.generation}: {mine.rival}")
        mine.generation = epoch
        mine.rival = next(
            (
                f"{other} has {partition} in epoch {run.generation}"
                for other, run in sorted(self._runs.items())
                for partition in sorted(mine.next.keys() & run.next.keys())
                if run.generation > epoch and run.is_alive()
            ),
            "",
        )

    def _began_anew(self, epoch: int) -> None:
        """Forget the later epochs of others: whoever joins gets the latest one of its group."""
        for run in self._runs.values():
            if run.generation > epoch:
                run.generation = -1

    def assigned(self, who: str, partitions: Iterable[TopicPartition]) -> None:
        """Check partitions newly assigned to its application."""
        mine = self._runs[who]
        mine.confirmed = mine.generation
        for partition in partitions:
            if partition in mine.next:
                raise Violation(f"{who} is told twice that it has {partition}")
            for other in sorted(self._runs):
                run = self._runs[other]
                if partition not in run.next or not run.is_alive():
                    continue
                same = self._by_generations and run.generation == mine.generation
                if self._planned or same:
                    raise Violation(
                        f"{partition} is given to {who} in generation {mine.generation}, "
                        f"{other} has it in {run.generation}"
                    )
            mine.next[partition] = None
            mine.anew.discard(partition)

    def asked(self, who: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that it requests the committed offsets of these partitions, to start there."""
        anew = self._runs[who].anew
        for partition in partitions:
            if partition in self._kept:
                anew.discard(partition)
            else:
                anew.add(partition)

    def taken(self, who: str, partitions: Iterable[TopicPartition]) -> None:
        """Check partitions revoked from its application, or lost."""
        held = self._runs[who].next
        for partition in partitions:
            if partition not in held:
                raise Violation(f"{partition} is taken from {who}, which does not have it")
            del held[partition]

    def delivered(self, who: str, records: Iterable[Seen]) -> None:
        """Check the records returned by a poll."""
        for record in records:
            self._follows(who, record)
            number = message_in(record, self._witness)
            position = (record.partition, record.offset)
            if position in self._numbers:
                self.duplicates += 1
                self.first_duplicate = self.first_duplicate or position
            known = self._numbers.setdefault(position, number)
            if known != number:
                raise Violation(f"{position} held message {known}, now {number}")
            self.deliveries += 1
            self._ends[record.partition] = max(
                record.offset + 1, self._ends.get(record.partition, 0)
            )

    def _follows(self, who: str, record: Seen) -> None:
        partition, offset, _ = record
        held = self._runs[who].next
        if partition not in held:
            raise Violation(f"{who} gets {offset} of {partition}, which it does not have")
        expected = held[partition]
        if expected is None:
            floor = self.past_damage(partition, self.reached(partition))
            if offset > floor:
                raise Violation(f"{who} begins at {offset} of {partition}, {floor} is not finished")
            if partition in self._kept and not self._may_begin(who, partition, offset):
                kept = self._kept[partition]
                raise Violation(f"{who} begins at {offset} of {partition}: offset {kept} is lost")
        elif not expected <= offset <= self.past_damage(partition, expected):
            raise Violation(f"{who} gets {offset} of {partition}, {expected} is next")
        held[partition] = offset + 1

    def _may_begin(self, who: str, partition: TopicPartition, offset: int) -> bool:
        offered = set(self._offered[partition])
        if partition in self._runs[who].anew | self._witness.damage.kafka_offsets_lost:
            offered.add(0)
        return any(each <= offset <= self.past_damage(partition, each) for each in offered)

    def done(self, records: Iterable[Seen]) -> None:
        """Note that an application has processed these."""
        for record in records:
            self.floor(record.partition).finish(record.offset)
            self._finished.add(number_of(record.value))

    def committed(self, partition: TopicPartition, offset: int, who: str) -> None:
        """Check a commit by `who` of everything below `offset`."""
        self.commits += 1
        floor = self.past_damage(partition, self.reached(partition))
        if offset > floor:
            raise Violation(f"{who} commits {offset} of {partition}, but {floor} is not finished")
        self._offered.setdefault(partition, set()).add(offset)
        self._unanswered.setdefault(who, {})[partition] = offset

    def answered(self, who: str, *, well: bool) -> None:
        """Note the end of a call in which `who` committed.

        `well`: the coordinator has the offsets.
        """
        offsets = self._unanswered.pop(who, {})
        if well:
            self._kept.update(offsets)

    # -- what the judge asks -----------------------------------------------------------------------

    def floor(self, partition: TopicPartition) -> Floor:
        """Return the group's progress."""
        floor = self.floors.get(partition)
        if floor is None:
            floor = self.floors[partition] = Floor()
        return floor

    def reached(self, partition: TopicPartition) -> int:
        """Return the lowest unfinished offset, past skippable ones if later ones were delivered."""
        floor, end = self.floor(partition), self._ends.get(partition, 0)
        floor.advance(lambda at: at < end and self.past_damage(partition, at) > at)
        return floor.offset

    def past_damage(self, partition: TopicPartition, offset: int) -> int:
        """Return the first offset from this one on that was not given up."""
        while self._witness.damage.passes(partition.topic, offset):
            offset += 1
        return offset

    def unfinished(self) -> str | None:
        """Return what the group must still process, None if there is nothing."""
        owed = [
            *self._witness.acknowledged,
            *sorted(self._witness.promised | self._witness.owed),
        ]
        had = self._finished | self._witness.damage.lost
        missing = [number for number in owed if number not in had]
        if missing:
            return (
                f"{len(missing)} acknowledged messages did not reach the Kafka group, e.g."
                f" {missing[0]}"
            )
        for partition, end in self._ends.items():
            reached = self.reached(partition)
            if reached < end:
                return f"the Kafka group has not finished {partition}: {reached} of {end}"
        return None

    def compare(self, logs: Mapping[tuple[MessageQueue, int], int]) -> None:
        """Check what was read against the brokers' logs: `compare_queues`."""
        compare_queues(self._numbers, logs)


def compare_queues(
    numbers: Mapping[tuple[TopicPartition, int], int],
    logs: Mapping[tuple[MessageQueue, int], int],
) -> None:
    """Check that every partition read is one queue, with the same messages at the same offsets.

    `numbers`: of the messages that were read; `logs`: of those in the brokers' logs. Raises
    Violation.
    """
    queues = sorted({queue for queue, _ in logs})
    read: dict[TopicPartition, dict[int, int]] = {}
    for (partition, at), number in numbers.items():
        read.setdefault(partition, {})[at] = number
    may_be = {
        partition: [
            queue
            for queue in queues
            if queue.topic == partition.topic
            and all(logs.get((queue, at)) == number for at, number in found.items())
        ]
        for partition, found in sorted(read.items())
    }
    taken: dict[MessageQueue, TopicPartition] = {}
    for partition, found in may_be.items():
        if not found:
            raise Violation(f"what was read of {partition} is in no queue's log")
        if not _place(partition, may_be, taken, set()):
            raise Violation(f"{partition} and {taken[found[0]]} are both {found[0]}")


def _place(
    partition: TopicPartition,
    may_be: Mapping[TopicPartition, Sequence[MessageQueue]],
    taken: dict[MessageQueue, TopicPartition],
    tried: set[MessageQueue],
) -> bool:
    """Give a partition a queue of its own, if need be by giving others another of theirs.

    Two queues may begin alike: messages that were not acknowledged are sent again elsewhere.
    """
    for queue in may_be[partition]:
        if queue in tried:
            continue
        tried.add(queue)
        if queue not in taken or _place(taken[queue], may_be, taken, tried):
            taken[queue] = partition
            return True
    return False
