"""The members of all groups, as one broker knows them from heartbeats.

A member is a client id on a connection. A group's members are its distinct client ids: a client
that has reconnected, while the broker still considers its old connection alive, counts once.
RocketMQ lists one entry per connection, so that two shares of the queues go to one client, which
reads only one.

Every `GroupChange` names the connections to notify. Members change when a client joins (or
reconnects), when the topics of a member change (not the expression of one), and when a client
leaves: by request, with its connection, or when its heartbeats stop. RocketMQ does not notify
anybody of the last kind.

Each member keeps its own subscriptions. RocketMQ keeps one table per group, which members with
different topics overwrite in turn; here each only gets its own topics.
Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import TopicSubscription, subscribe
from steelyard.wire.remoting.bodies import ConsumerData, SubscriptionData

MEMBERSHIPS_MAX = 200_000
"""Most (connection, group) pairs of one broker."""

V5_0_0 = 413
"""MQVersion ordinal of Java 5.0.0."""

BROADCASTING = "BROADCASTING"
EXPIRED = "expired"


class ClientChannel(msgspec.Struct, frozen=True):
    """A client's connection, as its heartbeat describes it. `address`: `ip:port`."""

    link: int
    address: str
    client_id: str
    language: str
    version: int

    @property
    def paces_rebalances(self) -> bool:
        """Whether it lets a second pass between two rebalances, as Java does from 5.0 on."""
        return self.language == "JAVA" and self.version >= V5_0_0

    @property
    def tells_subscriptions(self) -> bool:
        """Whether it tells its subscriptions when asked what it is doing (307), as Java does."""
        return self.language == "JAVA"

    @property
    def commits_what_it_gives_up(self) -> bool:
        """Whether it commits each queue that it gives up.

        Go (2.1.2) commits the first one at most, and then has forgotten how far it is in the others
        (consumer/offset_store.go, persist). Its pulls commit, too.
        """
        return self.language != "GO"


class GroupChange(msgspec.Struct, frozen=True):
    """A change of a group's members. `kind`: joined | left. `members`: all after it, sorted.

    `links`: the connections to notify, in the order in which they joined; none if the group
    broadcasts.
    """

    kind: str
    group: str
    client_id: str
    cause: str
    members: tuple[str, ...]
    links: tuple[int, ...]
    topics: tuple[str, ...] = ()
    heard_at: int | None = None
    """When a client that expired sent its last heartbeat, in ms; None for other causes."""


class Duplicate(msgspec.Struct, frozen=True):
    """Two live connections with one client id in a group, that is, two conflicting processes."""

    group: str
    client_id: str
    addresses: tuple[str, str]


class Heard(msgspec.Struct, frozen=True):
    """The result of a heartbeat: usually nothing.

    `refiltered`: topics of which the member wants other messages than before.
    """

    changes: tuple[GroupChange, ...] = ()
    duplicate: Duplicate | None = None
    refiltered: frozenset[str] = frozenset()


class Member(msgspec.Struct):
    """One connection's membership in one group of consumers."""

    client: ClientChannel
    data: ConsumerData
    subscriptions: dict[str, TopicSubscription]
    joined_at: int
    heard_at: int


class _Producer(msgspec.Struct):
    client: ClientChannel
    heard_at: int


