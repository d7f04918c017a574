"""A consistent copy of a data directory, made while a broker may be writing to it.

The broker does not know of it: files are only read, without the directory's lock. The copy is what
a kill might have left, and the broker that opens it recovers it like that:

- **Nothing that was acknowledged before `copy` was called is missing**, unless retention or a
  client deleted it meanwhile.
- **Each log is a prefix** of what was appended, from where retention has come to. Logs end within
  the time that it takes to look at all of them, some 0.1 s for a thousand logs.
- **Tables are of one moment, before the end of every log.** No committed offset, progress of a
  schedule or state of a transaction refers to an entry that the copy does not have.

What makes it so:

1. Tables first, logs afterwards. A table's file only grows, or is replaced as a whole. All of them
   are open when their sizes are looked at, twice: if no file has grown or been replaced in
   between, the sizes are of one moment, and the bytes before them do not change later, because a
   replaced file stays readable while it is open.
2. Then the ends of all logs that the copied table `logs` lists, and of their indexes before them,
   so that rows of entries that are not copied are not, either. Logs created later are left out.
3. Segments are copied from the last to the first. Retention deletes from the first on, so that one
   that is missing means that all before it are gone as well, and no gap remains. Compaction
   replaces segments, too; then everything is done again as in 4. Whatever it has removed from one
   that is copied later has a newer value in one that was copied before.
4. If a topic was deleted meanwhile, or all segments of a log, offsets in the copied tables would
   refer to what is gone. Everything is then done again, but segments that are unchanged stay.
5. `format` is written last, when everything else is on the disk: without it no broker and no
   `check` accepts the directory, so that an interrupted copy is never mistaken for a whole one.

`clean-stop` is not copied, and neither is what was set aside as damaged. Damage of the source is
copied as it is; only `check` on the copy finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple, Protocol, Self

import msgspec

from steelyard.errors import StorageError
from steelyard.store import identity, log_list
from steelyard.store.check import BytesRead
from steelyard.store.files import Files
from steelyard.store.log_list import ListedLog
from steelyard.store.segment_names import LOG_SUFFIX, SegmentName, segments_among
from steelyard.store.store import file_name

PIECE_BYTES = 1024 * 1024
"""How much is in memory at a time."""

ATTEMPTS_MAX = 10
"""How often everything is copied before deletions are too much; see 4. above."""

LOOKS_MAX = 20_000
"""How often the sizes of tables are looked at before they change too fast; see 1. above."""


class Mark(NamedTuple):
    """Which file it is, whatever its name, and how many bytes it has."""

    file_id: int
    size: int


class SourceFile(Protocol):
    """A file that is open for reading. It stays readable when it is replaced or removed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def mark(self) -> Mark: ...

    def read(self, position: int, size: int, /) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""


class Source(Protocol):
    """The files of a data directory that another process may be changing; raises OSError."""

    def list(self, folder: str, /) -> list[str]:
        """Return the names in a folder, sorted; none if it is missing."""

    def mark(self, path: str, /) -> Mark | None:
        """Return the mark of the file that has this name now; None if none has."""

    def open(self, path: str, /) -> SourceFile | None:
        """Open a file; None if it is missing."""


class _LogEnd(msgspec.Struct, frozen=True):
    """Where a log ended: its segments, and the bytes that the last one's files had."""

    log_id: int
    folder: str
    names: list[SegmentName]
    index_bytes: int
    log_bytes: int


class _GoneError(Exception):
    """What was to be copied has been deleted meanwhile."""


def copy(source: Source, files: Files) -> Iterator[BytesRead]:
    """Copy the data directory into an empty one, as the module docstring describes; say how far.

    Raises StorageError if the source is not a data directory, has a newer format, or changes faster
    than it can be copied, and if a file cannot be written; DamageError if its `format` is damaged.
    """
    head = _format(source)
    copying = _Copying(source, files)
    for _ in range(ATTEMPTS_MAX):
        try:
            yield from copying.attempt()
            break
        except _GoneError:
            continue
    else:
        raise StorageError(
            f"topics, or all messages of a queue, were deleted during each of {ATTEMPTS_MAX}"
            " attempts to copy them; try again when fewer are deleted"
        )
    files.take().sync()
    files.create(identity.PATH)
    files.write(identity.PATH, 0, head)
    files.take().sync()
    files.sync_folder("")


def _format(source: Source) -> bytes:
    """Return the source's file `format`. Raises for one that this version cannot use."""
    file = source.open(identity.PATH)
    if file is None:
        raise StorageError(f"not a data directory: the file {identity.PATH!r} is missing")
    with file:
        data = file.read(0, identity.FILE_BYTES_MAX)
    identity.parse(data)
    return data


