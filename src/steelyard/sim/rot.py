"""Bit flips on a broker's disk, and an operator's repair with `steelyard check --repair`.

Only entries with an index row on disk are damaged. Entries written just before a kill have none
yet, and are protected by their own checksums only (docs/LIMITS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from steelyard.errors import DiskFullError
from steelyard.sim.checkers import Witness, number_of
from steelyard.sim.damage import Damage, Position, RottenRecord
from steelyard.sim.disk import Mount, SimDisk
from steelyard.sim.rot_tables import mended
from steelyard.sim.world import Violation
from steelyard.store import check, log_list, salvage
from steelyard.store.files import Files
from steelyard.store.index import ROW, ROW_BYTES, are_sound, is_hole
from steelyard.store.segment_names import INDEX_SUFFIX, LOG_SUFFIX
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.names import RETRY_PREFIX


class _Entry(NamedTuple):
    """`size` bytes from `position` on in a log file, with their row in the index file."""

    queue: MessageQueue
    offset: int
    path: str
    position: int
    size: int


def flip_in_logs(
    disk: SimDisk, broker: str, topics: tuple[str, ...], witness: Witness, rng: Random, count: int
) -> int:
    """Flip a bit in each of up to `count` intact entries of these topics; return how many.

    Half of the time entries are chosen that no member has received, if there are any.
    """
    damage = witness.damage
    with disk.looked_at() as mount:
        entries = [
            entry
            for entry in _entries(mount, broker, topics)
            if (entry.queue, entry.offset) not in damage.entries
        ]
        unread = [e for e in entries if not witness.was_delivered((e.queue, e.offset))]
        if unread and rng.random() < 0.5:
            entries = unread
        chosen = rng.sample(entries, min(count, len(entries)))
        for entry in chosen:
            data = mount.open(entry.path).read(entry.position, entry.size)
            place = entry.queue, entry.offset
            damage.entries[place] = data
            (view,) = decode_records(data, broker)
            number = damage.numbers[place] = number_of(view.body)
            copies = entry.queue.topic.startswith(RETRY_PREFIX)
            (damage.retries_lost if copies else damage.lost).add(number)
            disk.flip(entry.path, entry.position + rng.randrange(entry.size), rng.randrange(8))
    return len(chosen)


def _entries(mount: Mount, broker: str, topics: tuple[str, ...]) -> Iterator[_Entry]:
    for folder, place in log_list.folders(mount).items():
        if place.topic not in topics:
            continue
        queue = MessageQueue(place.topic, broker, place.queue_id)
        for name in mount.list(folder):
            stem = name.removesuffix(INDEX_SUFFIX)
            path = f"{folder}/{stem}{LOG_SUFFIX}"
            if stem == name or not mount.exists(path):
                continue
            base_position, base_offset = map(int, stem.split("-"))
            file = mount.open(f"{folder}/{name}")
            rows = file.read(0, file.size())
            for number in range(len(rows) // ROW_BYTES):
                packed = rows[number * ROW_BYTES : (number + 1) * ROW_BYTES]
                position, size, tag_code, _ = ROW.unpack(packed)
                if are_sound(packed) and not is_hole(tag_code):
                    yield _Entry(queue, base_offset + number, path, position - base_position, size)


def repair(disk: SimDisk, broker: str, damage: Damage, now: int) -> bool:
    """Check and repair the disk of a stopped broker. Raises Violation.

    All damage must be found, and nothing else may be lost; it is given up. Returns False if the
    disk is full and the repair possibly incomplete.
    """
    with disk.looked_at():
        files = Files(disk.remount())
        try:
            findings = [item for item in check.check(files) if isinstance(item, check.CheckFinding)]
            found = _damaged(findings, broker)
            known = {place for place in damage.entries if place[0].broker_name == broker}
            known -= damage.given_up
            if found != known:
                raise Violation(
                    f"check finds {len(found)} entries of {len(known)} damaged ones: not"
                    f" {sorted(known - found)}, but {sorted(found - known)}"
                )
            _compare(findings, damage.records.get(broker))
            lost = []
            for deed in salvage.repair(files, findings, str(now), now):
                record = damage.records.get(broker)
                if record is not None and record.path == deed.path:
                    mended(files, broker, damage, deed)
                elif deed.lost:
                    lost.append(deed)
            if len(lost) != len(found):
                raise Violation(f"{len(found)} entries are damaged, a repair loses {lost}")
        except DiskFullError:
            left = check.check(Files(disk.remount()))
            damage.given_up |= found - _damaged(left, broker)
            return False
        finally:
            disk.unmount()
    damage.given_up |= found
    return True


def _compare(findings: list[check.CheckFinding], record: RottenRecord | None) -> None:
    """Besides entries of logs exactly the record must be damaged."""
    found = [
        (item.path, item.position, item.size)
        for item in findings
        if item.part != check.LOG and item.severity == check.DAMAGE
    ]
    known = [] if record is None else [(record.path, record.position, record.size)]
    if found != known:
        raise Violation(f"check finds {found}, damaged is {known}")


def _damaged(findings: Iterable[object], broker: str) -> set[Position]:
    return {
        (MessageQueue(item.topic, broker, item.queue_id), offset)
        for item in findings
        if isinstance(item, check.CheckFinding)
        and item.part == check.LOG
        and item.severity == check.DAMAGE
        for offset in range(item.offset, item.offset + item.count)
    }