class Registry:
    """All consumer and producer groups of one broker. A group without members does not exist."""

    def __init__(self) -> None:
        self._consumers: dict[str, dict[int, Member]] = {}
        self._producers: dict[str, dict[int, _Producer]] = {}
        self._producer_groups: dict[str, dict[int, set[str]]] = {}
        """The groups of producers, by client id and connection."""
        self._count = 0
        self._warned: set[tuple[str, str]] = set()

    # -- consumers -------------------------------------------------------------------------------

    def heard(self, client: ClientChannel, data: ConsumerData, now: int) -> Heard:
        """Handle a heartbeat of a consumer.

        Raises ProtocolError for an invalid expression or too many members.
        """
        group = data.group_name
        subscriptions = {item.topic: subscribe(item) for item in data.subscription_data_set}
        known = self.member(group, client.link)
        changes: list[GroupChange] = []
        if known is not None and known.client.client_id == client.client_id:
            duplicate = self._duplicate_of(known)
            changed = known.subscriptions.keys() != subscriptions.keys()
            refiltered = _refiltered(known.subscriptions, subscriptions)
            known.client, known.data, known.heard_at = client, data, now
            known.subscriptions = subscriptions
            if changed:
                changes = [self._change("joined", group, client.client_id, "subscription")]
            return Heard(tuple(changes), duplicate, refiltered)
        if known is not None:  # one connection, another id: RocketMQ logs a [BUG] and continues
            changes = self._drop(group, [client.link], "unregistered")
        self._count_one_more()
        members = self._consumers.setdefault(group, {})
        members[client.link] = Member(client, data, subscriptions, now, now)
        changes.append(self._change("joined", group, client.client_id, "heartbeat"))
        return Heard(tuple(changes))

    def renew(self, group: str, link: int, told: Iterable[SubscriptionData]) -> frozenset[str]:
        """Take over newer versions of a member's subscriptions, told outside of a heartbeat.

        Its topics change with heartbeats only. Return those of which it wants other messages now.
        Raises ProtocolError for an invalid expression.
        """
        member = self.member(group, link)
        known = {} if member is None else member.subscriptions
        newer = {
            item.topic: subscribe(item)
            for item in told
            if item.topic in known and known[item.topic].data.sub_version < item.sub_version
        }
        refiltered = _refiltered(known, newer)
        known.update(newer)
        return refiltered

    def _duplicate_of(self, member: Member) -> Duplicate | None:
        """Return a duplicate: a live connection with this client id that joined later.

        Each client id of a group is reported once.
        """
        key = (member.data.group_name, member.client.client_id)
        if key in self._warned:
            return None
        for other in self._consumers[key[0]].values():
            if (
                other.client.client_id == key[1]
                and other.client.link != member.client.link
                and other.joined_at >= member.heard_at
            ):
                self._warned.add(key)
                return Duplicate(*key, (member.client.address, other.client.address))
        return None

    def _count_one_more(self) -> None:
        if self._count >= MEMBERSHIPS_MAX:
            raise ProtocolError(f"more than {MEMBERSHIPS_MAX} members on this broker")
        self._count += 1

    def _change(self, kind: str, group: str, client_id: str, cause: str) -> GroupChange:
        members = self._consumers.get(group, {})
        links = tuple(link for link, m in members.items() if m.data.message_model != BROADCASTING)
        topics: set[str] = set()
        for member in members.values():
            if member.client.client_id == client_id:
                topics.update(member.subscriptions)
        return GroupChange(
            kind, group, client_id, cause, self.members(group), links, tuple(sorted(topics))
        )

    def members(self, group: str) -> tuple[str, ...]:
        """Return the distinct client ids, sorted; empty for an unknown group."""
        return tuple(sorted({m.client.client_id for m in self._consumers.get(group, {}).values()}))

    def memberships(self, group: str) -> tuple[Member, ...]:
        """Return one entry per connection, in the order in which they joined."""
        return tuple(self._consumers.get(group, {}).values())

    def member(self, group: str, link: int) -> Member | None:
        members = self._consumers.get(group)
        return None if members is None else members.get(link)

    def newest(self, group: str) -> Member | None:
        """Return the member that joined last, or None for an unknown group."""
        members = self._consumers.get(group)
        return None if members is None else next(reversed(members.values()))

    def find(self, group: str, client_id: str) -> Member | None:
        """Return the newest connection of a client."""
        found = [m for m in self.memberships(group) if m.client.client_id == client_id]
        return found[-1] if found else None

    def subscription(self, group: str, link: int, topic: str) -> TopicSubscription | None:
        """Return the subscription of the member behind `link` to the topic.

        If that member has none, return the newest one of any member.
        """
        members = self._consumers.get(group, {})
        own = members.get(link)
        if own is not None and topic in own.subscriptions:
            return own.subscriptions[topic]
        return self.subscriptions(group).get(topic)

    def is_latest(self, group: str, topic: str, known: TopicSubscription, version: int) -> bool:
        """Return whether a known subscription has the filter of this version.

        So it is if a member's subscription to the topic has the same filter and is as new. RocketMQ
        keeps the newest subscription of a group only, whatever its filter.
        """
        if known.data.sub_version >= version:
            return True
        newest = self.subscriptions(group).get(topic, known)
        return newest.data.sub_version >= version and newest.filter == known.filter

    def groups(self) -> tuple[str, ...]:
        """Return the groups that have members."""
        return tuple(self._consumers)

    def subscriptions(self, group: str) -> dict[str, TopicSubscription]:
        """Return the newest subscription of any member to each topic."""
        newest: dict[str, TopicSubscription] = {}
        for member in self._consumers.get(group, {}).values():
            for topic, item in member.subscriptions.items():
                if topic not in newest or newest[topic].data.sub_version < item.data.sub_version:
                    newest[topic] = item
        return newest

    def groups_of(self, topic: str) -> tuple[str, ...]:
        """Return the groups with a member that subscribes to the topic, sorted."""
        return tuple(
            sorted(
                group
                for group, members in self._consumers.items()
                if any(topic in member.subscriptions for member in members.values())
            )
        )

    # -- producers -------------------------------------------------------------------------------

    def producer_heard(self, client: ClientChannel, group: str, now: int) -> None:
        producers = self._producers.get(group, {})
        known = producers.get(client.link)
        if known is None:
            self._count_one_more()
        elif known.client.client_id != client.client_id:
            self._forget_producer(known.client, group)
        self._producers.setdefault(group, {})[client.link] = _Producer(client, now)
        links = self._producer_groups.setdefault(client.client_id, {})
        links.setdefault(client.link, set()).add(group)

    def producers_of_all(self) -> dict[str, tuple[tuple[ClientChannel, int], ...]]:
        """Return the producers of each group, and when each was heard of last."""
        return {
            group: tuple((each.client, each.heard_at) for each in producers.values())
            for group, producers in self._producers.items()
        }

    def producers(self, group: str) -> tuple[ClientChannel, ...]:
        return tuple(p.client for p in self._producers.get(group, {}).values())

    def producer_link(self, client_id: str) -> int | None:
        """Return the newest connection of a client with producers, or None if it has none."""
        links = self._producer_groups.get(client_id)
        return None if links is None else next(reversed(links))

    def producer_unregister(self, link: int, client_id: str, group: str) -> None:
        producer = self._producers.get(group, {}).get(link)
        if producer is not None and producer.client.client_id == client_id:
            self._drop_producer(group, link)

    def _drop_producer(self, group: str, link: int) -> None:
        producer = self._producers[group].pop(link)
        self._forget_producer(producer.client, group)
        self._count -= 1
        if not self._producers[group]:
            del self._producers[group]

    def _forget_producer(self, client: ClientChannel, group: str) -> None:
        links = self._producer_groups[client.client_id]
        links[client.link].discard(group)
        if not links[client.link]:
            del links[client.link]
        if not links:
            del self._producer_groups[client.client_id]

    # -- leaving ---------------------------------------------------------------------------------

    def unregister(self, link: int, client_id: str, group: str) -> GroupChange | None:
        """Unregister a consumer.

        Returns None if it was not there, or is still there on another connection.
        """
        member = self.member(group, link)
        if member is None or member.client.client_id != client_id:
            return None
        changes = self._drop(group, [link], "unregistered")
        return changes[0] if changes else None

    def closed(self, link: int) -> list[GroupChange]:
        """Handle a closed connection: its client leaves all groups that it was in through it."""
        for group in [g for g, producers in self._producers.items() if link in producers]:
            self._drop_producer(group, link)
        groups = [group for group, members in self._consumers.items() if link in members]
        return [change for group in groups for change in self._drop(group, [link], "closed")]

    def expire(self, before: int) -> tuple[list[GroupChange], list[int]]:
        """Drop members without a heartbeat since `before`.

        Returns the changes, and the connections to close, sorted.
        """
        links: set[int] = set()
        changes: list[GroupChange] = []
        for group, producers in list(self._producers.items()):
            for link in [k for k, p in producers.items() if p.heard_at < before]:
                self._drop_producer(group, link)
                links.add(link)
        for group, members in list(self._consumers.items()):
            silent = [link for link, m in members.items() if m.heard_at < before]
            links.update(silent)
            changes += self._drop(group, silent, EXPIRED)
        return changes, sorted(links)

    def _drop(self, group: str, links: Sequence[int], cause: str) -> list[GroupChange]:
        """Remove connections from the group; return a change for each client that has none left.

        Each change describes the group without all of them.
        """
        members = self._consumers[group]
        dropped: dict[str, int] = {}
        for link in links:
            member = members.pop(link)
            client_id = member.client.client_id
            dropped[client_id] = max(dropped.get(client_id, 0), member.heard_at)
        self._count -= len(links)
        if not members:
            del self._consumers[group]
        staying = {member.client.client_id for member in members.values()}
        gone = [client_id for client_id in dropped if client_id not in staying]
        self._warned.difference_update((group, client_id) for client_id in gone)
        changes = [self._change("left", group, client_id, cause) for client_id in gone]
        if cause != EXPIRED:
            return changes
        return [replace(change, heard_at=dropped[change.client_id]) for change in changes]

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        count = 0
        for group, members in self._consumers.items():
            assert members, group
            for link, member in members.items():
                assert member.client.link == link
                assert member.data.group_name == group
                assert member.joined_at <= member.heard_at
            count += len(members)
        for group, producers in self._producers.items():
            assert producers, group
            count += len(producers)
        assert count == self._count <= MEMBERSHIPS_MAX
        places = {
            (client_id, link, group)
            for client_id, links in self._producer_groups.items()
            for link, groups in links.items()
            for group in groups
        }
        assert places == {
            (producer.client.client_id, link, group)
            for group, producers in self._producers.items()
            for link, producer in producers.items()
        }
        for group, client_id in self._warned:
            assert client_id in self.members(group)


def _refiltered(
    old: Mapping[str, TopicSubscription], new: Mapping[str, TopicSubscription]
) -> frozenset[str]:
    """Return the topics with another filter, or another fault, than before."""
    return frozenset(
        topic
        for topic in old.keys() & new.keys()
        if (old[topic].filter, old[topic].fault) != (new[topic].filter, new[topic].fault)
    )