class _Copying:
    """The attempts to copy one data directory."""

    def __init__(self, source: Source, files: Files) -> None:
        self._source = source
        self._files = files
        self._copied: dict[str, int] = {}
        """How many bytes of each file of a log the target has."""
        self._wanted: set[str] = set()
        """The files of logs in this attempt."""

    def attempt(self) -> Iterator[BytesRead]:
        """Copy everything but `format`. Raises _GoneError if that has to be done again."""
        self._wanted = set()
        yield from self._copy_tables()
        listed = self._listed()
        ends = [end for log_id, place in listed.items() if (end := self._end_of(log_id, place))]
        for end in ends:
            yield from self._copy_log(end)
        self._check_listed(ends)
        self._drop_unwanted()

    # -- tables ----------------------------------------------------------------------------------

    def _copy_tables(self) -> Iterator[BytesRead]:
        with ExitStack() as stack:
            for path, (file, size) in self._tables_at_once(stack).items():
                self._files.remove(path)
                self._files.create(path)
                yield from self._copy_bytes(file, path, size)

    def _tables_at_once(self, stack: ExitStack) -> dict[str, tuple[SourceFile, int]]:
        """Open all tables, and return how many bytes each had at one moment."""
        opened: dict[str, tuple[int, SourceFile]] = {}
        before: dict[str, Mark | None] = {}
        for _ in range(LOOKS_MAX):
            names = [name for name in self._source.list("tables") if name.endswith(".table")]
            now = {path: self._source.mark(path) for path in (f"tables/{name}" for name in names)}
            tables = {path: mark for path, mark in now.items() if mark is not None}
            if now == before and len(tables) == len(now):
                return {path: (opened[path][1], mark.size) for path, mark in tables.items()}
            before = now
            for path, mark in tables.items():
                if path not in opened or opened[path][0] != mark.file_id:
                    file = self._source.open(path)
                    if file is not None:
                        stack.enter_context(file)
                        opened[path] = file.mark().file_id, file
                    if file is None or opened[path][0] != mark.file_id:
                        before = {}  # replaced in between
        raise StorageError(
            f"the tables changed each of the {LOOKS_MAX} times that they were looked at; try again"
            " when there are fewer commits"
        )

    def _listed(self) -> dict[int, ListedLog]:
        """The logs that the copied table lists."""
        listed = log_list.read(self._files) or {}
        return {log_id: place for log_id, place in listed.items() if not place.deleted}

    # -- logs ------------------------------------------------------------------------------------

    def _end_of(self, log_id: int, place: ListedLog) -> _LogEnd | None:
        """Look at where a log ends; None as long as it has no files."""
        folder = f"logs/{file_name(place.topic)}/{place.queue_id}-{log_id}"
        names = segments_among(self._source.list(folder))
        if not names:
            return None
        index = self._source.mark(f"{folder}/{names[-1]}{names[-1].index_suffix}")
        log = self._source.mark(f"{folder}/{names[-1]}{LOG_SUFFIX}")
        if log is None:
            raise _GoneError
        return _LogEnd(log_id, folder, names, 0 if index is None else index.size, log.size)

    def _copy_log(self, end: _LogEnd) -> Iterator[BytesRead]:
        """Copy the segments, the last one first."""
        last = end.names[-1]
        for name in reversed(end.names):
            path = f"{end.folder}/{name}{LOG_SUFFIX}"
            file = self._source.open(path)
            if file is None and (name == last or self._is_replaced(end, name)):
                raise _GoneError
            if file is None:
                break
            with file:
                size = end.log_bytes if name == last else file.mark().size
                yield from self._copy_index(end, name)
                yield from self._copy_file(file, path, size)

    def _is_replaced(self, end: _LogEnd, name: SegmentName) -> bool:
        """Return whether compaction, not retention, removed a segment."""
        now = segments_among(self._source.list(end.folder))
        return any(each.replaces(name) for each in now)

    def _copy_index(self, end: _LogEnd, name: SegmentName) -> Iterator[BytesRead]:
        """Copy a segment's index, if it has one: the log alone is enough to rebuild it."""
        path = f"{end.folder}/{name}{name.index_suffix}"
        file = self._source.open(path)
        if file is not None:
            with file:
                is_last = name == end.names[-1]
                yield from self._copy_file(
                    file, path, end.index_bytes if is_last else file.mark().size
                )

    def _copy_file(self, file: SourceFile, path: str, size: int) -> Iterator[BytesRead]:
        """Copy a file of a log, unless an earlier attempt has copied as much of it."""
        self._wanted.add(path)
        if self._copied.get(path) != size:
            self._files.remove(path)
            self._files.create(path)
            yield from self._copy_bytes(file, path, size)
            self._copied[path] = size

    def _copy_bytes(self, file: SourceFile, path: str, size: int) -> Iterator[BytesRead]:
        position = 0
        while position < size:
            data = file.read(position, min(PIECE_BYTES, size - position))
            if not data:
                return  # a write that failed was undone
            self._files.write(path, position, data)
            position += len(data)
            yield BytesRead(path, len(data))

    def _check_listed(self, ends: list[_LogEnd]) -> None:
        """Raise _GoneError if a log of these is being deleted now."""
        file = self._source.open(log_list.PATH)
        now: dict[int, ListedLog] = {}
        if file is not None:
            with file:
                now = log_list.rows_in(file.read(0, file.mark().size))
        for end in ends:
            place = now.get(end.log_id)
            if place is None or place.deleted:
                raise _GoneError

    def _drop_unwanted(self) -> None:
        """Remove what earlier attempts copied and retention or a client has deleted since."""
        for path in sorted(self._copied.keys() - self._wanted):
            self._files.remove(path)
            folder = path.rpartition("/")[0]
            while folder and not self._files.list(folder):
                self._files.remove(folder)
                folder = folder.rpartition("/")[0]
