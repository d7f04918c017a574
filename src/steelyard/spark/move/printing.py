"""The result of a move, for people."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.spark.move.group_move import OffsetResult
from steelyard.spark.move.queue_move import QueueResult

CHECKSUM_DIGITS = 12


def printed(results: Sequence[QueueResult], offsets: Sequence[OffsetResult]) -> str:
    """Return the tables of queues and of groups, and a line that sums them up."""
    rows = [["topic", "source", "target", "moved now", "in all", "read back", "checksum", ""]]
    rows += [
        [
            one.topic,
            one.source,
            one.target,
            f"{one.moved:,}",
            f"{one.count:,}",
            f"{one.read_back:,}",
            one.checksum[:CHECKSUM_DIGITS],
            _verdict(one),
        ]
        for one in results
    ]
    parts = [_table(rows, right=(3, 4, 5))]
    if offsets:
        rows = [["group", "topic", "source", "offset", "target", "offset", ""]]
        rows += [
            [
                one.group,
                one.topic,
                one.source,
                f"{one.source_offset:,}",
                one.target,
                f"{one.target_offset:,}",
                one.outcome,
            ]
            for one in offsets
        ]
        parts.append(_table(rows, right=(3, 5)))
    wrong = sum(not one.matches for one in results)
    count = sum(one.count for one in results)
    moved = sum(one.moved for one in results)
    summed = f"{moved:,} messages moved now, {count:,} in all"
    parts.append(
        f"{summed}; {wrong} of {len(results)} queues differ"
        if wrong
        else f"{summed}; all {len(results)} queues match"
    )
    return "\n\n".join(parts)


def _verdict(one: QueueResult) -> str:
    if one.expired:
        return f"{one.expired:,} offsets expired at the source before they were moved"
    return "matches" if one.matches else "DIFFERS"


def _table(rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
