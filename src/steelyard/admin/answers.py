"""What a command of `steelyard admin` found, as text for people and as a document for programs.

A command returns one `CommandOutcome`. Without options its text is printed, which for mqadmin's
commands is mqadmin's, byte for byte. With `--json` its document is printed: one JSON object whose
names are those of the values in Python, in snake case. A table that is keyed by queues becomes a
list of rows that name the queue. Every document has the field `unreachable`: the brokers that did
not answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from steelyard.admin import exits
from steelyard.printable import printable_json


class CommandOutcome(NamedTuple):
    """`text`: with its last line feed. `document`: values by name, see `plain`. `code`: to exit."""

    text: str
    document: Mapping[str, object]
    code: int = exits.SUCCESS


class Unreachable(NamedTuple):
    """A broker whose part is missing, and why. `broker_name`: "" if no nameserver knows it.

    `refused`: it did answer, but does not tell what was asked.
    """

    address: str
    broker_name: str
    error: str
    refused: bool = False


def document_text(
    document: Mapping[str, object], unreachable: list[Unreachable], *, indent: int | None = 2
) -> str:
    """Format a document, with its line feed; `indent` None: on one line."""
    tree = {name: plain(value) for name, value in document.items()}
    tree["unreachable"] = plain(unreachable)
    return printable_json(json.dumps(tree, ensure_ascii=False, indent=indent)) + "\n"


def plain(value: object) -> object:
    """Convert to what JSON has: structs, dataclasses and named tuples become objects."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        if any(isinstance(key, tuple) for key in value):
            return [_row(key, item) for key, item in value.items()]
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [plain(item) for item in value]
    named = fields_of(value)
    return value if named is None else {name: plain(item) for name, item in named.items()}


def fields_of(value: object) -> dict[str, object] | None:
    """Return the fields of a struct, dataclass or named tuple by name; None of anything else."""
    names: tuple[str, ...]
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", ())
    else:
        return None
    return {name: getattr(value, name) for name in names}


def row(*parts: object, **more: object) -> dict[str, object]:
    """Join the fields of several structures, and further values, to one row."""
    joined: dict[str, object] = {}
    for part in parts:
        named = fields_of(part)
        assert named is not None, f"{part!r} has no fields"
        joined |= named
    return joined | more


def _row(key: object, item: object) -> object:
    named = fields_of(item)
    return plain(row(key, value=item) if named is None else row(key, item))
