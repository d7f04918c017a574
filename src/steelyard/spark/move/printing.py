"""The result of a move, for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from steelyard.spark.move.group_move import OffsetResult
from steelyard.spark.move.queue_move import QueueResult
from steelyard.spark.printing import text_table
from steelyard.wording import counted

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
    summed = f"{counted(moved, 'message')} moved now, {count:,} in all"
    if wrong:
        verdict = f"{wrong:,} of {counted(len(results), 'queue')} differ"
    elif len(results) == 1:
        verdict = "the queue matches"
    else:
        verdict = f"all {len(results):,} queues match"
    parts.append(f"{summed}; {verdict}")
    return "\n\n".join(parts)


def _verdict(one: QueueResult) -> str:
    if one.expired:
        return f"{counted(one.expired, 'offset')} expired at the source before they were moved"
    return "matches" if one.matches else "DIFFERS"


def _table(rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """Return the first row as headings of the others, however wide that is."""
    places = range(len(rows[0]))
    return text_table(rows[0], rows[1:], [place in right for place in places], sys.maxsize)
