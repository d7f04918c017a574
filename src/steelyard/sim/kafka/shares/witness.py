"""Knows what the members of the simulated share group got of each record, and did with it.

Safety:
- a record is what was sent, at an offset that does not change;
- nobody gets a record while another member has it, whose lock has not ended. A member has lost what
  it acknowledges, and what it had on a connection or in a session that ended. So two who seem to
  have a record break the rule only if the first one's connection is still answered after that;
- a member that acknowledges in time, on the connection on which it got the records, is not refused;
- a record whose acceptance or rejection was answered never comes again, and neither is answered
  twice;
- the delivery count rises with each delivery, up to the limit. A restart of the broker forgets
  deliveries that had not ended: the count may stay;
- nobody is expelled who was heard within its session.

Liveness, asked after the faults: whatever was acknowledged to its producer, and whatever came once,
is accepted, rejected, or was delivered as often as is allowed, perhaps in answers that nobody got
(`unseen`). And members have each partition.

Where disks fill up or lose power (not `is_sure`), counts say less: `docs/LIMITS.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from steelyard.nodes.broker.kafka.shares.share_partition import ACCEPT, REJECT, RENEW
from steelyard.nodes.seam import Address
from steelyard.sim.checkers import Witness
from steelyard.sim.kafka.shares.fates import (
    FINAL,
    Fate,
    Final,
    ShareDelivery,
    UnseenAnswers,
    Where,
    Who,
)
from steelyard.sim.kafka.witness import Seen, message_in
from steelyard.sim.world import Violation
from steelyard.types import TopicPartition

SLACK_MS = 200
"""Difference of two clocks over the longest lock or session, and rounding."""


class ShareWitness:
    """See the module docstring. `witness`: what was sent; `session_ms`: of the members."""

    def __init__(
        self,
        witness: Witness,
        *,
        lock_ms: int,
        deliveries_max: int,
        session_ms: int,
        is_sure: bool = True,
    ) -> None:
        self._witness = witness
        self._lock_ms = lock_ms
        self._deliveries_max = deliveries_max
        self._session_ms = session_ms
        self._is_sure = is_sure
        self.now: Callable[[], int] = lambda: 0
        """The true time."""
        self.true_time: Callable[[str, int], int] = lambda name, at: at
        """(member, time of its clock): the true time."""
        self.is_alive: Callable[[str], bool] = lambda name: True
        self.run_of: Callable[[Address], int] = lambda leader: 0
        """How often a broker was started."""
        self._fates: dict[Where, Fate] = {}
        self._suspicions: dict[Who, list[tuple[int, str]]] = {}
        """Broken rules, if a member is answered that asked after that time."""
        self.unseen = UnseenAnswers(self._is_member_alive)
        self._heard: dict[str, tuple[Address, int]] = {}
        """By member: its coordinator, and when the latest heartbeat that was answered was sent."""
        self._assigned: dict[str, frozenset[TopicPartition]] = {}
        self.deliveries = 0
        self.redeliveries = 0
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.refused = 0
        """Records whose acknowledgement was refused."""
        self.renewed = 0

    def _is_member_alive(self, name: str) -> bool:
        return self.is_alive(name)

    # -- fetches -----------------------------------------------------------------------------------

    def answered(self, who: Who, sent_at: int) -> None:
        """Note that a request of that time was answered: the connection had been there all along.

        Raises Violation.
        """
        sent_at = self.true_time(who.name, sent_at)
        for at, text in self._suspicions.get(who, ()):
            if at < sent_at:
                raise Violation(text)

    def delivered(
        self, who: Who, records: Iterable[tuple[Seen, int]], sent_at: int, now: int, run: int
    ) -> None:
        """Check records with their delivery counts, of a fetch that was sent at `sent_at`."""
        sent_at, now = self.true_time(who.name, sent_at), self.true_time(who.name, now)
        for record, count in records:
            number = message_in(record, self._witness)
            where = record.partition, record.offset
            fate = self._fates.setdefault(where, Fate(number))
            if fate.number != number:
                raise Violation(f"{where} held message {fate.number}, now {number}")
            self._check_one(where, fate, ShareDelivery(who, count, sent_at, now, run))

    def _check_one(self, where: Where, fate: Fate, new: ShareDelivery) -> None:
        name, count, final = new.who.name, new.count, fate.final
        if not 1 <= count <= self._deliveries_max:
            raise Violation(f"{name} gets {where} for the {count}th time")
        if final is not None and (
            new.sent_at >= final.answered_at
            or (self._is_sure and final.is_exact and count > final.count)
        ):
            raise Violation(f"{name} gets {where}, which is finished")
        self.deliveries += 1
        self.redeliveries += fate.told is not None
        self._check_count(where, fate.told, new)
        self._check_holder(where, fate, new)
        if fate.told is None or count >= fate.told.count:
            fate.told = new

    def _check_count(self, where: Where, told: ShareDelivery | None, new: ShareDelivery) -> None:
        if told is None or not self._is_sure or new.sent_at < told.received_at:
            return
        is_same_run = told.run == self.run_of(new.who.leader)
        if new.count < told.count + is_same_run:
            raise Violation(
                f"{new.who.name} gets {where} for the {new.count}th time,"
                f" after {told.who.name} for the {told.count}th"
            )

    def _check_holder(self, where: Where, fate: Fate, new: ShareDelivery) -> None:
        """Compare with the delivery to whoever has the record, and note who has it now."""
        old = fate.hold
        if old is None:
            fate.hold = new
        elif self._follows(new, old):
            self._suspect(where, old, new)
            fate.hold = new
        elif self._follows(old, new):
            self._suspect(where, new, old)
        else:
            fate.hold = None  # answers overtook each other, around a restart of the broker

    def _follows(self, later: ShareDelivery, earlier: ShareDelivery) -> bool:
        """Return whether a delivery was acquired after another one for certain."""
        return later.sent_at >= earlier.received_at or (
            self._is_sure and later.count > earlier.count
        )

    def _suspect(self, where: Where, first: ShareDelivery, new: ShareDelivery) -> None:
        left_ms = self._locked_until(first) - new.received_at
        if left_ms > 0:
            has = f"{first.who.name} has it for {left_ms} ms more"
            text = f"{new.who.name} gets {where}, {has}"
            self._suspicions.setdefault(first.who, []).append((new.received_at, text))

    def _locked_until(self, delivery: ShareDelivery) -> int:
        return delivery.sent_at + self._lock_ms - SLACK_MS

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledges(self, who: Who, partition: TopicPartition, kinds: Mapping[int, int]) -> None:
        """Note that a member sends acknowledgements. `kinds`: by offset."""
        for offset, kind in kinds.items():
            fate = self._fates.get((partition, offset))
            if fate is None:
                continue  # nothing was at this offset
            fate.ending.pop(who.name, None)
            if fate.hold is not None and fate.hold.who[:2] == who[:2]:
                fate.ending[who.name] = fate.hold
                if kind != RENEW:
                    fate.hold = None
            fate.maybe += kind in FINAL

    def acknowledged(
        self,
        who: Who,
        partition: TopicPartition,
        kinds: Mapping[int, int],
        counts: Mapping[int, int],
        sent_at: int,
        now: int,
    ) -> None:
        """Check acknowledgements that were answered well. `counts`: of deliveries, by offset."""
        sent_at, now = self.true_time(who.name, sent_at), self.true_time(who.name, now)
        is_exact = self.unseen.has_heard_all(who)
        last = max((at for at in kinds if self._is_open(partition, at)), default=-1)
        for offset, kind in kinds.items():
            where = partition, offset
            fate = self._fates.get(where)
            if fate is None:
                continue
            fate.ending.pop(who.name, None)
            if kind == RENEW:
                self.renewed += 1
                had = fate.hold
                if had is not None and had.who == who and not self._may_have_passed(where):
                    fate.hold = replace(had, sent_at=sent_at)
                continue
            if kind not in FINAL:
                self.released += 1
                continue
            fate.maybe -= 1
            told = fate.told
            if fate.final is not None:
                # What lies before the group's start is passed over, and the rest of a batch counts.
                if offset < last or self._may_have_passed(where):
                    continue
                raise Violation(f"{where} is finished by {who.name}, for the second time")
            if self._is_sure and is_exact and told is not None and told.count > counts[offset]:
                if self._may_have_passed(where):
                    continue
                raise Violation(
                    f"{where} is finished by {who.name}, after {told.who.name} got it again"
                )
            fate.final = Final(counts[offset], now, is_exact)
            self.accepted += kind == ACCEPT
            self.rejected += kind == REJECT

    def _may_have_passed(self, where: Where) -> bool:
        """Return whether the group's start may be behind a record: all up to it may be finished.

        The answer to an acknowledgement says nothing then: it is passed over.
        """
        partition, offset = where
        return all(
            self._is_over(each, fate)
            for each, fate in self._fates.items()
            if each[0] == partition and each[1] <= offset
        )

    def _is_open(self, partition: TopicPartition, offset: int) -> bool:
        fate = self._fates.get((partition, offset))
        return fate is None or fate.final is None

    def refuses(
        self,
        who: Who,
        partition: TopicPartition,
        kinds: Mapping[int, int],
        now: int | None,
        *,
        because_of_state: bool,
    ) -> None:
        """Check acknowledgements of a partition that were refused, which is all of them.

        `now`: when that was answered; None if nobody knows whether they were accepted.
        """
        ends = []
        for offset, kind in kinds.items():
            fate = self._fates.get((partition, offset))
            if fate is None:
                continue
            had = fate.ending.pop(who.name, None)
            ends.append(0 if had is None or had.who != who else self._locked_until(had))
            if now is not None:
                self.refused += 1
                fate.maybe -= kind in FINAL
        if now is None or not because_of_state or not ends or len(ends) < len(kinds):
            return
        left_ms = min(ends) - self.true_time(who.name, now)
        if left_ms > 0:
            what = f"{min(kinds)} to {max(kinds)} of {partition}"
            raise Violation(f"{who.name} is refused {what}, which it has for {left_ms} ms more")

    def closes(self, who: Who) -> None:
        """Note that a member ends a session: it loses what it has not acknowledged."""
        for fate in self._fates.values():
            if fate.hold is not None and fate.hold.who[:2] == who[:2]:
                fate.hold = None

    def loses(self, who: Who) -> None:
        """Note that a session was lost: its member may have lost its records some time ago."""
        self.closes(who)
        self._suspicions.pop(who, None)

    # -- members -----------------------------------------------------------------------------------

    def heard(self, name: str, coordinator: Address, sent_at: int) -> None:
        """Note that a heartbeat was answered."""
        self._heard[name] = coordinator, self.true_time(name, sent_at)

    def expelled(self, name: str, coordinator: Address, now: int) -> None:
        """Check that a member was silent when its coordinator does not know it any longer."""
        former, heard_at = self._heard.pop(name, ("", 0))
        if former != coordinator or not self._is_sure:
            return
        silent_ms = self.true_time(name, now) - heard_at
        if silent_ms < self._session_ms - SLACK_MS:
            raise Violation(f"{name} is expelled, it was heard {silent_ms} ms ago")

    def assigned(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        """Note what a member fetches from now on."""
        self._assigned[name] = partitions

    def counts(self) -> dict[str, int]:
        """Return figures for people."""
        return {
            "share_deliveries": self.deliveries,
            "share_redeliveries": self.redeliveries,
            "share_accepted": self.accepted,
            "share_rejected": self.rejected,
            "share_released": self.released,
            "share_refused": self.refused,
            "share_renewed": self.renewed,
        }

    @property
    def numbers(self) -> Mapping[Where, int]:
        """Return the number of each message that was delivered."""
        return {where: fate.number for where, fate in self._fates.items()}

    # -- what the judge asks -----------------------------------------------------------------------

    def unfinished(self) -> str | None:
        """Return what the group must still finish, None if there is nothing."""
        had = set(self._witness.damage.lost)
        for where, fate in self._fates.items():
            if not self._is_over(where, fate):
                told = fate.told
                came = "" if told is None else f", it came to {told.who.name} ({told.count})"
                return f"the share group has not finished {where}{came}"
            had.add(fate.number)
        owed = [
            *self._witness.acknowledged,
            *sorted(self._witness.promised | self._witness.owed),
        ]
        missing = [number for number in owed if number not in had]
        if missing and self.unseen.most() < self._deliveries_max:
            return (
                f"{len(missing)} acknowledged messages did not reach the share group, e.g."
                f" {missing[0]}"
            )
        return None

    def _is_over(self, where: Where, fate: Fate) -> bool:
        told = fate.told
        assert told is not None
        if fate.final is not None or fate.number in self._witness.damage.lost:
            return True
        hold = fate.hold
        held_until = 0 if hold is None else self._locked_until(hold) + 2 * SLACK_MS
        if hold is not None and self.is_alive(hold.who.name) and self.now() < held_until:
            return False
        if fate.maybe or self._witness.damage.passes(where[0].topic, where[1]):
            return True
        return told.count + self.unseen.of(told.who.leader) >= self._deliveries_max

    def unassigned(self, partitions: Mapping[str, int], members: Sequence[str]) -> str | None:
        """Return None if these members fetch each partition; otherwise what is wrong.

        `partitions`: number by topic.
        """
        held = {part for name in members for part in self._assigned.get(name, ())}
        for topic, count in sorted(partitions.items()):
            for number in range(count):
                if TopicPartition(topic, number) not in held:
                    return f"nobody of the share group has {TopicPartition(topic, number)}"
        unknown = sorted(part for part in held if part.partition >= partitions.get(part.topic, 0))
        return f"the share group has {unknown[0]}, which does not exist" if unknown else None
