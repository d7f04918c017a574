"""Verification of a data directory without opening a store: owner, tables, logs and indexes.

`check` reads everything and changes nothing. It keeps one table, or a piece of a log, in memory at
a time. It yields:

    BytesRead     how much was read since the last one; for whoever shows that
    CheckFinding  one thing that is not as it was written, or that an operator should know
    Summary       the last word

Unless the last stop was clean, an incomplete write is not damage: the next start truncates it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steelyard.errors import DamageError, DescriptorsError, StorageError
from steelyard.store import clean_stop, identity, log_list
from steelyard.store.files import Files
from steelyard.store.identity import Identity
from steelyard.store.segment_names import end_position
from steelyard.store.table_records import Entry, Gap, decode
from steelyard.store.verify import ROWS, Stretch, verify_log

DAMAGE = "damage"
"""Severity: something was lost, or will not be served."""
NOTE = "note"
"""Severity: nothing acknowledged is lost; the next start deals with it."""

_STARTS_PATH = "tables/log%20starts.table"

TABLE, INDEX, LOG, FOLDER, IDENTITY, STOP = "table", "index", "log", "folder", "identity", "stop"


class CheckFinding(msgspec.Struct, frozen=True):
    """`position`, `size`: in the file, bytes; -1 where the file as a whole is meant.

    `part`: what kind of file it is.

    `position`, `size`: location in the file, in bytes; -1 for the file as a whole. `part`: the kind
    of file. `topic`, `queue_id`, `offset`, `count`: the messages concerned, if the file belongs to
    a log.
    """

    severity: str
    part: str
    path: str
    problem: str
    position: int = -1
    size: int = -1
    topic: str = ""
    queue_id: int = -1
    offset: int = -1
    count: int = 0


class BytesRead(msgspec.Struct, frozen=True, gc=False):
    """So many bytes more were read, of this file."""

    path: str
    bytes: int


class Summary(msgspec.Struct, frozen=True):
    """The totals of a check.

    `clean_stop`: the broker was stopped cleanly, so that all ends are known.
    """

    owner: Identity
    tables: int
    logs: int
    messages: int
    bytes: int
    damage: int
    notes: int
    clean_stop: bool


Result = CheckFinding | BytesRead | Summary


class _Counts:
    """The counts of one check."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.damage = self.notes = 0

    def noted(
        self, results: Iterator[CheckFinding | BytesRead]
    ) -> Iterator[CheckFinding | BytesRead]:
        for result in results:
            if isinstance(result, BytesRead):
                self.bytes += result.bytes
            elif result.severity == DAMAGE:
                self.damage += 1
            else:
                self.notes += 1
            yield result


def check(files: Files) -> Iterator[Result]:
    """Check a data directory as the module docstring describes.

    Raises StorageError for a newer format, or if the disk cannot be read.
    """
    counts = _Counts()
    owner = Identity()
    found: list[CheckFinding] = []
    try:
        owner = identity.read(files).identity
    except DamageError as error:
        found.append(CheckFinding(DAMAGE, IDENTITY, identity.PATH, str(error)))
    ends = clean_stop.read(files)
    if ends is None and files.disk.exists(clean_stop.PATH):
        problem = "cannot be read; the next start treats the last stop as a kill"
        found.append(CheckFinding(NOTE, STOP, clean_stop.PATH, problem))
    yield from counts.noted(iter(found))
    names = [name for name in files.disk.list("tables") if name.endswith(".table")]
    for name in names:
        end = None if ends is None else ends.tables.get(name)
        yield from counts.noted(_check_table(files, f"tables/{name}", end))
    missing = sorted(ends.tables.keys() - set(names)) if ends is not None else []
    gone = [CheckFinding(DAMAGE, TABLE, f"tables/{name}", "is missing") for name in missing]
    yield from counts.noted(iter(gone))
    listed = log_list.read(files)
    folders = log_list.folders(files.disk)
    if folders and listed is None and "logs.table" not in missing:
        lost = CheckFinding(DAMAGE, TABLE, log_list.PATH, "is missing, though there are logs")
        yield from counts.noted(iter([lost]))
    starts = {entry.key: int(entry.value or 0) for entry in entries_of(files, _STARTS_PATH)}
    for folder in sorted(folders):
        place = (listed or {}).get(folders[folder].log_id)
        if place is None:
            problem = "holds a log that no table lists"
            yield from counts.noted(iter([CheckFinding(NOTE, FOLDER, folder, problem)]))
        end = None if ends is None else ends.logs.get(folder)
        start = starts.get(str(folders[folder].log_id), 0)
        results = _check_log(files, folder, folders[folder], counts, end)
        yield from counts.noted(_without_deleted(results, start))
    for folder, (position, offset) in sorted(ends.logs.items()) if ends is not None else ():
        yield from counts.noted(_check_end(files, folder, position, offset))
    yield Summary(
        owner,
        len(names),
        len(folders),
        counts.messages,
        counts.bytes,
        counts.damage,
        counts.notes,
        ends is not None,
    )


