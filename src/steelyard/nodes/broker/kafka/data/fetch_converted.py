"""RocketMQ's messages as batches, converted once for all who fetch them soon after each other."""

from __future__ import annotations

from collections import OrderedDict

from steelyard.nodes.broker.conversion.to_kafka import RECORD_EFFORT, Layouts, to_batch
from steelyard.nodes.broker.turns import AT_ONCE
from steelyard.store.log import Log
from steelyard.store.reads import RunExtent
from steelyard.types import Effort

KEPT_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of batches that are kept."""


class Converted:
    """Converts runs of messages, and keeps the batches for a while.

    Several groups of consumers read a topic at about the same place, its end.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], tuple[bytes, int]] = OrderedDict()
        """By log and its swaps of segments, position and size of the run, and the limit.

        Those used longest ago come first."""
        self._kept_bytes = 0
        self._layouts = Layouts()

    def read(
        self, log: Log, extent: RunExtent, bytes_max: int, effort: Effort
    ) -> tuple[bytes, int] | None:
        """Return the messages of a run as one batch, and the offset after its last.

        None, and no effort is left, if the run takes more than what is left, and that is no more
        than a request may take at once: what was converted of it would be thrown away. The batch is
        empty if the first message is now known to be damaged and was given up. Raises CorruptError,
        StorageError.
        """
        key = (log.log_id, log.swaps, extent.position, extent.size, bytes_max)
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        exceeds = (extent.next_offset - extent.offset) * RECORD_EFFORT > effort.left
        if exceeds and effort.left <= AT_ONCE:
            effort.left = 0
            return None
        if exceeds:  # do not read what will not be converted
            extent = log.find_run(
                extent.offset, bytes_max, extent.offset + effort.left // RECORD_EFFORT
            )
        run = extent.read()
        if not run.data:
            return b"", run.next_offset
        found = to_batch(run.data, bytes_max, effort, self._layouts)
        self._kept[key] = found
        self._kept_bytes += len(found[0])
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, (batch, _) = self._kept.popitem(last=False)
            self._kept_bytes -= len(batch)
        return found

    def check(self) -> None:
        assert self._kept_bytes == sum(len(batch) for batch, _ in self._kept.values())
        assert self._kept_bytes <= KEPT_BYTES_MAX
