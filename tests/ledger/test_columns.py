"""Every column is declared, with a meaning; docs/LEDGER.md lists them all.

After a change `python -m tests.ledger.test_columns` writes the page's tables anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import msgspec
import pytest

from steelyard.ledger.columns import ColumnKind, columns
from steelyard.ledger.events import Record
from steelyard.ledger.tables import TABLES as LEDGER_TABLES

PAGE = Path(__file__).parents[2] / "docs" / "LEDGER.md"

TABLES: Mapping[str, type[msgspec.Struct]] = {
    name: LEDGER_TABLES[name].rows
    for name in ("rebalances", "handoffs", "events", "balance", "lag")
}
RECORDS: Mapping[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Record)
}

TYPES: Mapping[ColumnKind, type] = {
    **dict.fromkeys(ColumnKind, int),
    **dict.fromkeys((ColumnKind.TEXT, ColumnKind.CLIENT), str),
    **dict.fromkeys((ColumnKind.TEXTS, ColumnKind.CLIENTS), tuple[str, ...]),
    ColumnKind.COUNTS: tuple[int, ...],
    ColumnKind.FACTOR: float,
}


@pytest.mark.parametrize("table", [*TABLES.values(), *RECORDS.values()])
def test_every_column_is_declared_as_what_it_is(table: type[msgspec.Struct]) -> None:
    declared = columns(table)
    hints = get_type_hints(table)
    assert [*declared] == [*table.__struct_fields__]
    for name, column in declared.items():
        assert hints[name] in (TYPES[column.kind], TYPES[column.kind] | None), name
        assert re.fullmatch(r".{5,}\.", column.meaning), name


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), "run: python -m tests.ledger.test_columns"


def test_the_page_has_every_table_and_record() -> None:
    marked = re.findall(r"<!-- columns of (\w+) -->", PAGE.read_text("utf-8"))
    assert marked == [*TABLES, *RECORDS]


def renewed(page: str) -> str:
    """The page with the tables of columns as they are declared."""
    for name, table in {**TABLES, **RECORDS}.items():
        begin, end = f"<!-- columns of {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = before + begin + "".join(f"{line}\n" for line in lines(table)) + end + after
    return page


def lines(table: type[msgspec.Struct]) -> Iterator[str]:
    """A table of columns in Markdown."""
    hints = get_type_hints(table)
    yield "| column | unit | meaning |"
    yield "|---|---|---|"
    for name, column in columns(table).items():
        nullable = ", or null" if NoneType in get_args(hints[name]) else ""
        yield f"| `{name}` | {column.kind.value}{nullable} | {column.meaning} |"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
