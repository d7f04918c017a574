"""Flips bits in the tables of committed offsets of a stopped broker, and knows the permitted loss.

An incomplete write after a kill is not a record, and is not damaged. Other tables are not damaged
here: the simulator has no rule for what nodes owe without a topic, a partition's number, a half
message or a producer's state (docs/LIMITS.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from steelyard.sim.damage import Damage, RottenRecord
from steelyard.sim.disk import Mount, SimDisk
from steelyard.sim.world import Violation
from steelyard.store import check, salvage
from steelyard.store.files import Files
from steelyard.store.table_records import HEAD_BYTES, Entry, decode
from steelyard.types import MessageQueue, TopicPartition

OFFSETS = "tables/offsets.table"
"""`group@topic@queue id`, on the queue's broker."""
KAFKA_OFFSETS = "tables/kafka_offsets.table"
"""`topic/partition/group`, on the group's coordinator."""


def has_offsets(disk: SimDisk) -> bool:
    """Return whether there is a record that can be damaged."""
    with disk.looked_at() as mount:
        return any(_records(mount, path) for path in (OFFSETS, KAFKA_OFFSETS))


def flip_in_table(disk: SimDisk, broker: str, damage: Damage, rng: Random) -> bool:
    """Flip a bit in one record, unless one of the broker's is damaged already.

    At least half of the time it is the last record of its key, which counts. Returns False if there
    is none.
    """
    with disk.looked_at() as mount:
        found = {path: _records(mount, path) for path in (OFFSETS, KAFKA_OFFSETS)}
        ends = {path: mount.open(path).size() for path, entries in found.items() if entries}
    paths = list(ends)
    if broker in damage.records or not paths:
        return False
    path = rng.choice(paths)
    entries = found[path]
    last = {entry.key: entry for entry in entries}
    entry = rng.choice(list(last.values()) if rng.random() < 0.5 else entries)
    byte = rng.randrange(entry.size)
    disk.flip(path, entry.position + byte, rng.randrange(8))
    end = entry.position + entry.size
    is_before_tail = entry is entries[-1] and end < ends[path]
    is_key = HEAD_BYTES <= byte < HEAD_BYTES + len(entry.key.encode())
    damage.records[broker] = RottenRecord(
        path,
        entry.position,
        ends[path] - entry.position if is_before_tail else entry.size,
        entry.key,
        not is_before_tail and not is_key,
        _content(entries),
        _content(other for other in entries if other is not entry),
    )
    return True


def _records(mount: Mount, path: str) -> list[Entry]:
    """Return the records of a table, in order."""
    if not mount.exists(path):
        return []
    file = mount.open(path)
    return [item for item in decode(file.read(0, file.size())) if isinstance(item, Entry)]


def _content(entries: Iterable[Entry]) -> dict[str, bytes]:
    """Return the contents of a table with these records."""
    values: dict[str, bytes] = {}
    for entry in entries:
        if entry.value is None:
            values.pop(entry.key, None)
        else:
            values[entry.key] = entry.value
    return values


def mended(files: Files, broker: str, damage: Damage, deed: salvage.Deed) -> None:
    """Check that a repaired table lacks exactly the damaged record, and reports it.

    Raises Violation.
    """
    record = damage.records.pop(broker)
    content = _content(check.entries_of(files, record.path))
    if content != record.without:
        wrong = sorted(
            key
            for key in content.keys() | record.without.keys()
            if content.get(key) != record.without.get(key)
        )
        raise Violation(f"a repair of {record.path} changes {wrong}, damaged is {record.key!r}")
    key = repr(record.key) if record.is_named else ""
    if f"byte {record.position}" not in deed.lost or key not in deed.lost:
        raise Violation(f"a repair does not say that {record.key!r} is lost: {deed.lost!r}")
    if record.without.get(record.key) == record.content.get(record.key):
        return  # a later record of the key counts
    if record.path == OFFSETS:
        _, topic, queue_id = record.key.split("@")
        damage.offsets_lost.add(MessageQueue(topic, broker, int(queue_id)))
    else:
        topic, partition, _ = record.key.split("/", 2)
        damage.kafka_offsets_lost.add(TopicPartition(topic, int(partition)))
