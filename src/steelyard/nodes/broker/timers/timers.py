"""Messages delayed to the millisecond: from the properties TIMER_* to their delivery or recall.

A waiting message is stored in the log of `rmq_sys_wheel_timer`, in the order in which it came, with
its real topic and queue in properties and the time when it is due in TIMER_OUT_MS. So it is as safe
as any message when its producer is told so. To find it again there is a row (`rows`), which is

- in `_waiting` (memory) at first; when SPILL_ROWS have come they are written to the slots of their
  hours (`slots`), some slots per event;
- in `window` (memory) as well, if it is among the next.

What a restart needs to know is in the table `timers`: `done`, the row up to which all messages were
delivered, recorded after each batch of at most BATCH_MAX (with flush=sync once the disk has them);
and `indexed`, the offset up to which the slots have the rows, recorded once the disk has those. The
messages after `indexed` are read again. So a kill loses nothing, and at most BATCH_MAX messages are
delivered twice; with the power go what the disk did not have, and with flush=sync what one flush
covers may come twice.

A recall is a message as well: it waits for the same millisecond, comes before those it may concern,
and names one of them by topic and UNIQ_KEY. Nothing needs to be looked up.

Retention keeps the log as long as a message in it may wait. If a slot is damaged, its rows are made
again from the messages. If the clock was set back, a new message waits until what was delivered
before is in the past again: it is never early.
Source, for what clients see: store/timer/TimerMessageStore.java, broker/util/HookUtils.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.errors import CorruptError, StorageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.releasing import Releasing
from steelyard.nodes.broker.timers.due import admit
from steelyard.nodes.broker.timers.rows import (
    SLOT_MS,
    due_in,
    first_row_at,
    is_recall,
    offset_in,
    row_of,
    slot_of,
)
from steelyard.nodes.broker.timers.slots import Slots
from steelyard.nodes.broker.timers.window import NextRows, Window
from steelyard.nodes.broker.topics import TIMER_TOPIC
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.store.address import distance
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.message import MessageView, decode_records

TIMERS_TIMER = "timers"

BATCH_MAX = 200
"""Maximum messages delivered per event."""

SPILL_ROWS = 16_384
SPILL_BYTES = 64 * 1024 * 1024
"""Rows, and bytes of messages, after which the rows are written to the slots.

A restart reads about as many messages again.
"""
SPILL_SLOTS_MAX = 20
"""Maximum slots written to per event."""

AHEAD_MS = 60_000
"""How long before its hour a slot is read."""

DISK_RETRY_MS = 1_000

_READ_MESSAGES = 500
_READ_BYTES = 4 * 1024 * 1024

KAFKA_RECORD = "steelyard.kafka"
"""Property of a waiting message whose body is a record batch of Kafka's, with one record."""


