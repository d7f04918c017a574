"""How the ledger's columns are declared: once, with the field that holds them.

    pause_ms: Annotated[int, Column(ColumnKind.DURATION_MS, "How long …", heading="pause")]

Spark's schema, the report's tables and `docs/LEDGER.md` go by `columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import NamedTuple, get_type_hints

import msgspec


class ColumnKind(Enum):
    """What the values of a column are, in words for the documentation."""

    TEXT = "text"
    TEXTS = "list of texts"
    CLIENT = "client id"
    CLIENTS = "list of client ids"
    NUMBER = "number"
    COUNT = "count"
    OFFSET = "offset"
    FACTOR = "factor"
    MOMENT = "timestamp"
    MOMENT_MS = "ms since the epoch"
    DURATION_MS = "ms"


class Column(NamedTuple):
    """`heading`: what people's tables call it; those leave it out where it has none."""

    kind: ColumnKind
    meaning: str
    heading: str = ""


@cache
def columns(table: type[msgspec.Struct]) -> Mapping[str, Column]:
    """The columns of a table, or the fields of a record, by name and in order."""
    hints = get_type_hints(table, include_extras=True)
    return {name: _declared(hints[name]) for name in table.__struct_fields__}


def _declared(hint: object) -> Column:
    marks = getattr(hint, "__metadata__", ())
    return next(mark for mark in marks if isinstance(mark, Column))
