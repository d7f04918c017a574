"""The table `logs`, which lists every log of a data directory, and the logs' folders."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import msgspec

from steelyard.decoding import prepared
from steelyard.store import table_records
from steelyard.store.disk import Disk
from steelyard.store.files import Files

PATH = "tables/logs.table"

LAST_ID = "last id"
"""The key of the last log id that was assigned; the others are log ids."""

CUT = "~"
"""Marks a folder name whose topic was too long; a hash of the topic follows."""


class ListedLog(msgspec.Struct, frozen=True):
    """A row of the table, under the log's id."""

    topic: str
    queue_id: int
    deleted: bool = False
    """Set before the files are deleted, so that the next open can complete an interrupted deletion.
    """


class Folder(msgspec.Struct, frozen=True):
    """The parts of a folder's name. `topic` is empty if the name was too long to be kept whole."""

    topic: str
    queue_id: int
    log_id: int


def folders(disk: Disk) -> dict[str, Folder]:
    """Return the folders of logs on disk, by path."""
    found = {}
    for name in disk.list("logs"):
        topic = "" if CUT in name else unquote_to_bytes(name).decode("utf-8", "replace")
        for queue in disk.list(f"logs/{name}"):
            queue_id, _, log_id = queue.partition("-")
            if log_id.isdecimal() and queue_id.isdecimal():
                found[f"logs/{name}/{queue}"] = Folder(topic, int(queue_id), int(log_id))
    return found


def read(files: Files) -> dict[int, ListedLog] | None:
    """The rows of the table by log id, as far as they are whole; None where there is no table."""
    return rows_in(files.read(PATH, 0, files.size(PATH))) if files.disk.exists(PATH) else None


def rows_in(data: bytes) -> dict[int, ListedLog]:
    """The rows of the table by log id, as far as they are whole, from the table's file."""
    rows: dict[int, ListedLog] = {}
    for item in table_records.decode(data):
        if isinstance(item, table_records.Entry) and item.key.isdecimal():
            if item.value is None:
                rows.pop(int(item.key), None)
            else:
                rows[int(item.key)] = decode(item.value)
    return rows


def encode(place: ListedLog) -> bytes:
    """A row's value."""
    return msgspec.json.encode(place)


def decode(value: bytes) -> ListedLog:
    """A row, from its value."""
    return msgspec.json.decode(value, type=prepared(ListedLog))
