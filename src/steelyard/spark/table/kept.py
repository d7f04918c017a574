"""What a sink was started with, kept in its checkpoint: the schema above all.

A table has one schema, one division into partitions and one query. They are written down when the
checkpoint is made; later starts use them, and refuse options that say otherwise.
"""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ConfigError
from steelyard.spark.table.payloads import Kind

NAME = "sink.json"

SHORT = 60
"""Characters of a setting in an error."""

_OPTIONS = {
    "topic": "--topic",
    "to": "--to",
    "out": "--out",
    "kind": "--schema",
    "schema": "the schema given",
    "prefix": "--prefix",
    "partition_by": "--partition-by",
}
"""The settings that stay, and what the user calls them."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same from start to start. `query`: the name of the query in tables' logs.

    `to` is empty in checkpoints that were made before it was kept.
    """

    topic: str
    to: str = ""
    out: str
    kind: Kind
    schema: str
    prefix: str
    partition_by: Sequence[str]
    query: str = ""


@contextmanager
def alone(checkpoint: Path) -> Iterator[None]:
    """Hold a lock on a checkpoint, which ends with the process.

    Two that write the same micro-batch would delete each other's files, and add it twice. Raises
    ConfigError if another process holds it.
    """
    checkpoint.mkdir(parents=True, exist_ok=True)
    with (checkpoint / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another `steelyard pipeline sink` runs with the checkpoint {checkpoint}; wait for"
                " its end"
            ) from None
        yield


def read_kept(checkpoint: Path) -> Kept | None:
    """Return what the checkpoint has; None if it is new. Raises ConfigError for another query's."""
    path = checkpoint / NAME
    if not path.exists():
        if (checkpoint / "metadata").exists():
            raise ConfigError(f"{checkpoint} is the checkpoint of another query")
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepared(Kept))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None


def agreed(kept: Kept, given: Kept) -> Kept:
    """Return what was kept. Raises ConfigError if something else is given; no schema is fine."""
    for name, option in _OPTIONS.items():
        now, before = getattr(given, name), getattr(kept, name)
        if (name == "schema" and not now) or (name == "to" and not before):
            continue
        if [*now] != [*before]:
            begun = f"this table was begun with {before!r}"
            if name == "schema":
                begun = f"this table was begun with another one, which {NAME} has; leave it out"
            raise ConfigError(
                f"{option} is {_short(now)}, but {begun}; or choose another --out and --checkpoint"
            )
    return kept


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."


def keep(checkpoint: Path, settings: Kept) -> Kept:
    """Write the settings to a new checkpoint that is held, with a new name for the query.

    Raises ConfigError if another run has begun it.
    """
    if (checkpoint / NAME).exists():
        raise ConfigError(f"another run has begun the checkpoint {checkpoint}; start again")
    kept = msgspec.structs.replace(settings, query=uuid.uuid4().hex)
    draft = checkpoint / f".{NAME}"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
    draft.rename(checkpoint / NAME)
    return kept
