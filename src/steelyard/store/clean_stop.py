"""What a clean stop leaves: the file `clean-stop`, with the ends of all logs and tables.

After a kill a file may end in a write that was not finished. After a clean stop none does: everything was on the disk,
so whatever differs from what this file says was damaged since, even where it looks like a torn write, or like a table
that never was. The file is removed at the next start, durably, before anything is written.

    a line of JSON, `Ends`; a line with its CRC-32 in hex
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.store.files import Files

PATH = "clean-stop"


class Ends(msgspec.Struct, frozen=True):
    """`tables`: by file name, size and CRC-32. `logs`: by folder, position and offset after the last entry."""

    tables: dict[str, tuple[int, int]]
    logs: dict[str, tuple[int, int]]


def end_of(data: bytes) -> tuple[int, int]:
    """Size and CRC-32 of a table's file."""
    return len(data), zlib.crc32(data)


def write(files: Files, ends: Ends) -> None:
    """Everything that `ends` tells of is on the disk. Raises StorageError."""
    text = msgspec.json.encode(ends)
    new = PATH + ".new"
    files.remove(new)
    files.create(new)
    files.write(new, 0, text + b"\n%08x\n" % zlib.crc32(text))
    files.sync(new)
    files.rename(new, PATH)


def read(files: Files) -> Ends | None:
    """None where the last stop was none, or where the file is damaged."""
    if not files.disk.exists(PATH):
        return None
    data = files.read(PATH, 0, files.size(PATH))
    text, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=Ends)
    except msgspec.DecodeError:
        return None


def remove(files: Files) -> None:
    """From now on the directory is not as it was left. Raises StorageError."""
    if files.disk.exists(PATH):
        files.remove(PATH)
        files.disk.sync_folder("")
