"""Statistics of a consumer per topic: rates and mean times of pulls and consumption.

Kept in steps of ten seconds, for an hour; rates cover the last minute including the current step.
The group's retry topic counts separately, as everywhere in RocketMQ.
Source: client/stat/ConsumerStatsManager.java, common/stats/StatsItem.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

STEP_MS = 10_000
MINUTE_STEPS = 6
HOUR_STEPS = 360


class TopicStatistics(msgspec.Struct, frozen=True):
    """The statistics of one topic.

    Times are means in ms: of a pull that returned messages, of a call of the listener.
    """

    pull_ms: float = 0.0
    pulled_per_second: float = 0.0
    consume_ms: float = 0.0
    """Over the last minute, or over the last hour if nothing was consumed in that minute."""
    consumed_per_second: float = 0.0
    failed_per_second: float = 0.0
    failed_in_hour: int = 0


class _Step(msgspec.Struct, gc=False):
    """Sums of one step; `number` counts steps since the epoch."""

    number: int
    pulls: int = 0
    pull_ms: int = 0
    pulled: int = 0
    calls: int = 0
    call_ms: int = 0
    consumed: int = 0
    failed: int = 0


class ConsumeStatistics:
    """See the module's text.

    Fed with what happened; `now` is ms since the epoch and never goes back.
    """

    def __init__(self) -> None:
        self._began = 0
        self._steps: dict[str, deque[_Step]] = {}

    def begin(self, now: int) -> None:
        """Start counting: rates are relative to this moment until a whole minute has passed."""
        self._began = now

    def pulled(self, topic: str, took_ms: int, messages: int, now: int) -> None:
        """Record a pull that returned messages."""
        step = self._step(topic, now)
        step.pulls += 1
        step.pull_ms += took_ms
        step.pulled += messages

    def consumed(self, topic: str, took_ms: int, consumed: int, failed: int, now: int) -> None:
        """Record a call of the listener, and how many messages it consumed and did not."""
        step = self._step(topic, now)
        step.calls += 1
        step.call_ms += took_ms
        step.consumed += consumed
        step.failed += failed

    def _step(self, topic: str, now: int) -> _Step:
        """Return the current step."""
        number = now // STEP_MS
        steps = self._steps.get(topic)
        if steps is None:
            steps = self._steps[topic] = deque(maxlen=HOUR_STEPS)
        elif steps[-1].number == number:
            return steps[-1]
        steps.append(_Step(number))
        return steps[-1]

    def of(self, topic: str, now: int) -> TopicStatistics:
        """Return the statistics of a topic; zeros if there are none."""
        number = now // STEP_MS
        hour = [s for s in self._steps.get(topic, ()) if s.number > number - HOUR_STEPS]
        minute = [s for s in hour if s.number > number - MINUTE_STEPS]
        first_ms = max((number - MINUTE_STEPS + 1) * STEP_MS, self._began)
        seconds = max(now - first_ms, 1_000) / 1_000
        return TopicStatistics(
            pull_ms=_mean((s.pull_ms, s.pulls) for s in minute),
            pulled_per_second=sum(s.pulled for s in minute) / seconds,
            consume_ms=_mean((s.call_ms, s.calls) for s in minute)
            or _mean((s.call_ms, s.calls) for s in hour),
            consumed_per_second=sum(s.consumed for s in minute) / seconds,
            failed_per_second=sum(s.failed for s in minute) / seconds,
            failed_in_hour=sum(s.failed for s in hour),
        )


def _mean(parts: Iterable[tuple[int, int]]) -> float:
    """Return sum over count; 0 if nothing was counted."""
    total = count = 0
    for part_total, part_count in parts:
        total += part_total
        count += part_count
    return total / count if count else 0.0
