"""The store of one broker: a log per queue, and tables, below one data directory.

    format                                      the version of what is here, and whose it is; see `identity`
    clean-stop                                  the ends of all files, as long as nobody writes; see `clean_stop`
    tables/<name>.table                         see `tables`; the store's own are `logs` and `log starts`
    logs/<topic>/<queue id>-<log id>/           one log; made when its first entry comes
        <position>-<offset>.log, .rows          one segment; see `segment`

A log id is given once and never again, so that an address names one entry for ever; after a power cut one that no disk
had heard of may be. Names of topics and
tables are escaped (`file_name`).

What is promised. When an append has returned, the kernel has the entry: it survives the end of the
process. When `flush`, or `Unsynced.sync` of what `take_dirty` gave afterwards, has returned, the disk has it.

Threads. A store belongs to one thread. The one thing that may run elsewhere meanwhile is
`Unsynced.sync()`. For group commit: append, append, ...; `unsynced = store.take_dirty()`; let another
thread run `unsynced.sync()` while appends go on; then everything appended before `take_dirty` may be
acknowledged. When `sync` raises, acknowledge nothing more and stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from steelyard.config import StoreConfig
from steelyard.errors import DamageError, DiskFullError, StorageError
from steelyard.store import clean_stop, identity, log_list
from steelyard.store.disk import Disk
from steelyard.store.files import OPEN_FILES_MAX, Files, Unsynced, storage_error
from steelyard.store.findings import Findings
from steelyard.store.identity import Identity
from steelyard.store.index import Buffers
from steelyard.store.log import LOG_ID_MAX, Log
from steelyard.store.log_config import LogConfig, usual
from steelyard.store.log_list import Folder, ListedLog
from steelyard.store.recovery import LogRecovery, Recovery, TableDamage, TableRecovery
from steelyard.store.segment import POSITION_BITS, Origin
from steelyard.store.segments import end_position
from steelyard.store.tables import Table

BUFFERED_ROWS_MAX = 65_536
"""Index rows in memory, of all logs together: 1.8 MB, and a third of a second to make anew after a kill."""

NAME_BYTES_MAX = 200
"""File systems allow 255; the rest is room for suffixes."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Store:
    """See the module's text. Call `open` first."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        owner: Identity | None = None,
        *,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        """`owner`: the broker whose data directory it must be, or becomes; None takes any."""
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

    # -- opening and closing ---------------------------------------------------------------------

    def open(self, now: int) -> Recovery:
        """Read what the data directory holds and repair it; what was found. Nothing is too old before `Log.retain`.

        Raises StorageError when the directory was written by a newer version, OwnerError when it is another broker's,
        and DamageError when a table, or the directory itself, is not as it was written; nothing has changed then.
        """
        assert not self._is_open
        format_before = identity.claim(self._files, self._owner)
        ends = clean_stop.read(self._files)
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
        """Read all tables. Raises DamageError, and names every file, where one is not as it was written."""
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
        """Raise DamageError where logs or the table that lists them are gone, or ended elsewhere at the last clean stop."""
        damage: list[TableDamage] = []
        if folders and not self._disk.exists(log_list.PATH):
            damage.append(TableDamage(log_list.PATH, 0, 0, problem="is missing"))
        for folder, (position, _) in ends.logs.items() if ends is not None else ():
            found = end_position(self._files, folder)
            if found != position:
                problem = f"ends at byte {found} of the log; the last clean stop left it at byte {position}"
                damage.append(TableDamage(folder, 0, 0, problem=problem))
        _raise(damage)

    def _places(self) -> Iterator[tuple[int, ListedLog]]:
        for key, value in self.table("logs").items():
            if key == log_list.LAST_ID:
                self._last_id = int(value)
            else:
                yield int(key), log_list.decode(value)

    def close(self) -> None:
        """`flush`, then close the files. A closed store stays closed."""
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
        """The logs of a topic, by queue id."""
        return [log for _, log in sorted(self._topics.get(topic, {}).items())]

    def topics(self) -> list[str]:
        """Topics that have logs, sorted."""
        return sorted(self._topics)

    def create_log(self, topic: str, queue_id: int) -> Log:
        """A new, empty log, or the one that is there. One write to a table; files come with the first entry."""
        return self.create_logs(topic, (queue_id,))[0]

    def create_logs(self, topic: str, queue_ids: tuple[int, ...]) -> list[Log]:
        """The logs of these queues; those that are missing are made, all in one write."""
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
            # A power cut may have left them from a log that had the id before; see the module's text.
            self._starts().put_many([(str(i), None) for i in new if str(i) in self._starts()])
            rows = [(str(log_id), log_list.encode(place)) for log_id, place in new.items()]
            self.table("logs").put_many([(log_list.LAST_ID, str(last_id).encode()), *rows])
            self._last_id = last_id
            for log_id, place in new.items():
                self._add_log(log_id, place)
        queues = self._topics[topic] if queue_ids else {}
        return [queues[queue_id] for queue_id in queue_ids]

    def delete_topic(self, topic: str) -> None:
        """Delete all logs of a topic and their files; a topic without logs is fine. Their ids are not used again.

        Raises StorageError; then the topic has its logs still, but maybe without what was in them.
        """
        logs = list(self._topics.get(topic, {}).values())
        if not logs:
            return
        places = [(str(log.log_id), ListedLog(topic, log.queue_id, deleted=True)) for log in logs]
        rows = [(log_id, log_list.encode(place)) for log_id, place in places]
        try:
            self.table("logs").put_many(rows)
        except DiskFullError:
            # Their files make the room that is missing. After a kill in between the queues are there, empty.
            if not any(log.has_files for log in logs):
                raise
            for log in logs:
                log.delete()
            self.table("logs").put_many(rows)
        del self._topics[topic]
        for log in logs:
            del self._by_id[log.log_id]
        self._delete_files(logs)

    def at_address(self, address: int) -> bytes | None:
        """The entry that begins at an address; None when none does."""
        log = self._by_id.get(address >> POSITION_BITS)
        return None if log is None else log.at_address(address)

    def configure(self, config_of: Callable[[str], LogConfig]) -> None:
        """Take the settings of each topic's logs from `config_of`, now and for logs that are made later.

        Until then all logs have those of the StoreConfig. Call it again when the settings of a topic changed.
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
        """Delete the oldest closed segments of all logs, until so many bytes are free: (messages, bytes) gone.

        Their retention does not matter. The last segment of a log stays. Raises StorageError.
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
        """The table of this name, made when its first value comes."""
        assert self._is_open, "a table read before `open` would be empty"
        file = f"{file_name(name)}.table"
        table = self._tables.get(file)
        if table is None:
            table = self._tables[file] = Table(self._files, f"tables/{file}")
        return table

    # -- the disk --------------------------------------------------------------------------------

    def space(self) -> tuple[int, int]:
        """(bytes that can still be written, bytes in all) of the disk that the data directory is on. Raises StorageError."""
        try:
            return self._disk.space()
        except OSError as error:
            raise storage_error("look at", "the data directory", error) from error

    def dirty(self) -> bool:
        """True when something was written that the disk may not have yet."""
        return self._files.dirty()

    def take_dirty(self) -> Unsynced:
        """What must be synced for everything appended and put so far to be on the disk; see the module's text.

        Index files are never in it: recovery makes lost rows anew.
        """
        return self._files.take()

    def flush_index(self) -> None:
        """Write the index rows that wait in memory, so that the next start has less to read."""
        self._buffers.flush()

    def flush(self) -> None:
        """Write the index rows and bring logs and tables to the disk. In the store's own thread; it blocks."""
        self._buffers.flush()
        self.take_dirty().sync()

    def check(self) -> None:
        """Assert what must hold between the logs; for tests and simulation."""
        for topic, queues in self._topics.items():
            for queue_id, log in queues.items():
                assert (log.topic, log.queue_id) == (topic, queue_id)
                assert self._by_id[log.log_id] is log
                assert log.log_id <= self._last_id
                log.check()


def file_name(name: str) -> str:
    """A name that every file system takes, for any text; different texts have different names.

    Letters, digits, `_` and `-` stay, other bytes of the UTF-8 become %XX; what is too long is cut and
    ends in a hash. Names that differ in upper and lower case only need a file system that minds case.
    """
    data = name.encode()
    escaped = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)
    if len(escaped) <= NAME_BYTES_MAX:
        return escaped
    return f"{escaped[: NAME_BYTES_MAX - 33]}~{hashlib.sha256(data).hexdigest()[:32]}"


def _raise(damage: list[TableDamage]) -> None:
    """DamageError, if there is any damage."""
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
