"""The store of one broker: a log per queue, and tables, below one data directory.

    format                                the format and the owner; see `identity`
    clean-stop                            the ends of all files after a clean stop; see `clean_stop`
    tables/<name>.table                   see `tables`; the store's own: `logs` and `log starts`
    logs/<topic>/<queue id>-<log id>/     one log; created with its first entry
        <position>-<offset>.log, .rows    one segment; see `segment`, and `cleaned` for others

A log id is never reused, so that an address names one entry for ever; the exception is an id that a
power cut lost before it reached the disk. Names of topics and tables are escaped (`file_name`).

Guarantees. When an append has returned, the kernel has the entry: it survives the end of the
process. When `flush` has returned, or `Unsynced.sync` on the result of a later `take_dirty`, the
disk has it.

Threads. A store belongs to one thread. Only `Unsynced.sync()` may run in another one. For group
commit: append, append, ...; `unsynced = store.take_dirty()`; let another thread run
`unsynced.sync()` while appends go on; then everything appended before `take_dirty` may be
acknowledged. When `sync` raises, acknowledge nothing more and stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from steelyard.config import StoreConfig
from steelyard.errors import DamageError, DiskFullError, StorageError
from steelyard.store import clean_stop, identity, log_list
from steelyard.store.address import LOG_ID_MAX, POSITION_BITS
from steelyard.store.disk import Disk
from steelyard.store.files import OPEN_FILES_MAX, Files, Unsynced, storage_error
from steelyard.store.findings import Findings
from steelyard.store.identity import Identity
from steelyard.store.index import Buffers
from steelyard.store.log import Log
from steelyard.store.log_config import LogConfig, usual
from steelyard.store.log_list import Folder, ListedLog
from steelyard.store.recovery import LogRecovery, Recovery, TableDamage, TableRecovery
from steelyard.store.segment import Origin
from steelyard.store.segment_names import end_position
from steelyard.store.tables import Table

BUFFERED_ROWS_MAX = 65_536
"""Index rows in memory for all logs: 1.8 MB, and a third of a second to rebuild after a kill."""

NAME_BYTES_MAX = 200
"""Limit for file names; file systems allow 255, the rest is for suffixes."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Store:
    """The store of a broker; see the module docstring. Call `open` first."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        owner: Identity | None = None,
        *,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        """`owner`: the broker that owns the data directory, or will own it; None accepts any."""
        self._disk = disk
        self._owner = owner
        self._flush_rows = config.index_flush_rows
        usual_config = usual(config)
        self._config_of: Callable[[str], LogConfig] = lambda topic: usual_config
        self._files = Files(disk, open_files_max)
        self._buffers = Buffers(BUFFERED_ROWS_MAX)
        self.findings = Findings()
        self._tables: dict[str, Table] = {}
        self._topics: dict[str, dict[int, Log]] = {}
        self._by_id: dict[int, Log] = {}
        self._last_id = 0
        self._is_open = False
        self.was_clean = False
        """Whether the data directory was as a clean stop leaves it when it was opened."""

    # -- opening and closing ---------------------------------------------------------------------

    def open(self, now: int) -> Recovery:
        """Open and repair the data directory; return what was found.

        `Log.retain` deletes old messages.

        Raises StorageError if the directory was written by a newer version, OwnerError if it
        belongs to another broker, and DamageError if a table, or the directory itself, is damaged;
        nothing has changed then.
        """
        assert not self._is_open
        format_before = identity.claim(self._files, self._owner)
        ends = clean_stop.read(self._files)
        self.was_clean = ends is not None
        tables = self._recover_tables(ends)
        self._is_open = True
        places = dict(self._places())
        folders = log_list.folders(self._disk)
        self._check_logs(places, folders, ends)
        clean_stop.remove(self._files)
        for log_id, place in places.items():
            log = self._make_log(log_id, place)
            if place.deleted:
                log.recover(now)
                self._delete_files([log])
                folders.pop(log.folder, None)
        recovered = []
        for log_id, place in places.items():
            if not place.deleted:
                log = self._add_log(log_id, place)
                if folders.pop(log.folder, None) is not None or str(log_id) in self._starts():
                    end = None if ends is None else ends.logs.get(log.folder)
                    recovered.append(log.recover(now, end))
        self._last_id = max([self._last_id, *places, *(each.log_id for each in folders.values())])
        return Recovery(
            len(self._by_id),
            sum(report.entries for report in recovered),
            tuple(report for report in recovered if _was_repaired(report)),
            tables,
            tuple(sorted(folders)),
            format_before if 0 < format_before < identity.FORMAT else 0,
        )

    def _recover_tables(self, ends: clean_stop.Ends | None) -> tuple[TableRecovery, ...]:
        """Read all tables. Raises DamageError that names every damaged file."""
        reports: dict[str, TableRecovery] = {}
        for file in self._disk.list("tables"):
            name, _, suffix = file.rpartition(".")
            if suffix == "table":
                table = self._tables[file] = Table(self._files, f"tables/{file}")
                reports[file] = table.recover(name, None if ends is None else ends.tables.get(file))
        damage = [item for report in reports.values() for item in report.damage]
        if ends is not None:
            missing = sorted(ends.tables.keys() - reports.keys())
            damage += [
                TableDamage(f"tables/{file}", 0, 0, problem="is missing") for file in missing
            ]
        _raise(damage)
        return tuple(reports.values())

    def _check_logs(
        self, places: dict[int, ListedLog], folders: dict[str, Folder], ends: clean_stop.Ends | None
    ) -> None:
        """Raise DamageError if logs or their table are missing or end elsewhere."""
        damage: list[TableDamage] = []
        if folders and not self._disk.exists(log_list.PATH):
            damage.append(TableDamage(log_list.PATH, 0, 0, problem="is missing"))
        for folder, (position, _) in ends.logs.items() if ends is not None else ():
            found = end_position(self._files, folder)
            if found != position:
                problem = (
                    f"ends at byte {found} of the log;"
                    f" the last clean stop left it at byte {position}"
                )
                damage.append(TableDamage(folder, 0, 0, problem=problem))
        _raise(damage)

    def _places(self) -> Iterator[tuple[int, ListedLog]]:
        for key, value in self.table("logs").items():
            if key == log_list.LAST_ID:
                self._last_id = int(value)
            else:
                yield int(key), log_list.decode(value)

    def close(self) -> None:
        """Flush, then close the files. A closed store stays closed."""
        if self._is_open:
            is_whole = self._files.mend()
            self.flush()
            if is_whole:
                clean_stop.write(self._files, self._ends())
            self._files.close()
            self._is_open = False

    def _ends(self) -> clean_stop.Ends:
        tables = {file: table.end for file, table in self._tables.items() if table.end[0]}
        logs = {log.folder: log.end for log in self._by_id.values() if log.has_files}
        return clean_stop.Ends(tables, logs)

    # -- logs ------------------------------------------------------------------------------------

    def log(self, topic: str, queue_id: int) -> Log | None:
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def logs(self, topic: str) -> list[Log]:
        """Return the logs of a topic by queue id."""
        return [log for _, log in sorted(self._topics.get(topic, {}).items())]

    def topics(self) -> list[str]:
        """Return the topics that have logs, sorted."""
        return sorted(self._topics)

    def create_log(self, topic: str, queue_id: int) -> Log:
        """Return the log of a queue, created if it does not exist.

        Its files come with the first entry.
        """
        return self.create_logs(topic, (queue_id,))[0]

    def create_logs(self, topic: str, queue_ids: tuple[int, ...]) -> list[Log]:
        """Return the logs of these queues; missing ones are created, all in one write."""
        assert self._is_open
        missing = [queue_id for queue_id in queue_ids if self.log(topic, queue_id) is None]
        if missing:
            last_id = self._last_id + len(missing)
            if last_id > LOG_ID_MAX:
                raise StorageError(f"all {LOG_ID_MAX} log ids have been given out")
            new = {
                self._last_id + 1 + number: ListedLog(topic, queue_id)
                for number, queue_id in enumerate(missing)
            }
            # They may be left from a log that had the id before a power cut; see the module
            # docstring.
            self._starts().put_many([(str(i), None) for i in new if str(i) in self._starts()])
            rows = [(str(log_id), log_list.encode(place)) for log_id, place in new.items()]
            self.table("logs").put_many([(log_list.LAST_ID, str(last_id).encode()), *rows])
            self._last_id = last_id
            for log_id, place in new.items():
                self._add_log(log_id, place)
        queues = self._topics[topic] if queue_ids else {}
        return [queues[queue_id] for queue_id in queue_ids]

    def delete_topic(self, topic: str) -> None:
        """Delete all logs of a topic with their files; a topic need not have any.

        Ids are not reused.

        Raises StorageError; the topic then still has its logs, but possibly not their contents.
        """
        self._delete_logs(topic, list(self._topics.get(topic, {}).values()))

    def delete_log(self, log: Log) -> None:
        """Delete one log with its files, as `delete_topic` does all. Raises StorageError."""
        self._delete_logs(log.topic, [log])

    def _delete_logs(self, topic: str, logs: list[Log]) -> None:
        if not logs:
            return
        places = [(str(log.log_id), ListedLog(topic, log.queue_id, deleted=True)) for log in logs]
        rows = [(log_id, log_list.encode(place)) for log_id, place in places]
        try:
            self.table("logs").put_many(rows)
        except DiskFullError:
            # Deleting the files frees the missing space. After a kill in between the queues exist,
            # but are empty.
            if not any(log.has_files for log in logs):
                raise
            for log in logs:
                log.delete()
            self.table("logs").put_many(rows)
        queues = self._topics[topic]
        for log in logs:
            del queues[log.queue_id]
            del self._by_id[log.log_id]
        if not queues:
            del self._topics[topic]
        self._delete_files(logs)

    def at_address(self, address: int) -> bytes | None:
        """Return the entry that begins at an address; None if none does."""
        log = self._by_id.get(address >> POSITION_BITS)
        return None if log is None else log.at_address(address)

    def configure(self, config_of: Callable[[str], LogConfig]) -> None:
        """Take the settings of each topic's logs from `config_of`, for existing and later logs.

        Until then all logs have those of the StoreConfig. Call it again when the settings of a
        topic changed.
        """
        self._config_of = config_of
        for topic, queues in self._topics.items():
            config = config_of(topic)
            for log in queues.values():
                if log.config != config:
                    log.configure(config)

    def all_logs(self) -> list[Log]:
        """The logs of all topics."""
        return list(self._by_id.values())

    def drop_oldest(self, bytes_wanted: int) -> tuple[int, int]:
        """Delete the oldest closed segments of all logs until this many bytes are free.

        Returns (messages, bytes) deleted. Ignores retention; the last segment of a log stays.
        Raises StorageError.
        """
        oldest = [(*found, log.log_id) for log in self._by_id.values() if (found := log.oldest())]
        heapify(oldest)
        messages = freed = 0
        while oldest and freed < bytes_wanted:
            _, size, log_id = heappop(oldest)
            log = self._by_id[log_id]
            messages += log.drop_oldest()
            freed += size
            if found := log.oldest():
                heappush(oldest, (*found, log_id))
        return messages, freed

    def _make_log(self, log_id: int, place: ListedLog) -> Log:
        folder = f"logs/{file_name(place.topic)}/{place.queue_id}-{log_id}"
        made_with = (self._files, self._buffers, self._flush_rows, folder)
        origin = Origin(*made_with, place.topic, place.queue_id, log_id, self.findings)
        return Log(origin, self._config_of(place.topic), self._starts())

    def _starts(self) -> Table:
        return self.table("log starts")

    def _add_log(self, log_id: int, place: ListedLog) -> Log:
        log = self._by_id[log_id] = self._make_log(log_id, place)
        self._topics.setdefault(place.topic, {})[place.queue_id] = log
        return log

    def _delete_files(self, logs: list[Log]) -> None:
        for log in logs:
            log.delete()
        folder = logs[0].folder.rpartition("/")[0]
        if not self._files.list(folder):
            self._files.remove(folder)
        self.table("logs").put_many([(str(log.log_id), None) for log in logs])
        starts = self._starts()
        ids = [str(log.log_id) for log in logs]
        starts.put_many([(log_id, None) for log_id in ids if log_id in starts])

    # -- tables ----------------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        """Return the table of this name; it is created with its first value."""
        assert self._is_open, "a table read before `open` would be empty"
        file = f"{file_name(name)}.table"
        table = self._tables.get(file)
        if table is None:
            table = self._tables[file] = Table(self._files, f"tables/{file}")
        return table

    # -- the disk --------------------------------------------------------------------------------

    def space(self) -> tuple[int, int]:
        """Return (writable bytes, total bytes) of the data directory's disk.

        Raises StorageError.
        """
        try:
            return self._disk.space()
        except OSError as error:
            raise storage_error("look at", "the data directory", error) from error

    def dirty(self) -> bool:
        """Return whether anything was written that the disk may not have yet."""
        return self._files.dirty()

    def take_dirty(self) -> Unsynced:
        """Return what must be synced to bring all data so far to disk; see the module docstring.

        Index files are never included: recovery rebuilds lost rows.
        """
        return self._files.take()

    def flush_index(self) -> None:
        """Write the buffered index rows, so that the next start has less to read."""
        self._buffers.flush()

    def flush(self) -> None:
        """Write the index rows and sync logs and tables to disk. Blocks the store's own thread.

        Does not rely on an `Unsynced.sync` that another thread has not finished.
        """
        self._buffers.flush()
        self._files.take(again=True).sync()

    def check(self) -> None:
        """Assert the invariants between logs; for tests and simulation."""
        for topic, queues in self._topics.items():
            for queue_id, log in queues.items():
                assert (log.topic, log.queue_id) == (topic, queue_id)
                assert self._by_id[log.log_id] is log
                assert log.log_id <= self._last_id
                log.check()


def file_name(name: str) -> str:
    """Return a unique name that every file system accepts, for any text.

    Letters, digits, `_` and `-` stay, other bytes of the UTF-8 become %XX; names that are too long
    are cut and end in a hash. Names that differ only in case need a case-sensitive file system.
    """
    data = name.encode()
    escaped = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)
    if len(escaped) <= NAME_BYTES_MAX:
        return escaped
    return f"{escaped[: NAME_BYTES_MAX - 33]}~{hashlib.sha256(data).hexdigest()[:32]}"


def _raise(damage: list[TableDamage]) -> None:
    """Raise DamageError if there is any damage."""
    if damage:
        more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
        paths = tuple(dict.fromkeys(item.path for item in damage))
        raise DamageError(f"{damage[0]}{more}", paths)


def _was_repaired(report: LogRecovery) -> bool:
    return bool(
        report.rows_made
        or report.rows_cut
        or report.bytes_cut
        or report.segments_cut
        or report.damaged
    )
