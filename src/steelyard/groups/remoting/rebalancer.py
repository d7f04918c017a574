"""The rebalance of a RocketMQ member, which every member computes: there is no leader.

Each member asks a broker for the list of members, sorts members and queues, and takes its own share
of the plan, which all members compute alike. Views are best effort: two members may see different
lists for a while, so a run is repeated periodically even if nothing seems to have changed.

A run begins

- after `wake`: at the start, on a notification (40), on a change of routes, when a broker returned.
  The first run begins at once. Later ones begin at least GAP_MS after the one before. This gap
  doubles after each run, up to `retry_ms`, and is reset once no run was requested for QUIET_MS
  after it could have begun. So a single change is acted on at once, and when many clients start
  together each of them asks its brokers a few times, then once a second (issues 9115 and client-cpp
  137; RocketMQ 5 has a minimum of a second from the first run on, 4 has none). A wake-up during a
  run counts for the next one.
- periodically: `interval_ms` after a balanced run, `retry_ms` after any other. RocketMQ waits for
  the whole interval even if a member list or a route was missing.

With quotas (`even`) a run decides only how many queues of all topics together a member is to hold.
The members settle which ones by the brokers' locks, because none knows what the others hold. The
group's retry topic is excluded: it is allocated like any topic.
Source: client/impl/consumer/RebalanceService.java, RebalanceImpl.java (5.3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from steelyard.allocate.plan import Claim, Strategy
from steelyard.types import MessageQueue
from steelyard.wire.remoting.flags import java_string_key

GAP_MS = 20
"""Time between the starts of the first two runs."""

QUIET_MS = 1_000
"""Time without a run after which the gap between runs is small again."""


Quotas = Callable[[int, int], tuple[int, ...]]
"""Maps the numbers of members and queues to the number of queues of each member, in order."""


class View(msgspec.Struct, frozen=True):
    """The result of one run's queries for one topic.

    `members`, `queues`: in any order; None if unknown. `optional`: a topic that need not exist,
    such as the group's retry topic before its first heartbeat.
    """

    topic: str
    members: tuple[str, ...] | None
    queues: tuple[MessageQueue, ...] | None
    optional: bool = False


class Decision(msgspec.Struct, frozen=True):
    """What to hold from now on, sorted, and when to run next.

    `absent`: topics whose member list lacks this member. With quotas: hold also `quota` queues of
    `pool`; None if the quota is unknown.
    """

    target: tuple[MessageQueue, ...]
    balanced: bool
    absent: tuple[str, ...]
    next_at: int
    quota: int | None = None
    pool: tuple[MessageQueue, ...] = ()
    faults: tuple[str, ...] = ()
    """The strategy's exceptions by topic; these topics' queues stay unchanged."""


class Rebalancer:
    """Decides when to run, and evaluates runs. Times are ms since the epoch.

    `quotas`: for topics that are not optional, instead of the strategy.
    """

    def __init__(
        self,
        client_id: str,
        strategy: Strategy,
        *,
        interval_ms: int,
        retry_ms: int,
        quotas: Quotas | None = None,
    ) -> None:
        self._client_id = client_id
        self._strategy = strategy
        self._quotas = quotas
        self._interval_ms = interval_ms
        self._retry_ms = retry_ms
        self._began_at: int | None = None
        self._gap_ms = GAP_MS
        self._next_at: int | None = None
        self._running = False
        self._woken = False

    @property
    def running(self) -> bool:
        return self._running

    def wake(self, now: int) -> int | None:
        """Request a run. Returns when to `begin`; None during a run."""
        if self._running:
            self._woken = True
            return None
        at = self._earliest(now)
        if self._next_at is None or at < self._next_at:
            self._next_at = at
        return self._next_at

    def begin(self, now: int) -> None:
        """Start a run: the caller gathers a `View` of every topic and calls `decide`."""
        assert not self._running
        self._running = True
        self._woken = False
        if self._began_at is None or now - self._earliest(0) > QUIET_MS:
            self._gap_ms = min(GAP_MS, self._retry_ms)
        else:
            self._gap_ms = min(2 * self._gap_ms, self._retry_ms)
        self._began_at = now
        self._next_at = None

    def decide(self, views: Sequence[View], held: Collection[MessageQueue], now: int) -> Decision:
        """End the run.

        A topic without a view stays unchanged; one without this member is given up.
        """
        assert self._running
        target: list[MessageQueue] = []
        pool: list[MessageQueue] = []
        everybody: set[str] = set()
        absent: list[str] = []
        faults: list[str] = []
        balanced = True
        for view in views:
            if view.members is None or view.queues is None:
                target += [queue for queue in held if queue.topic == view.topic]
                balanced = balanced and view.optional and view.queues is None
                continue
            if self._quotas is None or view.optional:
                try:
                    target += self.share(view.members, view.queues)
                except Exception as error:  # possibly the application's own code
                    faults.append(f"{view.topic}: {error!r}")
                    target += [queue for queue in held if queue.topic == view.topic]
                    balanced = False
            else:
                pool += view.queues
                everybody.update(view.members)
            if self._client_id not in view.members:
                absent.append(view.topic)
                balanced = False
        self._running = False
        if self._woken:
            self._next_at = self._earliest(now)
        elif not balanced:
            self._next_at = max(now, self._began() + self._retry_ms)
        else:
            self._next_at = now + self._interval_ms
        quota = self._quota(everybody, len(pool)) if everybody else None
        return Decision(
            target=tuple(sorted(target)),
            balanced=balanced,
            absent=tuple(absent),
            next_at=self._next_at,
            quota=quota,
            pool=tuple(pool),
            faults=tuple(faults),
        )

    def _quota(self, members: Collection[str], queue_count: int) -> int:
        """Return this member's share of the pool, in queues."""
        assert self._quotas is not None
        ranked = sorted(members, key=java_string_key)
        if self._client_id not in ranked:
            return 0
        return self._quotas(len(ranked), queue_count)[ranked.index(self._client_id)]

    def share(
        self, members: Collection[str], queues: Collection[MessageQueue]
    ) -> tuple[MessageQueue, ...]:
        """Return this member's queues of one topic, in Java's order, on which all members agree."""
        claims: list[Claim[MessageQueue]] = [
            Claim(member) for member in sorted(members, key=java_string_key)
        ]
        ordered = sorted(queues, key=_queue_order)
        return self._strategy(claims, ordered).share(self._client_id)

    def _earliest(self, now: int) -> int:
        return now if self._began_at is None else max(now, self._began_at + self._gap_ms)

    def _began(self) -> int:
        assert self._began_at is not None
        return self._began_at

    def check(self) -> None:
        """Assert that a run is either in progress or planned, once the first was requested."""
        if self._running:
            assert self._next_at is None
            assert self._began_at is not None
        else:
            assert self._next_at is not None or self._began_at is None
            assert not self._woken or self._next_at is not None


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Return the sort key of `MessageQueue.compareTo`."""
    return java_string_key(queue.topic), java_string_key(queue.broker_name), queue.queue_id
