"""The offsets of consumer groups at the target.

A group continues at the target with the first record that it has not consumed at the source: exact,
by the mapping of each queue. What the target has of a group is overwritten only if the move itself
committed it, or if that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from steelyard.spark.move.contract import MoveCluster, R, label
from steelyard.spark.move.journal import Journal, MoveFolder
from steelyard.spark.offsets import QueueName

COMMITTED = "committed"


class OffsetResult(msgspec.Struct, frozen=True):
    """What became of a group's offset in a queue. `outcome`: `committed`, or why it was not."""

    group: str
    topic: str
    source: str
    source_offset: int
    target: str
    target_offset: int
    outcome: str

    @property
    def is_wrong(self) -> bool:
        """Whether an offset should have been committed and was not."""
        return self.outcome.startswith("not committed")


def move_offsets(
    source: MoveCluster[R],
    target: MoveCluster[R],
    folder: MoveFolder,
    journals: Mapping[QueueName, Journal],
    groups: Sequence[str],
    *,
    overwrite: bool,
) -> list[OffsetResult]:
    """Commit the groups' offsets of the queues at the target; return a row for each."""
    own = folder.committed()
    results: list[OffsetResult] = []
    for group in groups:
        here = source.progress(group, journals.keys())
        there = target.progress(group, [journals[queue].begun.target for queue in here])
        wanted: dict[QueueName, int] = {}
        rows: list[OffsetResult] = []
        for queue, offset in sorted(here.items()):
            journal = journals[queue]
            place = journal.begun.target
            translated = journal.mapping.target_of(offset, journal.total.end)
            present = there.get(place, 0)
            mine = own.get(group, {}).get(_key(place))
            free = overwrite or present <= journal.begun.base or present in (translated, mine)
            if free:
                wanted[place] = translated
            outcome = COMMITTED if free else f"kept: it is at {present:,} there"
            rows.append(
                OffsetResult(
                    group, queue[0], label(queue), offset, label(place), translated, outcome
                )
            )
        reason = target.commit(group, wanted) if wanted else ""
        if reason:
            replaced = {COMMITTED: f"not committed: {reason}"}
            rows = [
                msgspec.structs.replace(row, outcome=replaced.get(row.outcome, row.outcome))
                for row in rows
            ]
        else:
            own.setdefault(group, {}).update(
                {_key(queue): offset for queue, offset in wanted.items()}
            )
            folder.keep_committed(own)
        results += rows
    return results


def _key(queue: QueueName) -> str:
    return f"{queue[0]}/{label(queue)}"
