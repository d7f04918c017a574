"""The store against a simple model, with kills inside writes, power cuts and a full disk.

Laws
- After a kill, everything whose call returned is there byte for byte, and of the call that was cut a
  prefix (of the records appended, of a table's pairs; of a Kafka batch all or nothing).
- After a power cut, each log is a prefix of what was appended, no shorter than what was synced; log
  and index files are torn independently. A Kafka batch is there whole or not at all.
- Records of RocketMQ and batches of Kafka may be mixed; neither reader gets the other's bytes. Times are
  in order, whatever rows were lost.
- What was deleted from the front of a log stays deleted, but for a power cut before the disk had it.
- A full disk refuses a write and changes nothing.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from tests.examples import examples
from tests.store.conftest import NOW, build, build_kafka, retain_log

from steelyard.config import StoreConfig
from steelyard.errors import DiskFullError
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.store.store import Store
from steelyard.wire.remoting.flags import tag_code

CONFIG = StoreConfig(segment_bytes=1_500, index_flush_rows=3, retention_ms=0)
TAGS = ("", "TagA", "TagB")
Shape = tuple[int, str]
"""Body size and tag of an entry to append."""

shapes = st.tuples(st.integers(0, 400), st.sampled_from(TAGS))
topics = st.sampled_from(("orders", "%RETRY%group", "t" * 200))
pairs = st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=50))


class Expected:
    """What one log should hold, by offset: all entries ever; `first` is the lowest that can be read.

    A batch stands at each of its offsets. `tags`: None for a batch. `timestamps`: what Kafka's clients look for.
    """

    def __init__(self, log_id: int) -> None:
        self.log_id = log_id
        self.entries: list[bytes] = []
        self.bases: list[int] = []
        self.tags: list[str | None] = []
        self.times: list[int] = []
        self.timestamps: list[int] = []
        self.first = 0
        self.synced_first = 0
        self.synced = 0
        """Entries that a power cut must leave, where it leaves the log."""
        self.stays = False
        """A power cut must leave the log: it was synced with entries. One that was synced while empty has none to lose."""


class StoreMachine(RuleBasedStateMachine):
    queues = Bundle("queues")

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.now = NOW
        self.expected: dict[tuple[str, int], Expected] = {}
        self.pairs: dict[str, bytes] = {}
        self.ids: set[int] = set()
        self.synced_ids: set[int] = set()
        self.store = Store(self.disk, CONFIG)
        self.store.open(self.now)

    # -- ordinary life ---------------------------------------------------------------------------

    @rule(target=queues, topic=topics, queue_id=st.integers(0, 2))
    def create(self, topic: str, queue_id: int) -> tuple[str, int]:
        log = self.store.create_log(topic, queue_id)
        if (topic, queue_id) not in self.expected:
            assert log.log_id not in self.ids, "a log id was given out twice"
            self.ids.add(log.log_id)
            self.expected[topic, queue_id] = Expected(log.log_id)
        return topic, queue_id

    @rule(queue=queues, batch=st.lists(shapes, min_size=1, max_size=8))
    def append(self, queue: tuple[str, int], batch: list[Shape]) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        entries = self._build(log, batch)
        first = log.max_offset
        if len(entries) == 1:
            assert log.append(*entries[0], self.now) == first
        else:
            assert log.append_many(entries, self.now) == first
        self._note(expected, entries, batch)

    @rule(queue=queues, count=st.integers(1, 6), size=st.integers(0, 300), late=st.integers(0, 60))
    def append_batch(self, queue: tuple[str, int], count: int, size: int, late: int) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        batch = build_kafka(log, [b"x" * size] * count, self.now - late)
        first = log.max_offset
        assert log.append_batch(batch, count, self.now) == first
        self._note_batch(expected, batch, count, self.now - late)

    @rule(elapsed=st.integers(1, 50))
    def wait(self, elapsed: int) -> None:
        self.now += elapsed

    @rule(change=st.lists(pairs, min_size=1, max_size=3))
    def put(self, change: list[tuple[str, bytes | None]]) -> None:
        self.store.table("offsets").put_many(change)
        self._change(change)

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.expected = {queue: log for queue, log in self.expected.items() if queue[0] != topic}

    @rule(age=st.integers(0, 100))
    def drop_old(self, age: int) -> None:
        for queue, expected in self.expected.items():
            log = self._log(queue)
            stored = [log.stored_at(offset) for offset in range(log.min_offset, log.max_offset)]
            gone = retain_log(log, self.now, ms=age)
            assert log.min_offset == expected.first + gone
            assert all(self.now - at > age for at in stored[:gone])
            expected.first = log.min_offset
            if gone:
                expected.synced = max(expected.synced, log.min_offset)

    @rule(queue=queues, room=st.integers(0, 3_000))
    def drop_beyond(self, queue: tuple[str, int], room: int) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        size = log.size()
        gone = retain_log(log, NOW, size=room)
        assert log.min_offset == expected.first + gone
        assert log.size() >= min(size, room)
        expected.first = log.min_offset

    @rule(queue=queues, data=st.data())
    def delete_before(self, queue: tuple[str, int], data: st.DataObject) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        offset = data.draw(st.integers(0, len(expected.entries) + 2))
        log = self._log(queue)
        log.delete_before(offset)
        expected.first = max(expected.first, min(offset, len(expected.entries)))
        assert log.min_offset == expected.first
        if log.min_offset == log.max_offset and log.max_offset:
            assert not log.size()

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self._note_synced()

    @rule()
    def flush_index(self) -> None:
        self.store.flush_index()

    @rule()
    def group_commit(self) -> None:
        self.store.take_dirty().sync()
        self._note_synced()

    @rule(queue=queues, room=st.integers(0, 2_000), batch=st.lists(shapes, min_size=1, max_size=6))
    def append_on_a_full_disk(self, queue: tuple[str, int], room: int, batch: list[Shape]) -> None:
        if queue not in self.expected:
            return
        log = self._log(queue)
        entries = self._build(log, batch)
        self.disk.room_bytes = room
        try:
            log.append_many(entries, self.now)
        except DiskFullError:
            pass
        else:
            self._note(self.expected[queue], entries, batch)
        self.disk.room_bytes = None

    # -- ends ------------------------------------------------------------------------------------

    @rule()
    def stop_cleanly(self) -> None:
        self.store.close()
        self._note_synced()
        assert self._reopen(self.disk.copy()) == 0

    @rule()
    def kill(self) -> None:
        assert self._reopen(self.disk.copy()) == 0

    @rule(queue=queues, alive=st.integers(0, 1_500), batch=st.lists(shapes, min_size=1, max_size=8))
    def kill_in_an_append(self, queue: tuple[str, int], alive: int, batch: list[Shape]) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        entries = self._build(log, batch)
        self.disk.kill_after_bytes = alive
        try:
            log.append_many(entries, self.now)
        except Killed:
            self._reopen(self.disk.copy())
            kept = self._log(queue).max_offset - len(expected.entries)
            assert 0 <= kept < len(entries) or (kept == len(entries) and alive)
            self._note(expected, entries[:kept], batch[:kept])
        else:
            self.disk.kill_after_bytes = None
            self._note(expected, entries, batch)

    @rule(
        queue=queues, alive=st.integers(0, 900), count=st.integers(1, 6), size=st.integers(0, 200)
    )
    def kill_in_a_batch(self, queue: tuple[str, int], alive: int, count: int, size: int) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        batch = build_kafka(log, [b"x" * size] * count, self.now)
        self.disk.kill_after_bytes = alive
        try:
            log.append_batch(batch, count, self.now)
        except Killed:
            self._reopen(self.disk.copy())
            assert self._log(queue).max_offset == len(expected.entries)
        else:
            self.disk.kill_after_bytes = None
            self._note_batch(expected, batch, count, self.now)

    @rule(alive=st.integers(0, 200), change=st.lists(pairs, min_size=1, max_size=3))
    def kill_in_a_put(self, alive: int, change: list[tuple[str, bytes | None]]) -> None:
        self.disk.kill_after_bytes = alive
        try:
            self.store.table("offsets").put_many(change)
        except Killed:
            self._reopen(self.disk.copy())
            found = dict(self.store.table("offsets").items())
            before = dict(self.pairs)
            for count in range(len(change)):
                self.pairs = dict(before)
                self._change(change[:count])
                if self.pairs == found:
                    return
            raise AssertionError(f"{found} is not a prefix of {change} on {before}") from None
        self.disk.kill_after_bytes = None
        self._change(change)

    @rule(topic=topics, queue_id=st.integers(3, 5), alive=st.integers(0, 100))
    def kill_in_a_creation(self, topic: str, queue_id: int, alive: int) -> None:
        self.disk.kill_after_bytes = alive
        try:
            self.create(topic, queue_id)
        except Killed:
            self._reopen(self.disk.copy())
            log = self.store.log(topic, queue_id)
            if log is not None:
                self.create(topic, queue_id)
        self.disk.kill_after_bytes = None

    @rule(seed=st.integers(0, 1_000_000))
    def lose_power(self, seed: int) -> None:
        self._reopen(self.disk.lose_power(Random(seed)))
        for queue, expected in list(self.expected.items()):
            log = self.store.log(*queue)
            if log is None or log.log_id != expected.log_id:
                assert not expected.stays, f"{queue} was synced and is gone"
                del self.expected[queue]
                continue
            end = log.max_offset
            assert expected.synced <= end <= len(expected.entries)
            assert end == len(expected.entries) or expected.bases[end] == end, "half a batch"
            assert min(expected.synced_first, end) <= log.min_offset <= expected.first
            expected.first = log.min_offset
            for kept in (
                expected.entries,
                expected.bases,
                expected.tags,
                expected.times,
                expected.timestamps,
            ):
                del kept[end:]
        for topic in self.store.topics():
            for log in self.store.logs(topic):
                # The deletion of its topic was not synced: it is back, empty.
                back = self.expected.setdefault((topic, log.queue_id), Expected(log.log_id))
                assert back.entries or not log.max_offset
        # An id that was not synced may be given out again.
        self.ids = self.synced_ids | {expected.log_id for expected in self.expected.values()}
        self.pairs = dict(self.store.table("offsets").items())

    # -- looking ---------------------------------------------------------------------------------

    @rule(
        queue=queues,
        data=st.data(),
        count_max=st.integers(1, 10),
        bytes_max=st.integers(1, 3_000),
    )
    def read(
        self, queue: tuple[str, int], data: st.DataObject, count_max: int, bytes_max: int
    ) -> None:
        expected = self.expected.get(queue)
        if expected is None or expected.first == len(expected.entries):
            return
        offset = data.draw(st.integers(expected.first, len(expected.entries) - 1))
        part = self._log(queue).read(offset, count_max, bytes_max)
        assert part.first_offset == offset
        assert part.next_offset == offset + part.count
        if expected.tags[offset] is None:
            assert not part.count
            assert not part.data
            return
        assert 1 <= part.count <= count_max
        assert None not in expected.tags[offset : part.next_offset]
        assert part.count == 1 or len(part.data) <= bytes_max
        assert part.data == b"".join(expected.entries[offset : part.next_offset])

    @rule(queue=queues, data=st.data(), bytes_max=st.integers(1, 3_000))
    def read_run(self, queue: tuple[str, int], data: st.DataObject, bytes_max: int) -> None:
        expected = self.expected.get(queue)
        if expected is None or expected.first == len(expected.entries):
            return
        count = len(expected.entries)
        offset = data.draw(st.integers(expected.first, count - 1))
        end = data.draw(st.none() | st.integers(offset + 1, count))
        run = self._log(queue).read_run(offset, bytes_max, end)
        end = count if end is None else end
        while end < count and expected.bases[end] < end and expected.tags[offset] is None:
            end -= 1  # half a batch is not given
        if end <= offset:
            assert (run.data, run.next_offset) == (b"", offset)
            return
        assert offset < run.next_offset <= end
        kinds = {tag is None for tag in expected.tags[offset : run.next_offset]}
        assert kinds == {run.kind == BATCHES}
        assert run.first_offset == expected.bases[offset]
        assert run.next_offset == count or expected.bases[run.next_offset] == run.next_offset
        bases = sorted(set(expected.bases[run.first_offset : run.next_offset]))
        assert run.data == b"".join(expected.entries[base] for base in bases)
        assert len(bases) == 1 or len(run.data) <= bytes_max

    @rule(queue=queues, tags=st.sets(st.sampled_from(TAGS[1:]), min_size=1))
    def read_tagged(self, queue: tuple[str, int], tags: set[str]) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        codes = frozenset(tag_code(tag) for tag in sorted(tags))
        offset, found, count = log.min_offset, b"", 0
        while offset < log.max_offset:
            part = log.read(offset, 3, 1_000, codes)
            if part.next_offset == offset:
                assert expected.tags[offset] is None
                offset = log.read_run(offset, 1).next_offset
                continue
            assert offset <= part.first_offset <= part.next_offset
            offset, found, count = part.next_offset, found + part.data, count + part.count
        wanted = [
            entry
            for entry, tag in zip(expected.entries, expected.tags, strict=True)
            if tag in tags and expected.entries.index(entry) >= expected.first
        ]
        assert (found, count) == (b"".join(wanted), len(wanted))

    @rule(queue=queues, back=st.integers(-10, 200), upper=st.booleans())
    def find_by_time(self, queue: tuple[str, int], back: int, upper: bool) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        at = self.now - back
        log = self._log(queue)
        live = range(expected.first, len(expected.entries))
        times = {offset: log.stored_at(offset) for offset in live}
        assert list(times.values()) == sorted(times.values())
        for offset in live:
            if expected.tags[offset] is not None:
                assert times[offset] == expected.times[offset]
            assert times[offset] <= expected.times[offset]
        if upper:
            fits = [offset for offset in live if times[offset] <= at]
            wanted = fits[-1] if fits else expected.first
        else:
            fits = [offset for offset in live if times[offset] >= at]
            wanted = fits[0] if fits else len(expected.entries)
        assert log.offset_at_time(at, upper) == wanted

    @rule(queue=queues, back=st.integers(-10, 200))
    def find_by_timestamp(self, queue: tuple[str, int], back: int) -> None:
        expected = self.expected.get(queue)
        if expected is None:
            return
        log = self._log(queue)
        stamps = expected.timestamps
        live = range(expected.first, len(stamps))
        fits = [offset for offset in live if stamps[offset] >= self.now - back]
        wanted = (fits[0], stamps[fits[0]]) if fits else None
        assert log.offset_for_timestamp(self.now - back) == wanted
        largest = max(live, key=lambda offset: (stamps[offset], -offset), default=None)
        wanted = None if largest is None else (largest, stamps[largest])
        assert log.max_timestamp() == wanted

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.store.check()
        assert dict(self.store.table("offsets").items()) == self.pairs
        for queue, expected in self.expected.items():
            log = self._log(queue)
            assert (log.min_offset, log.max_offset) == (expected.first, len(expected.entries))

    def teardown(self) -> None:
        for queue, expected in self.expected.items():
            log = self._log(queue)
            for offset in range(expected.first, len(expected.entries)):
                assert log.entry_at(offset) == expected.entries[offset]

    # -- the model's own business ----------------------------------------------------------------

    def _log(self, queue: tuple[str, int]) -> Log:
        log = self.store.log(*queue)
        assert log is not None
        return log

    def _build(self, log: Log, batch: list[Shape]) -> list[tuple[bytes, int]]:
        entries: list[tuple[bytes, int]] = []
        size = 0
        for number, (body_bytes, tag) in enumerate(batch):
            body = bytes([number]) * body_bytes
            entry = build(log, body, tag, self.now, skip=number, skip_bytes=size)
            entries.append((entry, tag_code(tag) if tag else 0))
            size += len(entry)
        return entries

    def _note(
        self, expected: Expected, entries: list[tuple[bytes, int]], batch: list[Shape]
    ) -> None:
        first = len(expected.entries)
        expected.entries += [entry for entry, _ in entries]
        expected.bases += range(first, first + len(entries))
        expected.tags += [tag for _, tag in batch]
        expected.times += [self.now] * len(entries)
        expected.timestamps += [self.now] * len(entries)

    def _note_batch(self, expected: Expected, batch: bytes, count: int, timestamp: int) -> None:
        expected.bases += [len(expected.entries)] * count
        expected.entries += [batch] * count
        expected.tags += [None] * count
        expected.times += [self.now] * count
        expected.timestamps += [timestamp] * count

    def _note_synced(self) -> None:
        for expected in self.expected.values():
            expected.synced = len(expected.entries)
            expected.stays = expected.stays or bool(expected.entries)
            expected.synced_first = expected.first
        self.synced_ids = set(self.ids)

    def _change(self, change: list[tuple[str, bytes | None]]) -> None:
        for key, value in change:
            if value is None:
                self.pairs.pop(key, None)
            else:
                self.pairs[key] = value

    def _reopen(self, disk: MemoryDisk) -> int:
        self.disk = disk
        self.store = Store(disk, CONFIG)
        return self.store.open(self.now).bytes_cut


StoreMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestStore = StoreMachine.TestCase
