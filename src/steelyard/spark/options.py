"""The options of `spark.read.format("rocketmq")`.

| option | default | meaning |
|---|---|---|
| nameservers | (needed) | `host:port`, several by `;` or `,`; also nameserver, nameServer(s) |
| topic | (needed) | the topic; several by `,` |
| startingOffsets | earliest | earliest, or JSON: `{"topic": {"broker": {"0": 23}}}`, -2: earliest |
| endingOffsets | latest | latest, or JSON of the same shape, exclusive; -1 is latest |
| queues | all | the queues to read: `broker-a:0,broker-b` (a broker's name: all of its queues) |
| failOnDataLoss | true | fail if requested messages no longer exist; false skips them |
| pullBatchSize | 8192 | messages requested per pull; Apache brokers return at most 32 |
| consumerGroup | spark-rocketmq | the group named in the pulls; nothing is committed |
| timeoutMs | 10000 | longest wait for a connection or a reply |

Queues that are not named in the JSON of offsets start at earliest and end at latest. Names of
options are case-insensitive.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from steelyard.errors import ConfigError

__all__ = ["Options", "read_options"]

EARLIEST = -2
LATEST = -1
"""As in Spark's Kafka source."""

PULL_MESSAGES_MAX = 65_536

NAMES = (
    "nameservers",
    "topic",
    "startingOffsets",
    "endingOffsets",
    "queues",
    "failOnDataLoss",
    "pullBatchSize",
    "consumerGroup",
    "timeoutMs",
)
ALIASES = {"nameserver": "nameservers", "topics": "topic"}

QueueName = tuple[str, str, int]
"""Topic, broker, queue id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated options of a read.

    `starting` and `ending` are the offsets named in the JSON, by queue. `nameservers`, `topics`,
    `fail_on_data_loss`, `pull_messages_max` (pullBatchSize), `consumer_group` and `timeout_ms`: see
    the table above.
    """

    nameservers: tuple[str, ...]
    topics: tuple[str, ...]
    starting: Mapping[QueueName, int]
    ending: Mapping[QueueName, int]
    queues: frozenset[tuple[str, int | None]]
    """(broker, queue id or None for all of its queues); empty: every queue."""
    fail_on_data_loss: bool = True
    pull_messages_max: int = 8_192
    consumer_group: str = "spark-rocketmq"
    timeout_ms: int = 10_000


def read_options(given: Mapping[str, str]) -> Options:
    """Validate the options. Raises ConfigError that names the wrong one and what is expected."""
    options = _canonical(given)
    if not options.get("nameservers"):
        raise ConfigError("option 'nameservers' is missing; give it as 'host:port;host:port'")
    topics = _list(options.get("topic", ""))
    if not topics:
        raise ConfigError("option 'topic' is missing; give the name of the topic to read")
    return Options(
        nameservers=_nameservers(options["nameservers"]),
        topics=tuple(topics),
        starting=_offsets("startingOffsets", options, "earliest", topics),
        ending=_offsets("endingOffsets", options, "latest", topics),
        queues=_queues(options.get("queues", "")),
        fail_on_data_loss=_flag("failOnDataLoss", options),
        pull_messages_max=_number("pullBatchSize", options, 8_192, PULL_MESSAGES_MAX),
        consumer_group=options.get("consumerGroup") or "spark-rocketmq",
        timeout_ms=_number("timeoutMs", options, 10_000, 600_000),
    )


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in NAMES} | ALIASES
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[near[0]]!r}?" if near else f"known: {', '.join(NAMES)}"
            raise ConfigError(f"unknown option {name!r}; {hint}")
        options[known[name.lower()]] = str(value).strip()
    return options


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _nameservers(text: str) -> tuple[str, ...]:
    addresses = _list(text.replace(";", ","))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(
                f"option 'nameservers' has {address!r}; give each one as 'host:port', e.g."
                " '127.0.0.1:9876'"
            )
    return tuple(addresses)


def _flag(name: str, options: Mapping[str, str]) -> bool:
    text = options.get(name, "true").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name!r} is {text!r}; it must be true or false")
    return text == "true"


def _number(name: str, options: Mapping[str, str], default: int, most: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ConfigError(f"option {name!r} is {text!r}; it must be a number from 1 to {most}")
    return int(text)


def _queues(text: str) -> frozenset[tuple[str, int | None]]:
    wanted: set[tuple[str, int | None]] = set()
    for part in _list(text):
        broker, colon, number = part.partition(":")
        if not broker or (colon and not number.isdecimal()):
            raise ConfigError(
                f"option 'queues' has {part!r}; give each one as 'broker:0', or 'broker' for all"
                " of its queues"
            )
        wanted.add((broker, int(number) if colon else None))
    return frozenset(wanted)


# -- offsets ---------------------------------------------------------------------------------------


def _offsets(
    name: str, options: Mapping[str, str], default: str, topics: list[str]
) -> dict[QueueName, int]:
    text = options.get(name, default)
    if text == default:
        return {}
    if text in ("earliest", "latest"):
        _refuse(name, f"is {text!r}; a batch read {_rule(default)}")
    shape = 'it must be JSON like {"topic": {"broker-a": {"0": 23}}}'
    try:
        tree = json.loads(text)
    except ValueError:
        _refuse(name, f"is {text!r}; it must be {default!r}, or {shape[11:]}")
    offsets: dict[QueueName, int] = {}
    for topic, brokers in _entries(name, tree, shape):
        if topic not in topics:
            _refuse(name, f"names the topic {topic!r}; option 'topic' is {','.join(topics)!r}")
        for broker, queues in _entries(name, brokers, shape):
            for queue, offset in _entries(name, queues, shape):
                if not queue.isdecimal():
                    _refuse(name, f"has the queue {queue!r}; it must be a queue's number")
                offsets[topic, broker, int(queue)] = _offset(name, offset, default)
    return offsets


def _entries(name: str, tree: object, shape: str) -> list[tuple[str, object]]:
    if not isinstance(tree, dict):
        _refuse(name, f"has {json.dumps(tree)} where an object belongs; {shape}")
    return [(str(key), value) for key, value in tree.items()]


def _offset(name: str, offset: object, default: str) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
        _refuse(name, f"has the offset {json.dumps(offset)}; it must be 0 or more, -2 or -1")
    wrong = LATEST if default == "earliest" else EARLIEST
    if offset == wrong:
        _refuse(name, f"has the offset {offset}; a batch read {_rule(default)}")
    return offset


def _rule(default: str) -> str:
    return (
        "starts at 'earliest' or at numbers"
        if default == "earliest"
        else "ends at 'latest' or at numbers"
    )


def _refuse(name: str, words: str) -> NoReturn:
    raise ConfigError(f"option {name!r} {words}")
