"""Delayed messages: 18 levels from one second to two hours, each a queue of SCHEDULE_TOPIC_XXXX.

A delayed message is stored there with its real topic and queue in properties. Within a level,
messages are due in the order they were stored, so one timer per level suffices. A message that is
due is written to its real queue. The table `schedule` records how far each level has come, once the
disk has what was delivered (with flush=async: after each batch): a crash before that delivers it
again. Retention keeps what it may deliver.

If the clock was set back before a restart, messages that seem to be stored in the future count as
stored at the restart: else they would hold up all of their level. (RocketMQ delivers them at once,
however little the clock was ahead: `correctDeliverTimestamp`.)
Source: store/schedule/ScheduleMessageService.java; levels: MessageStoreConfig.messageDelayLevel.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.errors import CorruptError, StorageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.releasing import Releasing
from steelyard.nodes.broker.topics import SCHEDULE_TOPIC
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.store.log import Log
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.names import DELAY_LEVEL_MAX

SCHEDULE_TIMER = "schedule"
"""First part of the timers' keys; the second is the level."""

SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delays of level 1, 2, and so on."""

BATCH_MAX = 200
"""Maximum messages delivered per event."""

DISK_RETRY_MS = 1_000


def delay_level(properties: Mapping[str, str]) -> int:
    """Return the level that a message's property DELAY requests, 0 for none."""
    text = properties.get(props.DELAY, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


class Schedule:
    """The delayed messages; see the module docstring. Levels count from 1."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._table = parts.store.table("schedule")
        self._releasing = Releasing(parts.topics, parts.writer)
        self._durability = parts.durability
        self._faults = parts.faults
        self._offsets = {level: int(self._table.get(str(level)) or b"0") for level in _LEVELS}
        self._unrecorded: dict[tuple[int, int], int] = {}
        """By mark of the disk and level: how far it has come, which the table does not say yet."""
        self._armed: set[int] = set()
        self._started_at = 0
        self._ends = dict.fromkeys(_LEVELS, 0)
        """By level: its end at the start."""

    def start(self, now: int, effects: list[Effect]) -> None:
        """Set the timers of all levels that hold messages. Raises StorageError."""
        self._started_at = now
        for level in _LEVELS:
            log = self._store.log(SCHEDULE_TOPIC, level - 1)
            self._ends[level] = end = 0 if log is None else log.max_offset
            if self._offsets[level] > end:
                # A power failure took delivered messages; new ones get their offsets.
                self._table.put(str(level), b"%d" % end)
                self._offsets[level] = end
            self.arm(level, now, effects)

    def divert(
        self, topic: str, queue_id: int, level: int, properties: dict[str, str]
    ) -> tuple[str, int, dict[str, str]]:
        """Return where to store a delayed message, and its properties; call `arm` afterwards."""
        level = min(level, DELAY_LEVEL_MAX)
        place = {props.REAL_TOPIC: topic, props.REAL_QID: str(queue_id), props.DELAY: str(level)}
        return SCHEDULE_TOPIC, level - 1, properties | place

    def arm(self, level: int, now: int, effects: list[Effect]) -> None:
        """Ensure that the level's timer is set if it holds messages."""
        if level in self._armed:
            return
        log = self._store.log(SCHEDULE_TOPIC, level - 1)
        if log is None:
            return
        self._pin(level)
        offset = max(self._offsets[level], log.min_offset)
        if offset < log.max_offset:
            try:
                due = self._due_at(log, offset, level)
            except StorageError:  # it does not concern who has just stored a message
                due = now + DISK_RETRY_MS
            self._armed.add(level)
            effects.append(SetTimer((SCHEDULE_TIMER, level), max(due, now)))

    def due(self, level: int, now: int, effects: list[Effect]) -> None:
        """Deliver the messages of a level that are due."""
        self._armed.discard(level)
        log = self._store.log(SCHEDULE_TOPIC, level - 1)
        assert log is not None
        offset = max(self._offsets[level], log.min_offset)
        stop = min(log.max_offset, offset + BATCH_MAX)
        try:
            while offset < stop and self._due_at(log, offset, level) <= now:
                entry = _read(log, offset)
                if entry is not None:
                    self._deliver(entry, now, effects)
                offset += 1
            self._unrecorded[self._durability.mark(), level] = offset
            self._record()
        except StorageError as error:
            self._faults.tell(f"delayed messages of level {level} wait: {error}", now, effects)
            self._offsets[level] = offset
            self._armed.add(level)
            effects.append(SetTimer((SCHEDULE_TIMER, level), now + DISK_RETRY_MS))
            return
        self._offsets[level] = offset
        self.arm(level, now, effects)

    def _due_at(self, log: Log, offset: int, level: int) -> int:
        """Return when a message of a level is due. Raises StorageError."""
        stored_at = log.stored_at(offset)
        if offset < self._ends[level]:
            stored_at = min(stored_at, self._started_at)
        return stored_at + SECONDS[level - 1] * 1000

    def _record(self) -> None:
        """Record how far the levels have come with what the disk has. Raises StorageError."""
        ready = [key for key in self._unrecorded if self._durability.has(key[0])]
        offsets = {str(level): b"%d" % self._unrecorded[mark, level] for mark, level in ready}
        self._table.put_many(offsets.items())
        for key in ready:
            del self._unrecorded[key]
            self._pin(key[1])

    def _pin(self, level: int) -> None:
        """Let retention delete the messages of a level that a restart would not deliver again."""
        log = self._store.log(SCHEDULE_TOPIC, level - 1)
        if log is not None:
            log.pin(int(self._table.get(str(level)) or b"0"))

    def flushed(self) -> None:
        """Record what the disk has now; if the disk refuses, the next flush tries again."""
        try:
            self._record()
        except StorageError as error:
            self._faults.note(f"the progress of delayed messages is not recorded: {error}")

    def stop(self) -> None:
        """Record everything: the store was flushed. Raises StorageError."""
        self._record()

    def _deliver(self, entry: bytes, now: int, effects: list[Effect]) -> None:
        view = decode_records(entry)[0]
        properties = dict(view.properties)
        properties.pop(props.DELAY, None)
        self._releasing.release(view, properties, now, effects)

    def check(self) -> None:
        for level in _LEVELS:
            log = self._store.log(SCHEDULE_TOPIC, level - 1)
            low, end = (0, 0) if log is None else (log.min_offset, log.max_offset)
            assert self._offsets[level] <= end
            if max(self._offsets[level], low) < end:
                assert level in self._armed, f"nobody wakes level {level}"


def _read(log: Log, offset: int) -> bytes | None:
    """Return the delayed message; None if it is damaged, or a Kafka batch, which is never delayed.

    A damaged one is lost: there is no group on a level's queue whose offset could be reset past it,
    and others wait behind it.
    """
    try:
        return log.record_at(offset)
    except CorruptError:
        return None


_LEVELS = range(1, DELAY_LEVEL_MAX + 1)
