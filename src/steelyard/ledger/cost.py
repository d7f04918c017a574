"""The cost of a rebalance, computed from the ledger: the definition of pause, duplicates and spike.

The input is the records of all brokers of a cluster, in any order; the output is one row per queue
that moved or stood still (`Handoff`) and one per rebalance (`Rebalance`). Both come of the states
of groups (`ledger.group`), which the pipeline keeps from one batch of records to the next
(`ledger.stream`). This holds for clustering groups of any client. (A broadcasting group has no
owners; its rows would mean nothing.)

Definitions
- The **owner** of a queue is the member that the broker last delivered its messages to. A
  **hand-off** is a delivery to a different member than before. The first owner is not a hand-off.
  Clients that the ledger never records as members own nothing: a client that pulls before its first
  heartbeat, or without one, is known to brokers by its address only.
- **Pause** of a queue: from the last delivery to the old owner to the first delivery to the new
  one, while messages waited. Nothing waited before the first message of the new owner was `stored`,
  so pause = max(0, first at the new owner - max(last at the old, stored)).
- The last delivery to the old owner is that of the last message that it finished. A member fetches
  ahead, and drops what it has not finished when it gives up a queue: if its last commit is where
  the new owner begins, deliveries of what follows do not count, and it had not finished the message
  before that when it committed less. Otherwise nobody knows what it finished, for example of a
  member that died or whose broker was away, and all deliveries count.
- A Fetch of Kafka's clients does not name their group. A broker that is not the coordinator learns
  from it who reads its partitions, and may not know it yet at the first Fetch after a rebalance. If
  a member commits a higher offset of such a partition than the group had, and nobody was recorded
  to read it since the rebalance ended, the member was delivered what lies between: at the end of
  the rebalance at the earliest, which counts. Its pause is at least that if an earlier member had
  been delivered some of it; otherwise nobody knows since when it waited, and the pause is 0.
- Members that report when they passed messages to their listeners have a second pause, which is
  what the application saw. For others it may be shorter or longer than the first, because a message
  comes to the application later than to the member.
- A queue **stalled** in a rebalance if it kept its owner, but its messages waited for `STALLED_MS`
  or more between two deliveries, and longer than in the `BEFORE_MS` before the rebalance. Its pause
  is the longest time that they waited, if that began before all members had their shares.
- A rebalance takes three parts. **Detect**: until a broker or the coordinator recorded its first
  event; 0 unless somebody died silently. **Rebalance**: from then until all members had their
  shares, which Kafka's coordinator records; in RocketMQ groups, until the new owner of each moved
  queue had asked for its messages. **First fetch**: the longest part of a queue's pause after that.
- **Redelivered**: deliveries of an offset that had been delivered to any member of the group
  before; so redelivered = deliveries - distinct offsets. Ranges of offsets are compared; if a tag
  filter left gaps in a range, its number of messages is the upper bound.
- **Reprocessed**: offsets that an application was handed again. A member fetches ahead, and drops
  what it has not handed over when it gives up a queue: that is redelivered, but not reprocessed.
  What an application was handed is known exactly if its member reports it as it gives up the queue
  (`Committed.handed`). Otherwise it is at least what the member committed later, and at most what
  it was delivered; so there are two bounds. A broker that is killed loses the records of its last
  second: what it delivers afterwards and may have delivered then is in the upper bound.
- **Backlog** of the group: the sum over its queues of the messages not delivered to it, from the
  brokers' records (`Backlog`), linear between two of them and constant after the last. If it rises
  between two records, and a rebalance starts in between, then it rises after that.
- **Spike**: peak backlog of the group after a rebalance over the median backlog before it. Before:
  once a second in the `BEFORE_MS` up to its start; after: until the next rebalance, at most
  `SETTLE_MS`. A median below `BACKLOG_FLOOR` counts as `BACKLOG_FLOOR`. None if the backlog before
  or after is unknown.
- **Drain**: from the start of the rebalance until the backlog, after its peak, has returned to what
  is usual; 0 if it never rose above that, None if it did not drain before the next rebalance. Usual
  is at most the highest backlog of the `BEFORE_MS` before the start, and as much above that as the
  backlog varied in that time: else every fluctuation would have to drain.

What is one rebalance
- It starts with an event: a member joins or leaves, members change their topics, a broker that the
  group reads from starts, stops or dies (starts again without having recorded a stop).
- It begins when that happened: for a member that was silent until its time ran out, with its last
  sign of life, which is its last request, delivery or commit; for a broker that died, with its last
  record. So the outage is not part of "before". If it began while the rebalance before it was still
  going on, deliveries count to that one until the event was recorded.
- Every broker reports the same member, so an event that does not change the set of members is
  ignored. Events within `MERGE_MS` of a rebalance's start belong to it.
- In a Kafka group the coordinator also records rebalances without a change of members: for example,
  its leader saw topics or partitions change (`leader`, `topics`). The second round of a cooperative
  rebalance belongs to the first.
- A hand-off with no event since `SETTLE_MS` before its old owner's last delivery starts a rebalance
  of its own, with the trigger `routes`: no broker saw the cause of the move.
- A rebalance lasts until the next one of the group starts, at most `LASTS_MS`: duplicates and
  backlog in that time are its cost. A pause belongs to the rebalance that started while the queue
  paused: if there are several, to the one in which its old owner left, else to the first; if there
  is none, to the last one before. If that was over for `FINAL_MS` when the pause ended, it belongs
  to the one after it.

Times come from the brokers' clocks, which are assumed to agree within `MERGE_MS`. A broker collects
deliveries for a second before it writes them; those of its last second are lost when it is killed.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.ledger.cluster import LedgerGroups
from steelyard.ledger.events import Record
from steelyard.ledger.order import in_order
from steelyard.ledger.tables import Costs, Handoff, Rebalance


def handoffs(records: Iterable[Record]) -> list[Handoff]:
    """Return a row per moved or stalled queue of all groups, sorted by group, time and queue."""
    return costs(records).handoffs


def rebalances(records: Iterable[Record]) -> list[Rebalance]:
    """Return a row per rebalance of all groups, sorted by group and time."""
    return costs(records).rebalances


def costs(records: Iterable[Record]) -> Costs:
    """Compute both tables from the records of all brokers of one cluster, given in any order."""
    cluster = LedgerGroups()
    rows = [each.row for each in (*cluster.add(in_order(records)), *cluster.finish())]
    moved = [row for row in rows if isinstance(row, Handoff)]
    moved.sort(key=lambda row: (row.group, row.first_delivery_ms, row.broker, row.topic, row.queue))
    paid = [row for row in rows if isinstance(row, Rebalance)]
    paid.sort(key=lambda row: row.group)
    return Costs(moved, paid)
