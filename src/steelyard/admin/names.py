"""Validation of topic and group names on the command line, before anything is sent.

RocketMQ's rules: TopicValidator.java, Validators.java. Kafka's:
clients/common/internals/Topic.java.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from steelyard.errors import MessageError
from steelyard.produce.rules import check_topic
from steelyard.wire.remoting.names import NAME, RETRY_PREFIX, TOPIC_CHARACTERS_MAX

GROUP_LENGTH_MAX = TOPIC_CHARACTERS_MAX - len(RETRY_PREFIX)
"""The name of a group's retry topic must be a valid topic name."""

READ_LENGTH_MAX, KAFKA_LENGTH_MAX = 255, 249

_KAFKA = re.compile(r"[a-zA-Z0-9._-]+")
_READ = re.compile(r"[%|a-zA-Z0-9._-]+")

Fault = str | None
"""What is wrong with a name; None if it is valid."""


def written_topic_fault(name: str) -> Fault:
    """Check a topic that RocketMQ clients send to or create."""
    try:
        check_topic(name)
    except MessageError as error:
        return str(error)
    return None


def read_topic_fault(name: str) -> Fault:
    """Check a topic that is only read: Kafka clients may have created it.

    Retry topics are longer.
    """
    return _fault("topic", name, _READ, "letters, digits and %|._-", READ_LENGTH_MAX)


def group_fault(name: str) -> Fault:
    """Check a RocketMQ group."""
    return _fault("group", name, NAME, "letters, digits and %|_-", GROUP_LENGTH_MAX)


def kafka_topic_fault(name: str) -> Fault:
    """Check a Kafka topic."""
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    return _fault("topic", name, _KAFKA, "letters, digits and ._-", KAFKA_LENGTH_MAX)


def kafka_group_fault(name: str) -> Fault:
    """Check a Kafka group: any text but an empty one."""
    return None if name else "the name of the group is empty"


def _fault(noun: str, name: str, allowed: re.Pattern[str], said: str, length_max: int) -> Fault:
    if not name:
        return f"the name of the {noun} is empty"
    if len(name) > length_max:
        return f"{noun} {name[:20]!r}… has {len(name)} characters; at most {length_max} are allowed"
    if allowed.fullmatch(name) is None:
        return f"{noun} {name!r} has characters that are not allowed; use {said} only"
    return None


def _kind(fault_of: Callable[[str], Fault]) -> Callable[[str], str]:
    """Return a function for `add_argument(type=...)` that strips and checks a name."""

    def check(text: str) -> str:
        name = text.strip()
        fault = fault_of(name)
        if fault is not None:
            raise argparse.ArgumentTypeError(fault)
        return name

    return check


written_topic = _kind(written_topic_fault)
read_topic = _kind(read_topic_fault)
group = _kind(group_fault)
