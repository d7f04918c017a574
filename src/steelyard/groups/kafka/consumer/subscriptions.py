"""The topics of a group's members, by name and by regular expression.

Expressions are evaluated again when the topics change, for new names only. Kafka does so at most
every 10 s, because it asks an authorizer for each name. Source:
GroupMetadataManager.maybeUpdateRegularExpressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from steelyard.groups.kafka.consumer.member import ConsumerGroupMember
from steelyard.groups.kafka.groups import TopicsView
from steelyard.groups.kafka.patterns import Pattern, PatternError
from steelyard.wording import counted

TEXTS_MAX = 5
"""Most topics named in one cause."""


class Subscriptions:
    """The expressions of a group's members, and the matching topics."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._patterns: dict[str, Pattern | None] = {}
        self._matched: dict[str, set[str]] = {}
        self._names: frozenset[str] = frozenset()
        """The topics on which all expressions were tried."""
        self._version: int | None = None

    def forget_unused(self, members: Iterable[ConsumerGroupMember]) -> None:
        """Drop the expressions that no member has any more."""
        used = {member.regex for member in members}
        for regex in [regex for regex in self._patterns if regex not in used]:
            del self._patterns[regex], self._matched[regex]

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Return the existing topics to which a member subscribes."""
        wanted = set(member.topics)
        if member.regex is not None:
            wanted |= self._matches(member.regex)
        return frozenset(topic for topic in wanted if self._topics.partitions(topic) > 0)

    def partitions(self, members: Iterable[ConsumerGroupMember]) -> dict[str, int]:
        """Return the existing topics to which any of the members subscribes.

        Sorted, with their numbers of partitions.
        """
        wanted: set[str] = set()
        for topics in {member.topics for member in members}:
            wanted.update(topics)
        for regex in {member.regex for member in members}:
            if regex is not None:
                wanted |= self._matches(regex)
        counts = {topic: self._topics.partitions(topic) for topic in sorted(wanted)}
        return {topic: count for topic, count in counts.items() if count > 0}

    def include(self, members: Iterable[ConsumerGroupMember], topic: str) -> bool:
        """Return whether one of the members subscribes to the topic, which need not exist."""
        return any(
            topic in member.topics
            or (member.regex is not None and topic in self._matches(member.regex))
            for member in members
        )

    def learn(self, regex: str) -> None:
        """Try an expression on all names, if it is new. Raises PatternError."""
        self._refresh()
        if regex not in self._patterns:
            self._add(regex, Pattern(regex))

    def _add(self, regex: str, pattern: Pattern | None) -> None:
        self._patterns[regex] = pattern
        self._matched[regex] = _matching(pattern, self._names)

    def _matches(self, regex: str) -> set[str]:
        try:
            self.learn(regex)
        except PatternError:
            # Only possible if another release stored it: those of members were tried before.
            self._add(regex, None)
        return self._matched[regex]

    def _refresh(self) -> None:
        if self._topics.version == self._version:
            return
        self._version = self._topics.version
        names = frozenset(self._topics.names())
        new = names - self._names
        for regex, pattern in self._patterns.items():
            self._matched[regex] = (self._matched[regex] & names) | _matching(pattern, new)
        self._names = names


def _matching(pattern: Pattern | None, names: Iterable[str]) -> set[str]:
    return {name for name in names if pattern is not None and pattern.matches(name)}


def topic_changes(
    before: Mapping[str, int], after: Mapping[str, int], again: Collection[str]
) -> str | None:
    """Describe changes of a group's topics for people; None if there are none.

    `again`: topics that were deleted and created again.
    """
    texts = [
        _topic_change(topic, before.get(topic, 0), after.get(topic, 0))
        for topic in sorted({**before, **after})
        if before.get(topic) != after.get(topic) and topic not in again
    ]
    texts += [f"topic {topic} was deleted and created again" for topic in again]
    if len(texts) > TEXTS_MAX:
        texts[TEXTS_MAX:] = [f"{counted(len(texts) - TEXTS_MAX, 'more topic')} changed"]
    return ", ".join(texts) or None


def _topic_change(topic: str, before: int, after: int) -> str:
    if not before:
        return f"topic {topic} exists now, with {counted(after, 'partition')}"
    if not after:
        return f"topic {topic} no longer exists"
    return f"topic {topic} has {counted(after, 'partition')} now, {before} before"
