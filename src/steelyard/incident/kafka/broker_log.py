"""Lines of Kafka brokers' logs that say why a group rebalances.

Any layout of the lines is read that begins with a time such as `[2026-11-23 21:01:27,249]`, as
Kafka's own configuration of log4j writes it; the words are those of Kafka 2.4 to 4.4.
Source: GroupCoordinator.scala, GroupMetadataManager.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from steelyard.incident.log_lines import at_of


class Evidence(NamedTuple):
    """A line about a group. `trigger`: what it says happened to `member`; both may be empty.

    `text`: the reason in the broker's own words; empty if the trigger says it all.
    """

    at: int
    group: str
    member: str
    trigger: str
    text: str

    @property
    def is_final(self) -> bool:
        """Return whether nothing else can have happened: the client said why it left."""
        return self.text.startswith(_CLIENT_REASON)


COORDINATOR, UNLOADED = "coordinator", "unloaded"
"""Triggers of lines about no member: a broker now coordinates the group, or no longer does."""

_CLIENT_REASON = "client reason: "

_GROUP, _MEMBER = r"(?P<group>\S+)", r"(?P<member>\S+)"

_LEFT = re.compile(
    r"Member (?:MemberMetadata\(memberId=)?(?P<member>[^\s,]+).*? has left group(?: "
    r"(?!through)(?P<group>\S+))? through explicit `LeaveGroup`(?: request)?"
    r"(?:; client reason: (?P<reason>.*?))?(?: \([\w.$]+\))?$"
)
_GROUP_PREFIX = re.compile(r"\[Group(?:Id)? (?P<group>[^\]]+)\]")
_FAILED = re.compile(rf"Member {_MEMBER} in group {_GROUP} has failed, removing it")
_FENCED = re.compile(rf"Member {_MEMBER} fenced from the group because (?P<reason>.*?)\.?(?: \(|$)")
_GONE = re.compile(rf"Member {_MEMBER} left the consumer group")
_STATIC_GONE = re.compile(
    rf"[Ss]tatic [Mm]ember {_MEMBER} with instance id \S+ left the consumer group"
)
_LOADED = (
    re.compile(rf"Loaded (?:classic|consumer) group {_GROUP} with"),
    re.compile(rf"Loading group metadata for {_GROUP} with generation"),
)
_UNLOADED = (
    re.compile(r"\[GroupId=(?P<group>[^\]]+)\] Unload(?:ing|ed) group metadata"),
    re.compile(rf"Unloading group metadata for {_GROUP} with generation"),
)
_PREPARING = re.compile(
    rf"Preparing to rebalance group {_GROUP} in state .*?\(reason: (?P<reason>.*)\)"
)


def read_broker_log(lines: Iterable[str], utc_offset_ms: int = 0) -> Iterator[Evidence]:
    """Yield what the lines say about groups, in their order.

    `utc_offset_ms`: by how much the clock of the log's time zone is ahead of UTC.
    """
    for line in lines:
        if "oup" not in line:
            continue
        at = at_of(line, utc_offset_ms)
        found = None if at is None else _evidence(line.rstrip("\n"))
        if at is not None and found is not None:
            yield found._replace(at=at)


def _evidence(line: str) -> Evidence | None:
    """Return what a line says, without its time."""
    prefix = _GROUP_PREFIX.search(line)
    group = "" if prefix is None else prefix["group"]
    if match := _PREPARING.search(line):
        return Evidence(0, match["group"], "", "", _reason(match["reason"]))
    if match := _LEFT.search(line):
        reason = match["reason"] or ""
        polled = "poll timeout" in reason
        trigger = "left (poll timeout)" if polled else "left (unregistered)"
        text = f"{_CLIENT_REASON}{reason}" if reason and reason != "not provided" else ""
        return Evidence(0, match["group"] or group, match["member"], trigger, text)
    if match := _FAILED.search(line):
        return Evidence(0, match["group"], match["member"], "left (expired)", "")
    if match := _FENCED.search(line):
        return Evidence(0, group, match["member"], "left (expired)", match["reason"])
    if match := _GONE.search(line) or _STATIC_GONE.search(line):
        return Evidence(0, group, match["member"], "left (unregistered)", "")
    for trigger, patterns in ((COORDINATOR, _LOADED), (UNLOADED, _UNLOADED)):
        for pattern in patterns:
            if match := pattern.search(line):
                return Evidence(0, match["group"], "", trigger, "")
    return None


def _reason(text: str) -> str:
    """Return the reason without the part that says that the client gave none."""
    return text.removesuffix("; client reason: not provided").rstrip(".")
