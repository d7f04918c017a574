"""Repair of a data directory: sets damage aside, keeps what is intact, and reports what is lost.

Nothing is deleted: damaged data is put in a folder `damaged-<label>` of the data directory, under
its own path. A file is replaced atomically after its copy was synced, so that an interrupted repair
can be repeated.

    format, clean-stop      set aside; the next broker that starts owns the directory
    a table                 rewritten with its intact records. If a record is lost, an older value
                            of the key becomes current, or none
    tables/logs.table       also gets the logs whose folders exist
    a log                   damaged entries stay in place, and a copy of them is set aside; readers
                            skip their offsets, which are not reused
    an index                rebuilt from its log
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import msgspec

from steelyard.config import StoreConfig
from steelyard.errors import StorageError
from steelyard.store import check, clean_stop, identity, log_list
from steelyard.store.check import CheckFinding
from steelyard.store.files import Files
from steelyard.store.identity import Identity
from steelyard.store.store import Store, file_name
from steelyard.store.table_records import Gap, decode
from steelyard.store.table_records import encode as encode_record
from steelyard.wording import counted

COPY_BYTES = 1024 * 1024


class Deed(msgspec.Struct, frozen=True):
    """One repair. `lost`: what no reader will get, empty if nothing is lost."""

    path: str
    done: str
    lost: str = ""


def repair(files: Files, findings: Iterable[CheckFinding], label: str, now: int) -> Iterator[Deed]:
    """Make good what `check` found; what was done, one by one.

    Raises StorageError; then it can be run again.
    """
    aside = f"damaged-{label}"
    found = list(findings)
    for finding in found:
        if finding.part == check.LOG and finding.severity == check.DAMAGE:
            yield _keep_copy(files, finding, aside)
    for path in dict.fromkeys(item.path for item in found if item.part == check.INDEX):
        _move(files, path, aside)
        yield Deed(path, f"moved to {aside}/, rebuilt from the log")
    damaged = {(item.path, item.position) for item in found if item.severity == check.DAMAGE}
    for path in dict.fromkeys(item.path for item in found if item.part == check.TABLE):
        yield from _mend_table(files, path, aside, damaged)
    yield from _mend_list(files, found, aside)
    for finding in found:
        if finding.part == check.FOLDER and finding.severity == check.DAMAGE:
            yield Deed(finding.path, "left unchanged", f"what it held there: it {finding.problem}")
        elif finding.part == check.IDENTITY:
            yield from _mend_identity(files, aside)
        elif finding.part == check.STOP:
            _move(files, finding.path, aside)
            yield Deed(finding.path, f"moved to {aside}/")
    if any(finding.severity == check.DAMAGE for finding in found):
        clean_stop.remove(files)
    store = Store(files.disk, StoreConfig(retention_ms=0))
    recovery = store.open(now)
    for text in recovery.warnings():
        yield Deed(".", text)
    yield from _pass_over(store, found)
    store.close()


def disown(files: Files) -> Identity:
    """Let the next broker that starts own the directory; return the previous owner."""
    owner = identity.read(files).identity
    identity.write(files, Identity())
    return owner


def _keep_copy(files: Files, finding: CheckFinding, aside: str) -> Deed:
    path = f"{aside}/{finding.path}.{finding.position}"
    try:
        data = files.read(finding.path, finding.position, min(finding.size, COPY_BYTES))
    except StorageError as error:
        return Deed(finding.path, f"there is no copy of byte {finding.position}: {error}")
    _write(files, path, data)
    return Deed(finding.path, f"a copy of byte {finding.position} and what follows is {path}")


def _mend_table(
    files: Files, path: str, aside: str, damaged: Set[tuple[str, int]]
) -> Iterator[Deed]:
    """Rewrite the table without damaged records.

    `damaged`: paths and positions of damage. Other gaps are writes that were not finished.
    """
    if not files.disk.exists(path):
        if path != log_list.PATH:
            yield Deed(path, "rebuilt when it is needed", "everything that it held")
        return
    data = files.read(path, 0, files.size(path))
    whole: list[bytes] = []
    lost: list[str] = []
    for item in decode(data):
        if isinstance(item, Gap):
            lost.append(_lost(item) if (path, item.position) in damaged else "")
        else:
            whole.append(data[item.position : item.position + item.size])
    _write(files, f"{aside}/{path}", data)
    _write(files, f"{path}.new", b"".join(whole))
    files.rename(f"{path}.new", path)
    done = f"a copy is in {aside}/, {counted(len(whole), 'record')} kept"
    if not lost:
        yield Deed(path, done, "what was written behind them, if anything was")
    for text in lost:
        yield Deed(path, done, text)


def _lost(gap: Gap) -> str:
    if gap.torn:
        return f"what was written from byte {gap.position} on: older values become current, or none"
    if gap.key:
        whose = f"the record at byte {gap.position}, which seems to set key {gap.key!r}"
        return f"{whose}: an older value becomes current, or none"
    return f"the records in {gap.size} bytes from byte {gap.position} on; their keys are unknown"


def _mend_list(files: Files, found: list[CheckFinding], aside: str) -> Iterator[Deed]:
    """List logs that no table lists. If their queue has another log, set their folder aside."""
    unlisted = [item.path for item in found if item.part == check.FOLDER and item.position == -1]
    listed = log_list.read(files) or {}
    queues = {(row.topic, row.queue_id) for row in listed.values()}
    folders = log_list.folders(files.disk)
    rows = b""
    for path in unlisted:
        folder = folders.get(path)
        if folder is None or folder.log_id in listed:
            continue
        topic = folder.topic or _topic_of(files, path)
        if not topic or (topic, folder.queue_id) in queues:
            why = "another log of that queue is listed" if topic else "its topic is unknown"
            for name in files.disk.list(path):
                _move(files, f"{path}/{name}", aside)
            yield Deed(path, f"moved to {aside}/: {why}", "its messages")
            continue
        queues.add((topic, folder.queue_id))
        place = log_list.ListedLog(topic, folder.queue_id)
        rows += encode_record(str(folder.log_id), log_list.encode(place))
        yield Deed(path, f"listed as queue {folder.queue_id} of topic {topic!r}")
    if rows:
        last = max(folder.log_id for folder in folders.values())
        last = max([last, *listed])
        rows += encode_record(log_list.LAST_ID, b"%d" % last)
        path = log_list.PATH
        size = files.size(path) if files.disk.exists(path) else 0
        data = files.read(path, 0, size) if size else b""
        _write(files, f"{path}.new", data + rows)
        files.rename(f"{path}.new", path)


def _topic_of(files: Files, path: str) -> str:
    """Find the topic whose name was too long for its folder, in the table of topics."""
    for entry in check.entries_of(files, "tables/topics.table"):
        if file_name(entry.key) == path.split("/")[1]:
            return entry.key
    return ""


def _mend_identity(files: Files, aside: str) -> Iterator[Deed]:
    if files.disk.exists(identity.PATH):
        data = files.read(identity.PATH, 0, files.size(identity.PATH))
        _write(files, f"{aside}/{identity.PATH}", data)
    identity.write(files, Identity())
    done = f"rebuilt, a copy is in {aside}/; the next broker that starts takes the directory"
    yield Deed(identity.PATH, done, "whose directory it was")


def _pass_over(store: Store, found: list[CheckFinding]) -> Iterator[Deed]:
    """Have readers pass over damaged messages; their offsets are not given to others."""
    for finding in found:
        log = store.log(finding.topic, finding.queue_id) if finding.part == check.LOG else None
        if log is None or not finding.path.startswith(f"{log.folder}/"):
            continue
        offset, end = max(finding.offset, log.min_offset), finding.offset + finding.count
        while offset < min(end, log.max_offset):
            first, count = log.give_up(offset)
            lost = f"offset {first}" if count == 1 else f"offsets {first} to {first + count - 1}"
            lost += f" of queue {finding.queue_id} of topic {finding.topic!r}"
            yield Deed(finding.path, "readers skip what is damaged", lost)
            offset = first + count


def _write(files: Files, path: str, data: bytes) -> None:
    """Write a new file and sync it to disk."""
    files.remove(path)
    files.create(path)
    files.write(path, 0, data)
    files.take().sync()


def _move(files: Files, path: str, aside: str) -> None:
    target = f"{aside}/{path}"
    files.disk.make_folder(target.rpartition("/")[0])
    files.rename(path, target)
