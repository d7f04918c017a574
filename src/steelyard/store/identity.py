"""Whose a data directory is, and in which format: the file `format`, as Kafka's meta.properties.

    steelyard-store 2                 the format's number; padded to 64 bytes
    {"cluster":"...", ...}            `Identity` as JSON; `{}` as long as no broker has taken the directory
    5f3c9a01                          CRC-32 of the lines above, in hex; the last line of every later format, too

Format 1 had the first line only. Versions that read format 1 look at the first 64 bytes, so that they name the number
that they found. The file is replaced in one step, and synced, before anything else is changed.

| format | what is different |
|---|---|
| 1 | |
| 2 | an identity; `clean-stop`; index files with checksums (`.rows` in place of `.index`) |

An upgrade writes the new number first: a version that reads the earlier format only must refuse from then on. What
else differs is converted where it is met.
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.errors import DamageError, OwnerError, StorageError
from steelyard.store.files import Files

PATH = "format"
NEW_PATH = "format.new"

FORMAT = 2
"""The format that this version writes."""

FORMAT_MIN = 1
"""The oldest that it reads."""

_WORD = "steelyard-store"
_FIRST_LINE_BYTES = 64
_FILE_BYTES_MAX = 64 * 1024


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who writes to a data directory.

    `cluster_id` is what Kafka's clients are told; it is derived from the cluster's name. `node_id`: Kafka's, -1 for a
    broker that has never served Kafka clients.
    """

    cluster: str = ""
    cluster_id: str = ""
    broker: str = ""
    node_id: int = -1

    def __str__(self) -> str:
        node = f", node {self.node_id}" if self.node_id >= 0 else ""
        return f"broker {self.broker!r} of cluster {self.cluster!r}{node}"


class StoredIdentity(msgspec.Struct, frozen=True):
    """What the file says: `format` 0 where there is none yet."""

    format: int
    identity: Identity


def read(files: Files) -> StoredIdentity:
    """The file of a data directory. Raises StorageError for one that this version cannot use, DamageError for a damaged one."""
    disk = files.disk
    if not disk.exists(PATH):
        if disk.exists("logs") or disk.exists("tables"):
            raise DamageError(
                f"the file {PATH!r} is missing, though there are logs or tables", (PATH,)
            )
        return StoredIdentity(0, Identity())
    data = files.read(PATH, 0, _FILE_BYTES_MAX)
    number = _number(data)
    if number > 1 and not _is_signed(data):
        raise DamageError(f"the file {PATH!r} is damaged: its checksum does not match", (PATH,))
    if number > FORMAT:
        raise StorageError(
            f"the data directory has format {number}, this version reads {FORMAT_MIN} to {FORMAT}:"
            " start the version of Steelyard that wrote it, or a newer one"
        )
    if number < FORMAT_MIN or (number == 1 and len(data) > _FIRST_LINE_BYTES):
        raise DamageError(f"the file {PATH!r} is damaged", (PATH,))
    if number == 1:
        return StoredIdentity(1, Identity())
    return StoredIdentity(number, _identity(data))


def _number(data: bytes) -> int:
    """The format's number, 0 where the first line is not ours."""
    words = data[:_FIRST_LINE_BYTES].decode("ascii", "replace").split()
    if len(words) != 2 or words[0] != _WORD or not words[1].isdecimal():
        return 0
    return int(words[1])


def _is_signed(data: bytes) -> bool:
    """Does the last line match what is above it? In every format from 2 on."""
    signed, newline, last = data[:-1].rpartition(b"\n")
    return data.endswith(b"\n") and last == b"%08x" % zlib.crc32(signed + newline)


def _identity(data: bytes) -> Identity:
    """Of a file of format 2."""
    lines = data.split(b"\n")
    try:
        return msgspec.json.decode(lines[1], type=Identity)
    except msgspec.DecodeError as error:
        raise DamageError(f"the file {PATH!r} is damaged: {error}", (PATH,)) from None


def write(files: Files, identity: Identity) -> None:
    """Replace the file, in the format of this version."""
    first = f"{_WORD} {FORMAT}".ljust(_FIRST_LINE_BYTES - 1).encode()
    signed = first + b"\n" + msgspec.json.encode(identity) + b"\n"
    files.remove(NEW_PATH)
    files.create(NEW_PATH)
    files.write(NEW_PATH, 0, signed + b"%08x\n" % zlib.crc32(signed))
    files.sync(NEW_PATH)
    files.rename(NEW_PATH, PATH)


def claim(files: Files, wanted: Identity | None) -> int:
    """Take the directory, or refuse it; the format that it had, 0 for a new one.

    A directory without an identity becomes `wanted`'s. With None nobody's name is looked at. Raises OwnerError where
    it is another's, and what `read` raises.
    """
    found = read(files)
    owner = found.identity
    if wanted is not None:
        if owner.broker and (owner.broker, owner.cluster) != (wanted.broker, wanted.cluster):
            raise OwnerError(f"the data directory belongs to {owner}, not to {wanted}")
        if -1 < owner.node_id != wanted.node_id > -1:
            raise OwnerError(
                f"the data directory belongs to node {owner.node_id} of Kafka's clients,"
                f" and the broker was started as node {wanted.node_id}"
            )
        kept = owner.cluster_id or wanted.cluster_id
        owner = Identity(wanted.cluster, kept, wanted.broker, max(owner.node_id, wanted.node_id))
    if found.format != FORMAT or owner != found.identity:
        write(files, owner)
    return found.format
