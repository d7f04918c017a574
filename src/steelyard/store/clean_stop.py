"""The file `clean-stop`, in which a clean stop records the ends of all logs and tables.

After a kill a file may end in an incomplete write. After a clean stop none does: everything was on
disk, so any difference from this file is damage, even if it looks like a torn write or a missing
table. The file is removed at the next start, durably, before anything is written.

    a line of JSON, `Ends`; a line with its CRC-32 in hex
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.decoding import prepared
from steelyard.store.files import Files

PATH = "clean-stop"


class Ends(msgspec.Struct, frozen=True):
    """The ends of all files.

    `tables`: by file name, size and CRC-32. `logs`: by folder, position and offset after the last
    entry.
    """

    tables: dict[str, tuple[int, int]]
    logs: dict[str, tuple[int, int]]


def end_of(data: bytes) -> tuple[int, int]:
    """Return size and CRC-32 of a table's file."""
    return len(data), zlib.crc32(data)


def write(files: Files, ends: Ends) -> None:
    """Write the file; everything in `ends` must already be on disk. Raises StorageError."""
    text = msgspec.json.encode(ends)
    new = PATH + ".new"
    files.remove(new)
    files.create(new)
    files.write(new, 0, text + b"\n%08x\n" % zlib.crc32(text))
    files.sync(new)
    files.rename(new, PATH)


def read(files: Files) -> Ends | None:
    """Read the file; None if the last stop was not clean, or if the file is damaged."""
    if not files.disk.exists(PATH):
        return None
    data = files.read(PATH, 0, files.size(PATH))
    text, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=prepared(Ends))
    except msgspec.DecodeError:
        return None


def remove(files: Files) -> None:
    """Remove the file, because the directory is about to change. Raises StorageError."""
    if files.disk.exists(PATH):
        files.remove(PATH)
        files.sync_folder("")
