"""The brokers that a producer avoids because of slow, failed or missing responses.

Every attempt to send reports its duration; a table determines for how long the broker is then not
*available*: the pause of the highest latency bound reached. A failed attempt counts as one of
`failure_latency_ms`. From 5.x on, a broker that failed is also not *reachable* until it responds
again.

Differences between the versions:

| | 4.x | 5.x |
|---|---|---|
| a quick response of an avoided broker | ends the pause | does not |
| no reply | pause | pause; not reachable, if a detector is running |
| an error code | pause | pause; not reachable |
| the broker is not in the route | pause | a quick response |
| no broker is available | the least bad one | any reachable one |

Source: client/latency/MQFaultStrategy.java, LatencyFaultToleranceImpl.java of 4.9.8 and 5.3.3; who
calls `updateFaultItem` how: client/impl/producer/DefaultMQProducerImpl.java `sendDefaultImpl`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from steelyard.types import Random


class Failure(Enum):
    """Reasons why an attempt to send failed."""

    NO_REPLY = "no connection, or no reply in time"
    REFUSED = "the broker answered with an error code"
    NO_ROUTE = "the broker is not in the route"


class FaultTable(NamedTuple):
    """The rules of one version of RocketMQ. Bounds are ascending, each with its pause."""

    latency_bounds_ms: tuple[int, ...]
    pauses_ms: tuple[int, ...]
    failure_latency_ms: int
    pauses_are_kept: bool
    """A pause is only ever prolonged, and a retry starts at a random queue (`resetIndex`)."""


FAULT_TABLES: Mapping[str, FaultTable] = MappingProxyType(
    {
        "4.x": FaultTable(
            (50, 100, 550, 1_000, 2_000, 3_000, 15_000),
            (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
            failure_latency_ms=30_000,
            pauses_are_kept=False,
        ),
        "5.x": FaultTable(
            (50, 100, 550, 1_800, 3_000, 5_000, 15_000),
            (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000),
            failure_latency_ms=10_000,
            pauses_are_kept=True,
        ),
    }
)
"""Tables by the values of `ProducerConfig.latency_faults`."""


def pause_ms(table: FaultTable, latency_ms: int) -> int:
    """Return for how long a broker is avoided after `latency_ms` (computeNotAvailableDuration)."""
    for bound, pause in zip(
        reversed(table.latency_bounds_ms), reversed(table.pauses_ms), strict=True
    ):
        if latency_ms >= bound:
            return pause
    return 0


class _Fault(msgspec.Struct):
    """The state of one broker."""

    latency_ms: int = 0
    available_at: int = 0
    reachable: bool = True


class FaultStrategy:
    """The brokers that were sent to, by name.

    `detecting`: somebody asks those without reply, and tells `returned`.
    """

    def __init__(self, table: FaultTable, rng: Random, *, detecting: bool = False) -> None:
        self.table = table
        self._detecting = detecting
        self._faults: dict[str, _Fault] = {}
        self._turn = rng.randrange(1 << 31)

    def answered(self, broker: str, latency_ms: int, now: int) -> None:
        """Record that the broker stored a message, `latency_ms` after it was sent."""
        self._note(broker, latency_ms, pause_ms(self.table, latency_ms), True, now)

    def failed(self, broker: str, failure: Failure, latency_ms: int, now: int) -> None:
        """Record an attempt that failed after `latency_ms`."""
        if not self.table.pauses_are_kept:
            reachable = True
        elif failure is Failure.NO_ROUTE:
            self.answered(broker, latency_ms, now)
            return
        else:
            reachable = failure is Failure.NO_REPLY and not self._detecting
        pause = pause_ms(self.table, self.table.failure_latency_ms)
        self._note(broker, latency_ms, pause, reachable, now)

    def _note(self, broker: str, latency_ms: int, pause: int, reachable: bool, now: int) -> None:
        fault = self._faults.setdefault(broker, _Fault())
        fault.latency_ms = latency_ms
        fault.reachable = reachable
        available_at = now + pause
        if not self.table.pauses_are_kept or (pause > 0 and available_at > fault.available_at):
            fault.available_at = available_at

    def available(self, broker: str, now: int) -> bool:
        """Return whether the broker is not avoided (any more).

        An unknown one counts as available.
        """
        fault = self._faults.get(broker)
        return fault is None or now >= fault.available_at

    def reachable(self, broker: str) -> bool:
        """Return whether the broker is not known to have failed since its last response."""
        fault = self._faults.get(broker)
        return fault is None or fault.reachable

    def unreachable(self) -> list[str]:
        """Return the brokers that are not reachable, in the order in which they were first met."""
        return [broker for broker, fault in self._faults.items() if not fault.reachable]

    def returned(self, broker: str) -> None:
        """Mark a broker that answered a probe as reachable. Its pause continues."""
        fault = self._faults.get(broker)
        if fault is not None:
            fault.reachable = True

    def forget(self, broker: str) -> None:
        self._faults.pop(broker, None)

    def pick_one_at_least(self, now: int) -> str | None:
        """Return brokers of the better half in turn; None if none is known.

        A broker is better if it is available, responded faster, or is available earlier.
        """
        faults = self._faults
        ranking = sorted(
            faults,
            key=lambda broker: (
                now < faults[broker].available_at,
                faults[broker].latency_ms,
                faults[broker].available_at,
            ),
        )
        if not ranking:
            return None
        self._turn += 1
        return ranking[self._turn % max(1, len(ranking) // 2)]
