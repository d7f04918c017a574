"""Entries as a broker would write them, and disks to put them on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from steelyard.config import StoreConfig
from steelyard.driver.disk import LiveDisk
from steelyard.store.disk import Disk
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.store.recovery import Recovery
from steelyard.store.store import Store
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.remoting.message import encode_record

NOW = 1_700_000_000_000
SMALL = StoreConfig(segment_bytes=2_000, index_flush_rows=4, retention_ms=0)
"""A dozen entries a segment, and index rows written often."""


def build(
    log: Log,
    body: bytes = b"",
    tags: str = "",
    now: int = NOW,
    skip: int = 0,
    skip_bytes: int = 0,
    ipv6: bool = False,
) -> bytes:
    """The entry that comes `skip` entries and `skip_bytes` bytes after the end of the log."""
    host = (b"\x00" * 15 + b"\x01" if ipv6 else b"\x7f\x00\x00\x01") + b"\x00\x00\x2a\x9f"
    return encode_record(
        topic=log.topic,
        queue_id=log.queue_id,
        flag=0,
        queue_offset=log.max_offset + skip,
        physical_offset=log.next_address + skip_bytes,
        sys_flag=0,
        born_timestamp=now,
        born_host=host,
        store_timestamp=now,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=f"KEYS\x01k\x02TAGS\x01{tags}\x02".encode() if tags else b"",
    )


def build_batch(log: Log, bodies: list[bytes], now: int = NOW) -> list[tuple[bytes, int]]:
    """Entries for one `append_many`."""
    batch: list[tuple[bytes, int]] = []
    size = 0
    for number, body in enumerate(bodies):
        entry = build(log, body, now=now, skip=number, skip_bytes=size)
        batch.append((entry, 0))
        size += len(entry)
    return batch


def build_kafka(log: Log, values: list[bytes], timestamp: int = NOW, compression: int = 0) -> bytes:
    """The record batch that comes next in the log, all of its records with one timestamp."""
    first = log.max_offset
    records = [
        Record(first + number, timestamp, None, value) for number, value in enumerate(values)
    ]
    return write_batch(records, compression=compression)


def opened(disk: Disk, config: StoreConfig = SMALL, now: int = NOW) -> tuple[Store, Recovery]:
    """A store on `disk`, and what its recovery said."""
    store = Store(disk, config)
    return store, store.open(now)


def retain_log(log: Log, now: int, ms: int = -1, size: int = -1) -> int:
    """Delete what is past this retention, in ms or in bytes; how many messages."""
    before = log.config
    log.configure(replace(before, retention_ms=ms, retention_bytes=size))
    try:
        return log.retain(now)
    finally:
        log.configure(before)


class WornFile(MemoryFile):
    """A file with places that the disk cannot read."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk)
        self.bad: set[int] = set()

    def read(self, position: int, size: int) -> bytes:
        if any(position <= place < position + size for place in self.bad):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(position, size)


class WornDisk(MemoryDisk):
    def open(self, path: str) -> MemoryFile:
        if path not in self.files:
            super().open(path)
            self.files[path] = WornFile(self)
        return self.files[path]

    def wear(self, path: str, *places: int) -> None:
        file = self.files[path]
        assert isinstance(file, WornFile)
        file.bad.update(places)


@pytest.fixture(params=["memory", "real"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "memory":
        yield MemoryDisk()
    else:
        real = LiveDisk(str(tmp_path / "data"))
        yield real
        real.close()
