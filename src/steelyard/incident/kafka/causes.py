"""Why a rebalance began.

Records say who is gone and who is new. Why a member is gone, the broker's log says; without one,
how long its partitions had not been committed when the rebalance ended: about its session time-out
(`left (expired)`), its `max.poll.interval.ms` (`left (poll timeout)`), or neither (`left
(unregistered)`). That counts as `medium` if it committed regularly, else as `low`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from steelyard.incident.kafka.broker_log import COORDINATOR, Evidence
from steelyard.incident.kafka.commits import GroupCommits
from steelyard.incident.kafka.generations import GenerationMember
from steelyard.incident.kafka.spans import Span, name_of
from steelyard.incident.tables import HIGH, LOW, MEDIUM
from steelyard.wording import counted

LEFT, EXPIRED, POLL_TIMEOUT = "left (unregistered)", "left (expired)", "left (poll timeout)"
_FIRST = (EXPIRED, POLL_TIMEOUT, LEFT)
JOINED, STATIC, TOPICS, UNKNOWN = "joined", "static", "topics", "unknown"

WORDS = {
    JOINED: "{} joined",
    LEFT: "{} left",
    EXPIRED: "{} died: its session timed out",
    POLL_TIMEOUT: "{} left: its application did not poll for too long",
    STATIC: "{} came back under its instance id",
}


class RebalanceCause(NamedTuple):
    """Why a rebalance began. `silent`: who died without a word."""

    trigger: str
    confidence: str
    reason: str
    silent: GenerationMember | None = None


class Causes:
    """Finds the cause of a rebalance.

    `interval`: the group's commit interval; `evidence`: what brokers' logs say from the generation
    before on.
    """

    def __init__(
        self, span: Span, commits: GroupCommits, interval: int, evidence: Sequence[Evidence]
    ) -> None:
        self._span = span
        self._commits = commits
        self._interval = interval
        self._evidence = evidence

    def find(self) -> RebalanceCause:
        """Return what began it: who died comes first, then who left, then who joined."""
        before, after = self._span.before.members, self._span.after.members
        gone = sorted((one for key, one in before.items() if key not in after), key=name_of)
        new = sorted((one for key, one in after.items() if key not in before), key=name_of)
        found = [self._gone(member) for member in gone]
        found.sort(key=lambda cause: _FIRST.index(cause.trigger))
        instances = {member.instance_id for member in gone} - {None}
        for member in new:
            trigger = STATIC if member.instance_id in instances else JOINED
            cause = RebalanceCause(trigger, HIGH, WORDS[trigger].format(name_of(member)))
            if trigger == STATIC:
                found = [cause]  # the old id is gone because this one took its place
            else:
                found.append(cause)
        if not found:
            found = [self._otherwise()]
        said = [one.text for one in self._evidence if one.text]
        reasons = dict.fromkeys([*(cause.reason for cause in found), *said])
        return found[0]._replace(reason="; ".join(reasons))

    def last_commit(self, member: GenerationMember) -> int | None:
        """Return when a partition of the member was committed last, before the rebalance ended."""
        return self._commits.last(member.partitions, self._span.before.at, self._span.first.at)

    def _gone(self, member: GenerationMember) -> RebalanceCause:
        told = next(
            (one for one in self._evidence if one.member == member.member_id and one.trigger), None
        )
        last = self.last_commit(member)
        silent = None if last is None else self._span.first.at - last
        is_regular = last is not None and self._commits.are_regular(member.partitions, last)
        trigger, confidence = LEFT, LOW
        if told is not None:
            trigger, confidence = told.trigger, HIGH
        elif silent is not None:
            trigger, confidence = self._trigger_of(member, silent), MEDIUM if is_regular else LOW
        is_open = is_regular and (told is None or not told.is_final)
        if is_open and silent is not None and self._stalled(member, silent):
            # It was in the group for longer than its application did anything: its library gave up.
            trigger, confidence = POLL_TIMEOUT, MEDIUM
        words = WORDS[trigger].format(name_of(member))
        if told is None and silent is not None:
            words += f" (silent for {silent / 1000:.1f} s)"
        return RebalanceCause(trigger, confidence, words, member if trigger == EXPIRED else None)

    def _trigger_of(self, member: GenerationMember, silent: int) -> str:
        """Return why a member is gone whose partitions were not committed for `silent` ms."""
        if self._stalled(member, silent):
            return POLL_TIMEOUT
        if member.session_ms is None:  # it may be any
            return EXPIRED if silent > max(3 * self._interval, 3_000) else LEFT
        return EXPIRED if silent >= max(member.session_ms - self._near, self._near) else LEFT

    def _stalled(self, member: GenerationMember, silent: int) -> bool:
        """Return whether it was silent for longer than its application may take between polls."""
        session = member.session_ms or 0
        return member.poll_ms > session and silent >= max(member.poll_ms - self._near, self._near)

    @property
    def _near(self) -> int:
        """Return how much shorter a silence may seem than it was: two commit intervals."""
        return 2 * self._interval

    def _otherwise(self) -> RebalanceCause:
        """Return why a rebalance began that nobody joined or left."""
        if self._span.first.has_new_coordinator:
            return RebalanceCause(COORDINATOR, HIGH, "its coordinator was restarted or moved")
        more = self._span.after.owners.keys() - self._span.before.owners.keys()
        if more:
            return RebalanceCause(TOPICS, MEDIUM, counted(len(more), "new partition"))
        return RebalanceCause(UNKNOWN, LOW, "nobody joined or left")
