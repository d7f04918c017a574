"""The broker's counters and rates, for its runtime information and consumer statistics.

Source: store/StoreStatsService.java (the keys), which prints rates over 10 s, 1 min and 10 min.
"""

from __future__ import annotations

from collections import deque

from steelyard.wire.figures import ProcessFigures
from steelyard.wire.remoting.bodies import BrokerStatsItem

SAMPLES_MAX = 61
WINDOWS_MS = (10_000, 60_000, 600_000)

METERS_MAX = 10_000
"""Maximum of (topic, group) pairs counted; beyond it the oldest are forgotten."""

_RINGS = ((10_000, 7), (600_000, 7), (3_600_000, 25))
"""How often a meter is read, in ms, and how many readings are kept: a minute, an hour, a day.

Source: StatsItem.java.
"""


class Meter:
    """A counter that keeps some of its readings, so that it knows spans of up to a day."""

    def __init__(self, now: int) -> None:
        self.total = 0
        self._rings = [deque([(now, 0)], kept) for _, kept in _RINGS]

    def read(self, now: int) -> None:
        """Keep a reading if one is due; called every few seconds."""
        for (interval_ms, _), ring in zip(_RINGS, self._rings, strict=True):
            if now - ring[-1][0] >= interval_ms:
                ring.append((now, self.total))

    def of_last(self, span_ms: int, now: int) -> BrokerStatsItem:
        """Return what was counted in the last `span_ms`, or since the beginning if later."""
        readings = sorted(reading for ring in self._rings for reading in ring)
        at, total = readings[0]
        for reading_at, reading in readings:
            if reading_at <= now - span_ms:
                at, total = reading_at, reading
        elapsed = max(now - at, 1)
        return BrokerStatsItem(self.total - total, (self.total - total) * 1000 / elapsed, 0.0)


class BrokerStatistics:
    """Counters that handlers increase, and samples of them taken on a timer."""

    def __init__(self, now: int) -> None:
        self.started_at = now
        self.put_messages = 0
        self.put_bytes = 0
        self.got_messages = 0
        self.found = 0
        self.missed = 0
        self.remoting_requests: dict[int, int] = {}
        """Requests of RocketMQ's clients that came, by request code; -1 for codes not served."""
        self.kafka_requests: dict[int, int] = {}
        """Requests of Kafka's clients that came, by API key."""
        self.kafka_logins: dict[tuple[str, str], int] = {}
        """Logins of Kafka's clients, by mechanism and outcome: accepted or refused."""
        self.remoting_refused: dict[int, int] = {}
        """Requests that were refused, by response code."""
        self.kafka_refused: dict[int, int] = {}
        """Batches of Kafka's producers that were refused, by error code."""
        self.compactions = 0
        """Passes of compaction since the start."""
        self.compacted_bytes = 0
        """Bytes of the segments that these replaced."""
        self.compacted_bytes_left = 0
        """Bytes of what replaced them."""
        self.process: ProcessFigures | None = None
        """What the driver has measured last."""
        self._meters: dict[tuple[str, str], Meter] = {}
        self._samples: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=SAMPLES_MAX)
        self.sample(now)

    def _counts(self) -> tuple[int, ...]:
        return (self.put_messages, self.got_messages, self.found, self.missed)

    def got(self, group: str, topic: str, count: int, now: int) -> None:
        """Count the messages that a group's pull was answered with."""
        self.got_messages += count
        meter = self._meters.get((topic, group))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                del self._meters[next(iter(self._meters))]
            meter = self._meters[topic, group] = Meter(now)
        meter.total += count

    def group_get(self, group: str, topic: str, now: int, span_ms: int) -> BrokerStatsItem:
        """Return the messages of the topic given to the group in the last `span_ms`.

        At most a day.
        """
        meter = self._meters.get((topic, group))
        return BrokerStatsItem() if meter is None else meter.of_last(span_ms, now)

    def sample(self, now: int) -> None:
        """Keep the current counters; called every few seconds."""
        self._samples.append((now, self._counts()))
        for meter in self._meters.values():
            meter.read(now)

    def rates(self, now: int) -> dict[str, str]:
        """Return rates per second as RocketMQ prints them: of 10 s, 1 min and 10 min in a row."""
        names = ("putTps", "getTransferredTps", "getFoundTps", "getMissTps")
        current = self._counts()
        texts: dict[str, list[str]] = {name: [] for name in names}
        for window in WINDOWS_MS:
            at, counts = self._samples[0]
            for sampled_at, sampled in self._samples:
                if sampled_at <= now - window:
                    at, counts = sampled_at, sampled
            elapsed = max(now - at, 1) / 1000
            for name, new, old in zip(names, current, counts, strict=True):
                texts[name].append(str(round((new - old) / elapsed, 3)))
        joined = {name: " ".join(values) for name, values in texts.items()}
        joined["getTransferedTps"] = joined["getTransferredTps"]  # sic, the key of 4.x
        joined["getTotalTps"] = joined["getFoundTps"]
        return joined
