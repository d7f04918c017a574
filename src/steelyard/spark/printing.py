"""Tables of rebalances as text for people: as wide as their terminal, by group, nothing cut off."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from steelyard.ledger.columns import Column, ColumnKind, columns
from steelyard.printable import printable
from steelyard.spark.tables import is_numeric, shown

WIDTH = 100
"""Columns of what is no terminal."""
LAST_MIN = 24
"""Narrower, a table's last column goes below its row."""
GAP, INDENT = "  ", "    "
RANDOM_MIN = 4
"""Least characters of the random part of a member id, where it is shown."""
NAMED_MAX = 10
"""Most groups that a message names."""
_UNIQUE = re.compile(
    r"(.+?)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?=.*[A-Z])(?=.*[a-z])[A-Za-z0-9_-]{22})"
)
"""A client id and what makes a member id of it: a UUID, as text or in Kafka's form of it.

Of the latter, one in 50,000 has no small or no capital letters, as words of a client id have none.
"""


def terminal_width() -> int:
    """Return how many columns the terminal has, or $COLUMNS; WIDTH if there is neither."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


def known_groups(groups: Iterable[str]) -> str:
    """Return in words which groups there are, for the error that one is not among them."""
    names = sorted(groups)
    if not names:
        return "there are no groups"
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"there are {', '.join(names[:NAMED_MAX])}{more}"


def printed_rebalances(rows: Sequence[Any], names: Sequence[str], width: int) -> str:
    """Return a table for each group, with the columns `names`, the last of which may be wrapped.

    `rows` are of one table and have `group`, `members_before` and `members_after`. Members are
    called as `short_names` says.
    """
    by_group: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_group[row.group].append(row)
    return "\n\n".join(
        f"group {printable(group)}\n{_printed_group(by_group[group], names, width)}"
        for group in sorted(by_group)
    )


def _printed_group(rows: Sequence[Any], names: Sequence[str], width: int) -> str:
    ids = {one for row in rows for one in (*row.members_before, *row.members_after)}
    short = short_names(ids)

    def shortened(text: str) -> str:
        for one in sorted(short, key=len, reverse=True):
            text = text.replace(one, short[one])
        return text

    table: type[msgspec.Struct] = type(rows[0])
    declared = columns(table)
    heads, texts = printed(rows, names)
    return text_table(
        heads,
        [[*line[:-1], shortened(line[-1])] for line in texts],
        [is_numeric(declared[name]) for name in names],
        width,
    )


def printed(
    rows: Sequence[msgspec.Struct], names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return headings with units, and the texts of the rows, without units."""
    declared = columns(type(rows[0]))
    heads = [_heading(declared[name]) for name in names]
    return heads, [[_cell(declared[name], getattr(row, name)) for name in names] for row in rows]


def _heading(column: Column) -> str:
    match column.kind:
        case ColumnKind.DURATION_MS:
            return f"{column.heading}, ms"
        case ColumnKind.MOMENT | ColumnKind.MOMENT_MS:
            return f"{column.heading} (UTC)"
    return column.heading


def _cell(column: Column, value: Any) -> str:
    if value is not None:
        match column.kind:
            case ColumnKind.DURATION_MS:
                return f"{value:,}"
            case ColumnKind.MOMENT | ColumnKind.MOMENT_MS:
                return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return printable(shown(column, value))


def text_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int
) -> str:
    """Return rows in columns, of which `right` ones are right-aligned.

    The last column is wrapped to `width`, or goes below its row if too little is left for it.
    """
    first = [[*heads][:-1], *([*row][:-1] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*first, strict=True)]
    taken = sum(widths) + len(GAP) * len(widths)
    longest = max((len(row[-1]) for row in rows), default=0)
    is_below = width - taken < min(longest, LAST_MIN)
    margin = INDENT if is_below else " " * taken
    lines: list[str] = []
    for row in (heads, *rows):
        cells = [
            f"{cell:>{size}}" if is_right else f"{cell:<{size}}"
            for cell, size, is_right in zip(row[:-1], widths, right[:-1], strict=True)
        ]
        line = GAP.join(cells)
        last = textwrap.wrap(
            row[-1],
            max(width - len(margin), LAST_MIN),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
        if right[-1]:
            size = max(longest, len(heads[-1]))
            last = [f"{last[0]:>{size}}", *last[1:]]
        if not is_below:
            line += GAP + last.pop(0)
        lines += [line.rstrip(), *(f"{margin}{more}" for more in last if more)]
    return "\n".join(lines)


def short_names(members: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each member id that has one: its client id without what is random.

    As much of the random part stays as is needed to tell members of one client id apart.
    """
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for member in sorted(set(members)):
        match = _UNIQUE.fullmatch(member)
        if match is not None:
            found[match[1]].append((match[2], member))
    short: dict[str, str] = {}
    for client, parts in found.items():
        if len(parts) == 1:
            short[parts[0][1]] = client
            continue
        sizes = range(RANDOM_MIN, max(len(random) for random, _ in parts) + 1)
        size = next(n for n in sizes if len({random[:n] for random, _ in parts}) == len(parts))
        for random, member in parts:
            short[member] = f"{client}-{random[:size]}"
    return short