def _check_table(
    files: Files, path: str, end: tuple[int, int] | None
) -> Iterator[CheckFinding | BytesRead]:
    data = files.read(path, 0, files.size(path))
    yield BytesRead(path, len(data))
    sound = True
    for item in decode(data):
        if isinstance(item, Gap):
            sound = False
            yield _gap(path, item, torn=item.torn and end is None)
    if sound and end is not None and clean_stop.end_of(data) != end:
        problem = f"is not as the last clean stop left it: {len(data)} bytes in place of {end[0]}"
        yield CheckFinding(DAMAGE, TABLE, path, problem)


def _gap(path: str, gap: Gap, *, torn: bool) -> CheckFinding:
    whose = f"; it seems to set key {gap.key!r}" if gap.key else ""
    if torn:
        problem = "an incomplete write; the next start truncates it"
        return CheckFinding(NOTE, TABLE, path, problem, gap.position, gap.size)
    problem = f"no record whose checksum matches{whose}"
    return CheckFinding(DAMAGE, TABLE, path, problem, gap.position, gap.size)


def _check_log(
    files: Files,
    folder: str,
    place: log_list.Folder,
    counts: _Counts,
    end: tuple[int, int] | None,
) -> Iterator[CheckFinding | BytesRead]:
    for stretch in _readable(verify_log(files, folder, end), folder):
        if isinstance(stretch, CheckFinding):
            yield stretch
            continue
        yield BytesRead(stretch.path, stretch.size)
        if stretch.part == LOG:
            counts.messages += stretch.count
        if stretch.problem:
            yield CheckFinding(
                DAMAGE if stretch.part == LOG else NOTE,
                INDEX if stretch.part == ROWS else LOG,
                stretch.path,
                stretch.problem,
                stretch.position,
                stretch.size,
                place.topic,
                place.queue_id,
                stretch.offset,
                stretch.count,
            )


def _readable(stretches: Iterator[Stretch], folder: str) -> Iterator[Stretch | CheckFinding]:
    """Yield the stretches of a log, and as the last one that the disk cannot read it."""
    try:
        yield from stretches
    except DescriptorsError:
        raise
    except StorageError as error:
        yield CheckFinding(DAMAGE, FOLDER, folder, f"could not be verified: {error}")


def _without_deleted(
    results: Iterator[CheckFinding | BytesRead], start: int
) -> Iterator[CheckFinding | BytesRead]:
    """Reduce damage before a log's first offset to a note: those messages were deleted."""
    for result in results:
        if isinstance(result, CheckFinding) and result.part == LOG and 0 < _end_of(result) <= start:
            problem = f"{result.problem}; these messages were deleted"
            yield msgspec.structs.replace(result, severity=NOTE, problem=problem)
        else:
            yield result


def _end_of(finding: CheckFinding) -> int:
    return finding.offset + finding.count


def _check_end(files: Files, folder: str, position: int, offset: int) -> Iterator[CheckFinding]:
    """Where a log ended at the last clean stop, it must end now."""
    found = end_position(files, folder)
    if found != position:
        problem = (
            f"ends at byte {found} of the log; the last clean stop left it at byte {position},"
            f" before offset {offset}"
        )
        yield CheckFinding(DAMAGE, FOLDER, folder, problem)


def entries_of(files: Files, path: str) -> list[Entry]:
    """Return the intact records of a table's file, in order."""
    if not files.disk.exists(path):
        return []
    data = files.read(path, 0, files.size(path))
    return [item for item in decode(data) if isinstance(item, Entry)]
