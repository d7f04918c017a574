"""The owner and the format of a data directory: the file `format`, like Kafka's meta.properties.

    steelyard-store 3         the format's number; padded to 64 bytes
    {"cluster":"...", ...}    `Identity` as JSON; `{}` until a broker owns the directory
    5f3c9a01                  CRC-32 of the lines above, in hex; also the last line of later formats

Format 1 had the first line only. Versions that read format 1 look at the first 64 bytes, so that
their error names the number found. The file is replaced atomically, and synced, before anything
else is changed.

| format | what is different |
|---|---|
| 1 | |
| 2 | an identity; `clean-stop`; index files with checksums (`.rows` in place of `.index`) |
| 3 | segments that were compacted (`segment_names`); batches with fewer records than offsets |

An upgrade writes the new number first: from then on a version that reads only the earlier format
must refuse the directory. Other differences are converted when they are encountered.
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import DamageError, OwnerError, StorageError
from steelyard.store.files import Files

PATH = "format"
NEW_PATH = "format.new"

FORMAT = 3
"""The format that this version writes."""

FORMAT_MIN = 1
"""The oldest format that this version reads."""

_WORD = "steelyard-store"
_FIRST_LINE_BYTES = 64
FILE_BYTES_MAX = 64 * 1024
"""More than the file has."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a data directory.

    `cluster_id` is the id that Kafka clients see, derived from the cluster's name. `node_id`:
    Kafka's, -1 for a broker that has never served Kafka clients.
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
    """The file of a data directory.

    Raises StorageError for one that this version cannot use, DamageError for a damaged one.
    """
    disk = files.disk
    if not disk.exists(PATH):
        if disk.exists("logs") or disk.exists("tables"):
            raise DamageError(
                f"the file {PATH!r} is missing, though there are logs or tables", (PATH,)
            )
        return StoredIdentity(0, Identity())
    return parse(files.read(PATH, 0, FILE_BYTES_MAX))


def parse(data: bytes) -> StoredIdentity:
    """What the file with these contents says. Raises as `read`."""
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
    """Return the format's number; 0 if the first line is not valid."""
    words = data[:_FIRST_LINE_BYTES].decode("ascii", "replace").split()
    if len(words) != 2 or words[0] != _WORD or not words[1].isdecimal():
        return 0
    return int(words[1])


def _is_signed(data: bytes) -> bool:
    """Return whether the last line is the checksum of the others, as in every format from 2."""
    signed, newline, last = data[:-1].rpartition(b"\n")
    return data.endswith(b"\n") and last == b"%08x" % zlib.crc32(signed + newline)


def _identity(data: bytes) -> Identity:
    """Parse the identity in a file of format 2 or later."""
    lines = data.split(b"\n")
    try:
        return msgspec.json.decode(lines[1], type=prepared(Identity))
    except msgspec.DecodeError as error:
        raise DamageError(f"the file {PATH!r} is damaged: {error}", (PATH,)) from None


def write(files: Files, identity: Identity) -> None:
    """Replace the file, in this version's format."""
    first = f"{_WORD} {FORMAT}".ljust(_FIRST_LINE_BYTES - 1).encode()
    signed = first + b"\n" + msgspec.json.encode(identity) + b"\n"
    files.remove(NEW_PATH)
    files.create(NEW_PATH)
    files.write(NEW_PATH, 0, signed + b"%08x\n" % zlib.crc32(signed))
    files.sync(NEW_PATH)
    files.rename(NEW_PATH, PATH)


def claim(files: Files, wanted: Identity | None) -> int:
    """Claim the directory, and return the format that it had, 0 for a new one.

    A directory without an identity becomes `wanted`'s; with None the owner is not checked. Raises
    OwnerError if it belongs to another broker, and the errors of `read`.
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
