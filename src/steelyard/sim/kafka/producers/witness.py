"""What Kafka producers have written, and the rules for those who read committed records.

At every moment:
- a record is read once, where it was written, in the order of its producer; records of a producer
  come before those of the one that has replaced it under its transactional id;
- a record of a transaction is not read before its producer has asked to commit it, and never if the
  answer was that it is aborted;
- a producer that was replaced gets no acknowledgement for what it asks after its successor has the
  answer to InitProducerId;
- a batch is not out of order if those before it were acknowledged;
- a group's offset is the end of a transaction whose commit was asked, and is not below what was
  read of it before; if it is asked for as a stable one, it is not below the end of a transaction
  that was committed.

When everything has healed (`incomplete`):
- readers come to the end of every partition: no transaction is open;
- a transaction that was committed is there whole; one whose outcome its producer does not know is
  there whole or not at all; what an idempotent producer was acknowledged is there;
- the transactions with offsets that are there follow each other without gap or overlap, up to the
  group's offset: what they have read was processed exactly once;
- every producer makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from steelyard.sim.kafka.producers.committed_view import CommittedView
from steelyard.sim.kafka.producers.written import ProducedRecord, ProducedTransaction, Span
from steelyard.sim.world import Violation

LAST_COMMITS = 2
"""How much each producer must achieve after the faults."""


class KafkaTransactionWitness:
    """Observes the producers and the reader of one topic. Raises Violation."""

    def __init__(self) -> None:
        self.is_wanted: Callable[[str], bool] = lambda name: True
        """Whether a producer is to be there in the end."""
        self._written: dict[bytes, ProducedRecord] = {}
        self._acknowledged: set[bytes] = set()
        """Of idempotent producers."""
        self._transactions: list[ProducedTransaction] = []
        self._epochs: dict[str, int] = {}
        """The latest epoch that a producer was given by InitProducerId, by transactional id."""
        self._owed: dict[str, int] | None = None
        """What producers must achieve after the faults; None before."""
        self._names: set[str] = set()
        self._committed: dict[str, int] = {}
        """By group, the end of the last transaction that was committed."""
        self._seen: dict[str, int] = {}
        """By group, the highest offset that was read."""
        self._stable: dict[str, int] = {}
        """By group, the latest offset that was read as a stable one."""
        self.view = CommittedView(self._written)
        """What the reader has read; of its latest run."""
        self.fenced = 0

    # -- producers ---------------------------------------------------------------------------------

    def joined(self, name: str) -> None:
        """Note that a producer starts, perhaps again."""
        self._names.add(name)

    def heal(self) -> None:
        """Note that the faults are over: producers finish what they do, and come to an end."""
        self._owed = dict.fromkeys(sorted(self._names), LAST_COMMITS)

    def wants(self, name: str) -> bool:
        """Return whether a producer is to write more."""
        return self._owed is None or self._owed.get(name, 0) > 0

    def achieved(self, name: str) -> None:
        """Note that a producer has committed something, or been acknowledged."""
        if self._owed is not None and self._owed.get(name, 0):
            self._owed[name] -= 1

    def initialized(self, transactional_id: str, epoch: int) -> None:
        """Note that InitProducerId was answered."""
        self._epochs[transactional_id] = max(epoch, self._epochs.get(transactional_id, -1))

    def is_replaced(self, transactional_id: str, epoch: int) -> bool:
        """Return whether a later producer has the id; to be called before a request is sent."""
        return epoch < self._epochs.get(transactional_id, -1)

    def writes(
        self,
        partition: int,
        source: str,
        epoch: int,
        transaction: ProducedTransaction | None = None,
    ) -> bytes:
        """Return the value of a new record.

        `source`: the transactional id, or an idempotent producer's run.
        """
        number = len(self._written)
        value = f"{source}/{epoch}/{number}".encode()
        self._written[value] = ProducedRecord(partition, source, (epoch, number), transaction)
        if transaction is not None:
            transaction.values.append(value)
        return value

    def acknowledged(self, values: Iterable[bytes], *, was_replaced: bool = False) -> None:
        """Note that a batch was acknowledged."""
        for value in values:
            written = self._written[value]
            if was_replaced:
                raise Violation(f"{value!r} of a producer that was replaced is acknowledged")
            if written.transaction is None:
                self._acknowledged.add(value)

    def out_of_order(self, source: str, partition: int, sequence: int) -> None:
        """Raise Violation: all batches before this one were acknowledged."""
        raise Violation(
            f"sequence {sequence} of {source} in partition {partition} is called out of order"
        )

    def reads_anew(self) -> None:
        """Note that a reader begins at the first offsets; it must read what was read before."""
        self.view = CommittedView(self._written, self.view)

    # -- transactions ------------------------------------------------------------------------------

    def begins(
        self, name: str, transactional_id: str, epoch: int, span: Span | None
    ) -> ProducedTransaction:
        """Return a new transaction."""
        transaction = ProducedTransaction(name, transactional_id, epoch, span)
        self._transactions.append(transaction)
        return transaction

    def ended(
        self, transaction: ProducedTransaction, *, commit: bool, was_replaced: bool = False
    ) -> None:
        """Note that EndTxn was answered without error."""
        if was_replaced:
            raise Violation(
                f"a producer of {transaction.transactional_id} that was replaced in epoch"
                f" {transaction.epoch} ends its transaction"
            )
        transaction.outcome = commit
        if not commit:
            seen = [value for value in transaction.values if value in self.view.places]
            if seen:
                raise Violation(f"{seen[0]!r} was read, and its transaction is aborted")
            return
        self.achieved(transaction.name)
        if transaction.span is not None:
            group, end = transaction.transactional_id, transaction.span[1]
            self._committed[group] = max(end, self._committed.get(group, 0))

    # -- offsets -----------------------------------------------------------------------------------

    def floor(self, group: str, *, stable: bool) -> int:
        """Return the lowest offset that may be answered to who asks now."""
        seen = self._seen.get(group, 0)
        return max(seen, self._committed.get(group, 0)) if stable else seen

    def fetched(self, group: str, offset: int, floor: int, *, stable: bool) -> None:
        """Check a group's offset, 0 if it has none. `floor`: when it was asked for."""
        kind = "stable offset" if stable else "offset"
        ends = {
            each.span[1]
            for each in self._transactions
            if each.transactional_id == group and each.span and each.may_be_read
        }
        if offset and offset not in ends:
            raise Violation(f"the {kind} of {group!r} is {offset}: no such commit was asked for")
        if offset < floor:
            raise Violation(f"the {kind} of {group!r} is {offset}, it was {floor}")
        self._seen[group] = max(offset, self._seen.get(group, 0))
        if stable:
            self._stable[group] = offset

    # -- the end -----------------------------------------------------------------------------------

    def incomplete(self, partitions: int) -> str | None:
        """Return None if all is there that must be; otherwise what is wrong.

        `partitions`: of the topic.
        """
        return (
            self.view.not_read(partitions)
            or self._not_going_on()
            or self._not_whole()
            or self._lost()
            or self._not_processed_once()
        )

    def _not_going_on(self) -> str | None:
        for name, owed in (self._owed or {}).items():
            if owed and self.is_wanted(name):
                return f"{name} has written nothing since the faults"
        return None

    def _not_whole(self) -> str | None:
        for each in self._transactions:
            there = [value for value in each.values if value in self.view.places]
            if len(there) == len(each.values) or not (there or each.outcome):
                continue
            missing = next(value for value in each.values if value not in self.view.places)
            outcome = "was committed" if each.outcome else "is there in part"
            return f"a transaction of {each.transactional_id} {outcome}, {missing!r} is missing"
        return None

    def _lost(self) -> str | None:
        for value in self._written:
            if value in self._acknowledged and value not in self.view.places:
                return f"{value!r} was acknowledged, and is missing"
        return None

    def _not_processed_once(self) -> str | None:
        spans: dict[str, list[Span]] = {each.transactional_id: [] for each in self._transactions}
        for each in self._transactions:
            is_there = any(value in self.view.places for value in each.values)
            if each.span is not None and is_there:
                spans[each.transactional_id].append(each.span)
        for group, found in spans.items():
            end = 0
            for first, upto in sorted(found):
                if first != end:
                    return f"{group} has processed up to {end}, and then from {first} on"
                end = upto
            offset = self._stable.get(group, 0)
            if offset != end:
                return f"{group} has processed up to {end}, its group's offset is {offset}"
        return None

    def counts(self) -> dict[str, int]:
        """Return exact figures for people."""
        outcomes = [each.outcome for each in self._transactions]
        return {
            "kafka_records_acknowledged": len(self._acknowledged),
            "kafka_transactions_committed": outcomes.count(True),
            "kafka_transactions_aborted": outcomes.count(False),
            "kafka_transactions_unknown": outcomes.count(None),
            "kafka_fenced": self.fenced,
        }
