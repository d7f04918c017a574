"""Where a read starts and ends: offsets, `earliest`, `latest`, times, or a group's progress."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from steelyard.errors import ConfigError
from steelyard.spark.offsets import QueueName, leaves

EARLIEST = -2
LATEST = -1
"""As in Spark's Kafka source."""
COMMITTED = -3
"""The progress of the consumer group."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}
_SHAPE = 'JSON like {"topic": {"broker-a": {"0": 23}}}'


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """One end of a read. What is more precise comes first: `time`, then `times`, then `offsets`.

    Queues that none of these names are at `otherwise`: EARLIEST, LATEST or COMMITTED.
    """

    otherwise: int
    offsets: Mapping[QueueName, int] = field(default_factory=dict)
    """0 or more, EARLIEST or LATEST."""
    times: Mapping[QueueName, int] = field(default_factory=dict)
    """Store times, in milliseconds since 1970."""
    time: int | None = None
    """Store time for all queues."""

    def named(self) -> frozenset[QueueName]:
        """Return the queues that are named."""
        return frozenset(self.offsets) | frozenset(self.times)


FROM_EARLIEST = ReadPosition(EARLIEST)
UP_TO_LATEST = ReadPosition(LATEST)


def offsets_option(
    label: str, text: str, allowed: Collection[int], topics: Collection[str]
) -> ReadPosition:
    """Read an option like startingOffsets.

    `label`: the option's name. `allowed`: which of the three words may be used. `topics`: the
    topics that may be named; empty: any. Raises ConfigError.
    """
    words = [repr(word) for word, value in _WORDS.items() if value in allowed]
    if text in _WORDS:
        if _WORDS[text] not in allowed:
            _refuse(label, f"is {text!r}; here it must be {', '.join(words)}, or {_SHAPE}")
        return ReadPosition(_WORDS[text])
    otherwise = LATEST if EARLIEST not in allowed else EARLIEST
    offsets: dict[QueueName, int] = {}
    for queue, offset in _queues(label, text, topics, f"{', '.join(words)}, or {_SHAPE}"):
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
            _refuse(label, f"has the offset {json.dumps(offset)}; it must be 0 or more, -2 or -1")
        if offset < 0 and offset not in allowed:
            word = "earliest" if offset == EARLIEST else "latest"
            _refuse(label, f"has the offset {offset} ({word}), which is not possible here")
        offsets[queue] = offset
    return ReadPosition(otherwise, offsets)


def times_option(label: str, text: str, topics: Collection[str]) -> dict[QueueName, int]:
    """Read an option like startingOffsetsByTimestamp. Raises ConfigError."""
    times: dict[QueueName, int] = {}
    for queue, time in _queues(label, text, topics, _SHAPE + " with times in milliseconds"):
        if isinstance(time, bool) or not isinstance(time, int) or time < 0:
            _refuse(label, f"has the time {json.dumps(time)}; it must be milliseconds since 1970")
        times[queue] = time
    return times


def _queues(
    label: str, text: str, topics: Collection[str], right: str
) -> list[tuple[QueueName, object]]:
    try:
        tree = json.loads(text)
    except ValueError:
        _refuse(label, f"is {text!r}; it must be {right}")
    try:
        found = list(leaves(tree))
    except ConfigError as error:
        _refuse(label, f"{error}; it must be {right}")
    for topic in tree:
        if topics and topic not in topics:
            _refuse(label, f"names the topic {topic!r}; the topics read are {','.join(topics)!r}")
    return found


def _refuse(label: str, words: str) -> NoReturn:
    raise ConfigError(f"option {label!r} {words}")
