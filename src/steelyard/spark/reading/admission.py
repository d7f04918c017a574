"""How far the next micro-batch of a stream reads.

- A queue that is new appears in the offsets at its beginning first, and is read by the batch after.
  So every range begins at an offset that is in the checkpoint, and a batch that is repeated after a
  crash reads the same messages, whatever has been deleted meanwhile.
- A queue whose end is not known (its broker is away) stays where it is.
- `offsets_min` delays a batch, but not for longer than `delay_max_ms` after the last one
  (minOffsetsPerTrigger and maxTriggerDelay of Spark's Kafka source); the first is not delayed.
"""

from __future__ import annotations

from steelyard.spark.offsets import Offsets, QueueName, backlogs, limited


class Admission:
    """Decides about each batch. `now` is in milliseconds of any clock that goes forward."""

    def __init__(self, offsets_min: int | None, delay_max_ms: int) -> None:
        self._offsets_min = offsets_min or 0
        self._delay_max_ms = delay_max_ms
        self._last: int | None = None

    def end(
        self,
        start: Offsets,
        latest: Offsets,
        beginnings: Offsets,
        *,
        most: int,
        now: int,
        may_wait: bool = True,
    ) -> dict[QueueName, int]:
        """Return the end of a batch that begins at `start`; equal to `start`: there is none.

        `beginnings`: the first offsets of queues that are not in `start`. `most`: the limit of the
        batch. `may_wait`: whether `offsets_min` counts.
        """
        end = {queue: latest.get(queue, offset) for queue, offset in start.items()}
        available = sum(backlogs(start, end).values())
        is_few = may_wait and available < self._offsets_min
        if is_few and self._last is not None and now - self._last < self._delay_max_ms:
            return dict(start)
        found = {**limited(start, end, most), **beginnings}
        if found != start:
            self._last = now
        return found
