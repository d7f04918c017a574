"""Declarations of the ledger's columns, each made once with the field that holds it.

    pause_ms: Annotated[int, Column(ColumnKind.DURATION_MS, "How long …", heading="pause")]

Spark's schema, the report's tables and `docs/LEDGER.md` are derived from `columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple, get_type_hints

import msgspec


class ColumnKind(Enum):
    """The unit or type of a column, as the documentation names it."""

    TEXT = "text"
    TEXTS = "list of texts"
    CLIENT = "client id"
    CLIENTS = "list of client ids"
    NUMBER = "number"
    COUNT = "count"
    COUNTS = "list of counts"
    OFFSET = "offset"
    FACTOR = "factor"
    MOMENT = "timestamp"
    MOMENT_MS = "ms since the epoch"
    DURATION_MS = "ms"


class Column(NamedTuple):
    """A column's kind and meaning.

    `heading` is its title in tables for people, which omit columns without one.
    """

    kind: ColumnKind
    meaning: str
    heading: str = ""


@cache
def columns(table: type[msgspec.Struct]) -> Mapping[str, Column]:
    """Return the columns of a table, or the fields of a record, by name and in order."""
    hints = get_type_hints(table, include_extras=True)
    return {name: _declared(hints[name]) for name in table.__struct_fields__}


def _declared(hint: object) -> Column:
    marks = getattr(hint, "__metadata__", ())
    return next(mark for mark in marks if isinstance(mark, Column))
