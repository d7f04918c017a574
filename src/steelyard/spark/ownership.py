"""Which member held which queue when, according to the ledger: as time spans and a text chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from steelyard.ledger.events import Delivered, Record
from steelyard.ledger.starts import members_ever

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NOBODY = "·"
MANY = "#"
"""Stands for every member beyond the letters."""
SILENCE_MS = 5_000
"""Time without deliveries, such as a broker's failure, after which a queue counts as free.
"""
MARK_EVERY = 12
"""Columns between two time marks."""


class DeliverySpan(NamedTuple):
    """A period in which one member received a queue's messages, with no silence or other member."""

    queue: str
    """`broker:queue`, with the topic before it if the group reads several."""
    client: str
    start: int
    end: int


def busiest_group(records: Iterable[Record]) -> str:
    """Return the group with the most messages delivered to members, "" if there is none."""
    records = list(records)
    members = members_ever(records)
    counts: Counter[str] = Counter()
    for one in records:
        if isinstance(one, Delivered) and one.client in members:
            counts[one.group] += one.count
    return min(counts, key=lambda group: (-counts[group], group), default="")


def holdings(records: Iterable[Record], group: str) -> list[DeliverySpan]:
    """Sorted by queue, then by time."""
    mine = deliveries_of(records, group)
    topics = {one.topic for one in mine}
    open_: dict[tuple[str, str, int], DeliverySpan] = {}
    done: list[tuple[tuple[str, str, int], DeliverySpan]] = []
    for one in mine:
        key = (one.topic, one.broker, one.queue)
        name = (
            f"{one.broker}:{one.queue}"
            if len(topics) == 1
            else f"{one.topic} {one.broker}:{one.queue}"
        )
        last = open_.get(key)
        if last and last.client == one.client and one.at - last.end <= SILENCE_MS:
            open_[key] = last._replace(end=max(last.end, one.until))
        else:
            if last is not None:
                done.append((key, last))
            open_[key] = DeliverySpan(name, one.client, one.at, one.until)
    return [
        holding for _, holding in sorted([*done, *open_.items()], key=lambda x: (x[0], x[1].start))
    ]


def deliveries_of(records: Iterable[Record], group: str) -> list[Delivered]:
    """Return deliveries to members of the group, in order of time."""
    records = list(records)
    members = members_ever(records)
    mine = [
        one
        for one in records
        if isinstance(one, Delivered) and one.group == group and one.client in members
    ]
    return sorted(mine, key=lambda one: (one.at, one.until, one.topic, one.broker, one.queue))


def letters(held: Sequence[DeliverySpan]) -> dict[str, str]:
    """A letter per member, in the order in which they appear."""
    clients = dict.fromkeys(
        holding.client for holding in sorted(held, key=lambda h: (h.start, h.client))
    )
    return {client: LETTERS[n] if n < len(LETTERS) else MANY for n, client in enumerate(clients)}


def ownership_chart(records: Iterable[Record], group: str | None = None, width: int = 72) -> str:
    """Draw a row per queue and a column per time step, with the letter of the holding member.

    If several did in one step, the last one is shown; a dot means that no member received messages.
    Without `group`, the busiest is shown.
    """
    records = list(records)
    group = busiest_group(records) if group is None else group
    held = holdings(records, group)
    if not held:
        return "no member received any messages"
    start = min(holding.start for holding in held)
    end = max(holding.end for holding in held)
    step = max(1, -(-(end - start + 1) // width))
    width = (end - start) // step + 1
    rows: dict[str, list[str]] = {}
    names = letters(held)
    for holding in held:
        row = rows.setdefault(holding.queue, [NOBODY] * width)
        first, last = (holding.start - start) // step, (holding.end - start) // step
        row[first : last + 1] = names[holding.client] * (last - first + 1)
    margin = max(len(queue) for queue in rows)
    lines = [f"group {group}"]
    lines.append(" " * (margin + 2) + _time_marks(start, step, width))
    lines += [f"{queue:>{margin}}  {''.join(row)}" for queue, row in rows.items()]
    lines += [f"{letter} = {client}" for client, letter in names.items()]
    lines.append(
        f"one column is {step / 1000:.1f} s, times are UTC; {NOBODY} no member received messages"
    )
    return "\n".join(lines)


def _time_marks(start: int, step: int, width: int) -> str:
    marks = [
        f"|{clock(start + column * step):<{MARK_EVERY - 1}}"
        for column in range(0, max(width - 8, 1), MARK_EVERY)
    ]
    return "".join(marks).rstrip()


def clock(at: int) -> str:
    """Format as time of day, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S")
