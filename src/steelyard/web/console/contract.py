"""What the console asks of a cluster, whatever servers it consists of.

A `DialectSource` answers for the groups, topics and messages of one dialect. A `WatchedCluster`
has one or two of them, and knows the servers. Methods raise SteelyardError: RouteError for a group
or topic that does not exist, ConfigError for what cannot be asked of it, BrokerError and KafkaError
for what a broker refuses, and RemotingError for servers that do not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from steelyard.groups.doctor import Diagnosis
from steelyard.web.console.answers import (
    ClusterKind,
    ClusterView,
    Dialect,
    FlappingView,
    GroupLine,
    GroupPicture,
    MessagesAnswer,
    OffsetChange,
    TopicLine,
    TopicPicture,
)
from steelyard.web.console.questions import CreateTopic, MessagesQuestion, ResetOffsets

GroupId = tuple[Dialect, str]
"""A group: its dialect and its name."""


class GroupsFound(NamedTuple):
    """All groups, in any order. `left_out`: groups beyond the most that are listed.

    `lags`: of single queues, by group and key. `pictures`: of those groups whose picture cost
    nothing more.
    """

    lines: Sequence[GroupLine]
    left_out: int
    lags: Mapping[str, Mapping[str, int | None]]
    pictures: Sequence[GroupPicture] = ()


class TopicsFound(NamedTuple):
    """All topics, in any order. `left_out`: topics beyond the most that are listed."""

    lines: Sequence[TopicLine]
    left_out: int


class DialectSource(Protocol):
    """The groups, topics and messages of one dialect."""

    async def groups(self) -> GroupsFound:
        """Return all groups."""

    async def group(self, name: str) -> GroupPicture:
        """Return a group as it is now."""

    async def flapping(self, name: str) -> Sequence[FlappingView] | None:
        """Return the members of a group that flap; None if the servers do not count them."""

    async def diagnose(self, name: str) -> Sequence[Diagnosis]:
        """Return what keeps a group from working."""

    async def topics(self) -> TopicsFound:
        """Return all topics."""

    async def topic(self, name: str) -> TopicPicture:
        """Return a topic."""

    async def messages(self, question: MessagesQuestion) -> MessagesAnswer:
        """Return messages of a topic."""

    async def reset_offsets(self, group: str, reset: ResetOffsets) -> Sequence[OffsetChange]:
        """Make a group continue elsewhere in a topic, or return what that would change."""

    async def create_topic(self, topic: CreateTopic) -> str:
        """Create a topic; return in words what was done."""

    async def delete_topic(self, name: str) -> str:
        """Delete a topic; return in words what was done."""


class WatchedCluster(Protocol):
    """A cluster. Connections are opened with the first questions."""

    async def close(self) -> None:
        """Close all connections."""

    async def kind(self) -> ClusterKind:
        """Return what servers it consists of."""

    async def view(self, *, allow_changes: bool) -> ClusterView:
        """Return its servers."""

    async def partitions(self) -> Mapping[tuple[str, str, int], int]:
        """Return which partition each queue is, by topic, broker and queue; as far as known."""

    async def sources(self) -> Mapping[Dialect, DialectSource]:
        """Return the sources by dialect; one at least."""