class DelayedMessages:
    """The waiting messages; see the module docstring. Call `start` before anything else."""

    def __init__(self, parts: Parts) -> None:
        self._delay_max_ms = parts.config.timer_max_delay_sec * 1000
        self._durability = parts.durability
        self._faults = parts.faults
        self._releasing = Releasing(parts.topics, parts.writer)
        self._log = parts.store.create_log(TIMER_TOPIC, 0)
        self._log.pin(0)
        self._table = parts.store.table("timers")
        self._slots = Slots(parts.store, parts.writer)
        self._done = int(self._table.get(_DONE) or 0)
        self._window = Window(first_row_at(due_in(self._done)) - 1)
        self._waiting: dict[int, list[int]] = {}
        """By slot: rows that are to be written there."""
        self._waiting_rows = 0
        self._waiting_from = (0, 0)
        """Offset of the first message whose row is in `_waiting`, and the log's end at that time.

        The end is an address; after a restart it is that of the start.
        """
        self._spilling: dict[int, list[int]] = {}
        """By slot: rows that are being written there."""
        self._loading: _Loading | None = None
        self._recalled: set[str] = set()
        """Keys recalled of messages that are due at `_recalled_at`."""
        self._recalled_at = 0
        self._unrecorded: dict[tuple[str, int], int] = {}
        """By key of the table and mark of the disk: what the table does not say yet."""
        self._armed_at: int | None = None

    def start(self, now: int, effects: list[Effect]) -> None:
        """Find what waits. Raises StorageError."""
        log = self._log
        indexed = int(self._table.get(_INDEXED) or 0)
        if indexed > log.max_offset:
            # A power failure took messages; new ones get their offsets.
            indexed = log.max_offset
            self._table.put(_INDEXED, b"%d" % indexed)
        at = max(indexed, log.min_offset)
        self._waiting_from = (at, log.next_address)
        while at < log.max_offset:
            rows, at = self._read_rows(at)
            for row in rows:
                if row > self._window.ceiling:
                    self._note(row)
        self._pin()
        self._arm(now, effects)

    # -- what comes --------------------------------------------------------------------------------

    def admit(self, properties: Mapping[str, str], now: int) -> None:
        """Raise MessageError if this broker must not delay a message like this."""
        admit(properties, now, self._delay_max_ms)

    def divert(
        self, topic: str, queue_id: int, due: int, properties: Mapping[str, str]
    ) -> tuple[str, int, dict[str, str]]:
        """Return where to store a message, and its properties; call `stored` afterwards."""
        out = str(max(due, due_in(self._done) + 1))
        place = {props.TIMER_OUT_MS: out, props.REAL_TOPIC: topic, props.REAL_QID: str(queue_id)}
        return TIMER_TOPIC, 0, {**properties, **place}

    def stored(
        self, offset: int, properties: Mapping[str, str], now: int, effects: list[Effect]
    ) -> None:
        """Note that a message was stored at this offset of the topic that `divert` returned."""
        due = int(properties[props.TIMER_OUT_MS])
        row = row_of(due, offset, recalls=props.TIMER_DEL_UNIQKEY in properties)
        self._note(row)
        self._window.add(row)
        self._arm(now, effects)

    def _note(self, row: int) -> None:
        self._waiting.setdefault(slot_of(row), []).append(row)
        self._waiting_rows += 1

    # -- what is due -------------------------------------------------------------------------------

    def due(self, now: int, effects: list[Effect]) -> None:
        """Deliver what is due, and take a step with all that is to be read, written and deleted."""
        self._armed_at = None
        try:
            self._deliver_due(now, effects)
            self._load(now)
            self._spill(now, effects)
            self._tidy(now)
        except StorageError as error:
            self._faults.tell(f"delayed messages wait: {error}", now, effects)
            self._armed_at = now + DISK_RETRY_MS
            effects.append(SetTimer(TIMERS_TIMER, self._armed_at))
            return
        self._arm(now, effects)

    def _deliver_due(self, now: int, effects: list[Effect]) -> None:
        done, window, count = self._done, self._window, 0
        try:
            while count < BATCH_MAX and (row := window.first) is not None and due_in(row) <= now:
                if row > self._done or is_recall(row):  # of those that are done, recalls still hold
                    count += self._deliver(row, now, effects)
                    self._done = max(self._done, row)
                window.pop()
        finally:
            if self._done > done:
                self._unrecorded[_DONE, self._durability.mark()] = self._done
                self._record()

    def _deliver(self, row: int, now: int, effects: list[Effect]) -> int:
        """Deliver the message of a row, unless it is recalled; return how many were read.

        Without a message that fits the row, a power failure took it; a damaged one is lost, because
        there is no group here whose offset could be reset past it.
        """
        due, offset = due_in(row), offset_in(row)
        if due != self._recalled_at:
            self._recalled, self._recalled_at = set(), due
        if not self._log.min_offset <= offset < self._log.max_offset:
            return 0
        try:
            entry = self._log.record_at(offset)
        except CorruptError:
            return 1
        view = None if entry is None else decode_records(entry)[0]
        if view is None or _row_in(view) != row:
            return 1
        if is_recall(row):
            key = view.property_of(props.TIMER_DEL_UNIQKEY)
            topic = view.property_of(props.REAL_TOPIC)
            if key and key.startswith(f"{topic}+"):  # whoever may send to a topic may recall there
                self._recalled.add(key)
        elif not self._recalled or _key_of(view) not in self._recalled:
            self._release(view, now, effects)
        return 1

    def _release(self, view: MessageView, now: int, effects: list[Effect]) -> None:
        if view.property_of(KAFKA_RECORD) is not None:
            self._releasing.release_batch(view, now, effects)
            return
        properties = dict(view.properties)
        del properties[props.REAL_TOPIC], properties[props.REAL_QID]
        properties[props.TIMER_ENQUEUE_MS] = str(view.store_timestamp)
        properties[props.TIMER_DEQUEUE_MS] = str(now)
        self._releasing.release(view, properties, now, effects)

    # -- from the disk to memory -------------------------------------------------------------------

    def _load(self, now: int) -> None:
        """Take a step towards having in memory what is due next."""
        if self._loading is None:
            if not self._is_short(now):
                return
            last = slot_of(first_row_at(now + AHEAD_MS))
            above = self._window.ceiling
            known = (*self._slots.numbers, *self._waiting, *self._spilling)
            slot = min((each for each in known if each >= slot_of(above + 1)), default=last + 1)
            if slot > last:
                self._window.extend([], first_row_at((last + 1) * SLOT_MS) - 1)
                return
            self._loading = _Loading(slot, above)
        loading = self._loading
        if self._window.ceiling != loading.gathering.above:  # it was lowered: what was read is old
            self._loading = None
        elif self._read_step(loading):
            for rows in (self._spilling, self._waiting):
                loading.gathering.add(rows.get(loading.slot, []))
            self._window.extend(*loading.gathering.result())
            self._loading = None

    def _is_short(self, now: int) -> bool:
        """Return whether the window needs rows that are due soon."""
        return self._window.has_room and self._load_at <= now

    @property
    def _load_at(self) -> int:
        return due_in(self._window.ceiling + 1) - AHEAD_MS

    def _read_step(self, loading: _Loading) -> bool:
        """Read some rows of a slot; return whether these were the last."""
        if loading.from_messages:
            rows, loading.at = self._read_rows(loading.at)
            loading.gathering.add(rows)
            return loading.at >= self._log.max_offset
        try:
            rows, loading.at = self._slots.read(loading.slot, loading.at)
        except CorruptError as error:
            self._faults.note(f"the rows of delayed messages are made again: {error}")
            loading.from_messages, loading.at = True, self._log.min_offset
            return False
        loading.gathering.add(rows)
        return loading.at >= self._slots.end(loading.slot)

    def _read_rows(self, at: int) -> tuple[list[int], int]:
        """Return the rows of some messages from an offset on, and where to go on."""
        try:
            found = self._log.read(at, _READ_MESSAGES, _READ_BYTES)
        except CorruptError as error:
            return [], max(at + 1, error.next_offset)
        rows = [row for view in decode_records(found.data) if (row := _row_in(view)) is not None]
        return rows, max(at + 1, found.next_offset)

    # -- from memory to the disk -------------------------------------------------------------------

    def _spill(self, now: int, effects: list[Effect]) -> None:
        """Write rows to their slots, if enough have come."""
        if self._must_spill:
            self._spilling, self._waiting, self._waiting_rows = self._waiting, {}, 0
            self._waiting_from = (self._log.max_offset, self._log.next_address)
        if not self._spilling:
            return
        for slot in list(self._spilling)[:SPILL_SLOTS_MAX]:
            rows = [row for row in self._spilling[slot] if row > self._done]
            if rows:
                self._slots.write(slot, rows, now, effects)
            del self._spilling[slot]
        if not self._spilling:
            self._unrecorded[_INDEXED, self._durability.mark_of_disk()] = self._waiting_from[0]

    @property
    def _must_spill(self) -> bool:
        if self._spilling or not self._waiting:
            return False
        size = distance(self._waiting_from[1], self._log.next_address)
        return self._waiting_rows >= SPILL_ROWS or size >= SPILL_BYTES

    # -- what is recorded --------------------------------------------------------------------------

    def _record(self) -> None:
        """Record what the disk has. Raises StorageError."""
        ready = [key for key in self._unrecorded if self._durability.has(key[1])]
        self._table.put_many([(key[0], b"%d" % self._unrecorded[key]) for key in ready])
        for key in ready:
            del self._unrecorded[key]

    def _tidy(self, now: int) -> None:
        """Delete the slots of past hours once all of them was delivered."""
        hour = slot_of(first_row_at(now))
        if min(self._slots.numbers, default=hour) >= hour:
            return
        begin = first_row_at(hour * SLOT_MS)
        first = self._window.first
        if self._window.ceiling < begin or (first is not None and first < begin):
            return
        if self._done < begin:
            self._done = begin - 1
        if not self._unrecorded:
            self._table.put(_DONE, b"%d" % self._done)
            self._slots.delete_before(hour)
            self._pin()

    def _pin(self) -> None:
        """Let retention delete the messages before the first that may wait."""
        indexed = int(self._table.get(_INDEXED) or 0)
        first = self._slots.first_offset
        self._log.pin(indexed if first is None else min(first, indexed))

    def flushed(self) -> None:
        """Record what the disk has now; if the disk refuses, the next flush tries again."""
        try:
            self._record()
        except StorageError as error:
            self._faults.note(f"the progress of delayed messages is not recorded: {error}")

    def stop(self) -> None:
        """Record everything: the store was flushed. Raises StorageError."""
        self._record()

    # -- when to go on -----------------------------------------------------------------------------

    def _arm(self, now: int, effects: list[Effect]) -> None:
        """Ensure that the timer is set for what is next."""
        at = self._next_at(now)
        if self._armed_at is None or at < self._armed_at:
            self._armed_at = at
            effects.append(SetTimer(TIMERS_TIMER, at))

    def _next_at(self, now: int) -> int:
        if self._loading is not None or self._spilling or self._must_spill or self._is_short(now):
            return now
        first = self._window.first
        if first is None:
            return self._load_at
        at = max(due_in(first), now)
        return min(at, self._load_at) if self._window.has_room else at

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        self._window.check()
        self._slots.check()
        assert self._waiting_rows == sum(map(len, self._waiting.values()))
        assert self._armed_at is not None, "nobody wakes the delayed messages"
        for row in (row for rows in self._waiting.values() for row in rows[-5:]):
            assert offset_in(row) < self._log.max_offset


class _Loading:
    """A slot that is being read, or the messages in its place. `at`: where to go on."""

    __slots__ = ("at", "from_messages", "gathering", "slot")

    def __init__(self, slot: int, above: int) -> None:
        self.slot = slot
        self.gathering = NextRows(above, first_row_at((slot + 1) * SLOT_MS) - 1)
        self.at = 0
        self.from_messages = False


_DONE = "done"
_INDEXED = "indexed"
"""Keys of the table."""


def _row_in(view: MessageView) -> int | None:
    """Return the row of a waiting message; None if it is damaged: no checksum protects that."""
    out = view.property_of(props.TIMER_OUT_MS) or ""
    if not out.isdecimal() or len(out) > 13:
        return None
    recalls = view.property_of(props.TIMER_DEL_UNIQKEY) is not None
    return row_of(int(out), view.queue_offset, recalls=recalls)


def _key_of(view: MessageView) -> str:
    """Return by what a message is recalled (TimerMessageStore.buildDeleteKey)."""
    return f"{view.property_of(props.REAL_TOPIC)}+{view.property_of(props.UNIQ_KEY)}"
