"""The record of a move on the disk: what was stored where, so that a repeated move continues.

A folder has `move.json` (the clusters), `offsets.json` (what was committed for groups) and a
journal for each queue, `TOPIC/BROKER-NUMBER.jsonl`. A journal is only appended to:

    QueueBegun      where the source began, and where the target ended
    ChunkSending    written to the disk before a chunk is sent: what it consists of
    ChunkStored     the chunk is stored at the target
    OffsetsExpired  source offsets that were gone before they could be moved
    ChunksVerified  what was read back from the target is what was sent

A `ChunkSending` without a `ChunkStored` is in doubt: it may be stored or not. A line without an end
was being written when the process was killed, and does not count.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ConfigError
from steelyard.spark.move.contract import DIGEST_MODULUS, OffsetRange, Token
from steelyard.spark.move.mapping import Mapping, OffsetRun
from steelyard.spark.offsets import QueueName

T = TypeVar("T")

CLUSTERS, OFFSETS, LOCK = "move.json", "offsets.json", "lock"


class QueueBegun(msgspec.Struct, frozen=True, tag="begun"):
    source: QueueName
    first: int
    target: QueueName
    base: int


class ChunkSending(msgspec.Struct, frozen=True, tag="sending"):
    """`following`: the source offset after the chunk. `digest`: of its records, hexadecimal."""

    following: int
    count: int
    digest: str
    runs: Sequence[OffsetRun]
    token: Token | None = None


class ChunkStored(msgspec.Struct, frozen=True, tag="stored"):
    pass


class OffsetsExpired(msgspec.Struct, frozen=True, tag="expired"):
    following: int


class ChunksVerified(msgspec.Struct, frozen=True, tag="verified"):
    pass


Entry = QueueBegun | ChunkSending | ChunkStored | OffsetsExpired | ChunksVerified


class Total(NamedTuple):
    """The records of a queue up to a point: how many, their checksum, and the target's end."""

    records: int
    digest: int
    end: int


class Journal:
    """The record of one queue."""

    def __init__(self, path: Path, file: BinaryIO, begun: QueueBegun) -> None:
        self._path = path
        self._file = file
        self.begun = begun
        self.next = begun.first
        """The source offset at which to continue."""
        self.total = self.verified = Total(0, 0, begun.base)
        """What is stored, and which part of it was read back."""
        self.doubt: ChunkSending | None = None
        """A chunk that may be stored."""
        self.expired = 0
        """Source offsets that could not be moved."""
        self.mapping = Mapping()

    @staticmethod
    def open(path: Path) -> Journal | None:
        """Read a journal, and cut off an unfinished line; None if nothing was begun."""
        if not path.exists():
            return None
        file = path.open("r+b")
        journal: Journal | None = None
        end = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            entry = _decoded(path, line)
            if journal is None:
                if not isinstance(entry, QueueBegun):
                    raise _damaged(path, "it does not begin with 'begun'")
                journal = Journal(path, file, entry)
            else:
                journal._take(entry)
            end += len(line)
        file.truncate(end)
        file.seek(end)
        if journal is None:
            file.close()
        return journal

    @staticmethod
    def begin(path: Path, begun: QueueBegun) -> Journal:
        """Begin the record of a queue."""
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = Journal(path, path.open("wb"), begun)
        journal._write(begun, durable=True)
        return journal

    def close(self) -> None:
        self._file.close()

    def sending(self, entry: ChunkSending) -> None:
        """Note what is about to be sent; on the disk when this returns."""
        self._write(entry, durable=True)
        self._take(entry)

    def stored(self) -> None:
        """Note that the chunk is stored."""
        self._add(ChunkStored())

    def skip(self, following: int) -> None:
        """Note that source offsets before `following` are gone."""
        self._add(OffsetsExpired(following))

    def verify(self) -> None:
        """Note that everything stored was read back."""
        self._add(ChunksVerified())

    def _add(self, entry: Entry) -> None:
        self._write(entry)
        self._take(entry)

    def _write(self, entry: Entry, *, durable: bool = False) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())

    def _take(self, entry: Entry) -> None:
        match entry:
            case ChunkSending():
                self.doubt = entry
            case ChunkStored():
                if self.doubt is None:
                    raise _damaged(self._path, "'stored' without 'sending'")
                self._finish(self.doubt)
            case OffsetsExpired():
                self.expired += entry.following - self.next
                self.next = entry.following
            case ChunksVerified():
                self.verified = self.total
            case QueueBegun():
                raise _damaged(self._path, "a second 'begun'")

    def _finish(self, chunk: ChunkSending) -> None:
        records, digest, end = self.total
        digest = (digest + int(chunk.digest, 16)) % DIGEST_MODULUS
        self.total = Total(records + chunk.count, digest, end + chunk.count)
        self.next = chunk.following
        self.doubt = None
        for run in chunk.runs:
            self.mapping.add(run)

    @property
    def unverified(self) -> OffsetRange:
        """Return the offsets at the target that were not read back yet."""
        return OffsetRange(self.verified.end, self.total.end)


def _decoded(path: Path, line: bytes) -> Entry:
    try:
        entry: Entry = msgspec.json.decode(line, type=prepared(Entry))
        return entry
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, words: str) -> ConfigError:
    return ConfigError(f"the record of the move is damaged: {path}: {words}")


class Clusters(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """Which move a folder is of."""

    protocol: str
    source: str
    target: str


class MoveFolder:
    """The folder of a move."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def agree(self, given: Clusters) -> None:
        """Raise ConfigError if the folder is of another move.

        Addresses may change, because a cluster has several; protocols may not.
        """
        known = self._read(CLUSTERS, Clusters)
        if known is not None and known.protocol != given.protocol:
            raise ConfigError(
                f"{self._path} is the record of a move between {known.protocol} clusters, from"
                f" {known.source} to {known.target}; choose another --state"
            )

    @contextmanager
    def locked(self, given: Clusters) -> Iterator[None]:
        """Keep other moves away from the folder. Raises ConfigError if there is one."""
        self._path.mkdir(parents=True, exist_ok=True)
        with (self._path / LOCK).open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another move uses {self._path}; wait for its end") from None
            self.agree(given)
            self._write(CLUSTERS, given)
            yield

    def journal_path(self, queue: QueueName) -> Path:
        """Return where the journal of a source queue is."""
        topic, broker, number = queue
        return self._path / topic / f"{broker}-{number}.jsonl".lstrip("-")

    def committed(self) -> dict[str, dict[str, int]]:
        """Return the offsets that the move committed, by group and `topic/broker:number`."""
        return self._read(OFFSETS, dict[str, dict[str, int]]) or {}

    def keep_committed(self, offsets: dict[str, dict[str, int]]) -> None:
        """Note the offsets that the move committed."""
        self._write(OFFSETS, offsets)

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self._path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=prepared(kind))
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise _damaged(path, str(error)) from None

    def _write(self, name: str, value: object) -> None:
        draft = self._path / f".{name}"
        draft.write_bytes(msgspec.json.encode(value) + b"\n")
        draft.rename(self._path / name)
