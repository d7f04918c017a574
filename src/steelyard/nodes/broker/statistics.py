"""What the broker counted, and how fast: for runtime info and consume statistics.

Source: store/StoreStatsService.java (the keys), which prints rates over 10 s, 1 min and 10 min.
"""

from __future__ import annotations

from collections import deque

SAMPLES_MAX = 61
WINDOWS_MS = (10_000, 60_000, 600_000)


class Statistics:
    """Counters that handlers raise, and samples of them taken on a timer."""

    def __init__(self, now: int) -> None:
        self.started_at = now
        self.put_messages = 0
        self.put_bytes = 0
        self.got_messages = 0
        self.found = 0
        self.missed = 0
        self._samples: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=SAMPLES_MAX)
        self.sample(now)

    def _counts(self) -> tuple[int, ...]:
        return (self.put_messages, self.got_messages, self.found, self.missed)

    def sample(self, now: int) -> None:
        """Note the counters; called every few seconds."""
        self._samples.append((now, self._counts()))

    def rates(self, now: int) -> dict[str, str]:
        """Per second over the three windows, as RocketMQ prints them: `10s 1min 10min`."""
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
