"""Tells the other brokers who reads their partitions in the groups of this coordinator (9004).

Only the ledger needs this: a Fetch does not name its group, and goes to the broker that has the
partition. Each live broker is told of all groups first, then of every group whose assignments
change. There is one request at a time to a broker; what changes meanwhile goes into the next one. A
broker that has started, did not answer, or no longer knows this one's groups is told of all groups
again.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from steelyard.groups.kafka.groups import CoordinatedGroups, Reader
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import (
    NAME_MAX,
    READERS,
    GroupReaders,
    PeerRequests,
    ReaderEntry,
    ReaderNews,
)
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

NOT_KNOWN = ResponseCode.QUERY_NOT_FOUND

RETRY_MS = 3_000
"""Pause before a broker that did not accept a request is told again."""

MESSAGE_BYTES = 1 << 20
"""Size at which a request is full."""

GROUP_BYTES_MAX = 4 << 20
"""Largest description of a group; a group with more readers is not announced."""


class _Told(PendingCall, frozen=True):
    """A request to a broker. `serial`: of its `_Listener`; `complete`: it is about all groups."""

    broker: str
    serial: int
    complete: bool


class _Listener(msgspec.Struct):
    """Another broker. `known`: groups that it has readers of; `news`: groups to tell it about."""

    serial: int
    not_before: int = 0
    is_new: bool = True
    """Whether it is to be told of all groups."""
    is_asked: bool = False
    known: set[str] = msgspec.field(default_factory=set)
    news: set[str] = msgspec.field(default_factory=set)

    @property
    def is_due(self) -> bool:
        return not self.is_asked and (self.is_new or bool(self.news))


class Announcing:
    """What the other brokers have been told; see the module docstring."""

    def __init__(
        self, cluster: Cluster, groups: CoordinatedGroups, peer_requests: PeerRequests
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._peer_requests = peer_requests
        self._listeners: dict[str, _Listener] = {}
        self._serial = 0
        self._brokers_version = -1

    # -- what happens ----------------------------------------------------------------------------

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Tell what changed; called after each event."""
        changed = self._groups.take_changed()
        if not self._cluster.is_ready:
            return
        if self._brokers_version != self._cluster.brokers_version:
            self._look_around()
        elif not changed:
            return
        for listener in self._listeners.values():
            if not listener.is_new:
                listener.news |= changed
        self.due(now, effects)

    def _look_around(self) -> None:
        """Find out which brokers have come or gone."""
        self._brokers_version = self._cluster.brokers_version
        me = self._cluster.me.name
        live = [broker.name for broker in self._cluster.live_brokers() if broker.name != me]
        for name in self._listeners.keys() - set(live):
            del self._listeners[name]
        for name in live:
            if name not in self._listeners:
                self.started(name)

    def started(self, name: str) -> None:
        """Add a broker that has started and knows nothing."""
        if self._cluster.is_ready and name != self._cluster.me.name:
            self._serial += 1
            self._listeners[name] = _Listener(self._serial)
            self._brokers_version = -1

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        pending = outcome.purpose
        if not isinstance(pending, _Told):
            return False
        listener = self._listeners.get(pending.broker)
        if listener is not None and listener.serial == pending.serial:
            listener.is_asked = False
            answer = outcome.reply
            if not isinstance(answer, Command) or answer.code != ResponseCode.SUCCESS:
                listener.is_new = True
                wants_all = isinstance(answer, Command) and answer.code == NOT_KNOWN
                at_once = wants_all and not pending.complete
                listener.not_before = now if at_once else now + RETRY_MS
            self.due(now, effects)
        return True

    # -- telling ---------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        if not self._listeners:
            return None
        return min(
            [each.not_before for each in self._listeners.values() if each.is_due], default=None
        )

    def due(self, now: int, effects: list[Effect]) -> None:
        for name, listener in self._listeners.items():
            if listener.is_due and listener.not_before <= now:
                self._tell(name, listener, now, effects)

    def _tell(self, name: str, listener: _Listener, now: int, effects: list[Effect]) -> None:
        complete, listener.is_new = listener.is_new, False
        if complete:
            listener.known.clear()
            listener.news = {group.group_id for group in self._groups}
        told: list[GroupReaders] = []
        size = 0
        for group_id in sorted(listener.news):
            if size >= MESSAGE_BYTES:
                break
            listener.news.discard(group_id)
            if len(group_id) > NAME_MAX:
                continue
            readers, bytes_of_it = self._readers(group_id, name)
            if readers.readers:
                listener.known.add(group_id)
            elif group_id in listener.known:
                listener.known.discard(group_id)
            else:
                continue
            told.append(readers)
            size += bytes_of_it
        if not told and not complete:
            return
        news = ReaderNews(self._cluster.me.name, tuple(told), complete)
        listener.is_asked = self._peer_requests.ask(
            self._cluster.brokers[name].remoting,
            READERS,
            _Told(name, listener.serial, complete),
            now,
            effects,
            body=msgspec.json.encode(news),
        )
        if not listener.is_asked:
            listener.is_new = True
            listener.not_before = now + RETRY_MS

    def _readers(self, group_id: str, broker: str) -> tuple[GroupReaders, int]:
        """Return who of a group reads partitions of a broker, and how many bytes that takes."""
        nobody = GroupReaders(group_id)
        group = self._groups.get(group_id)
        if group is None:
            return nobody, 0
        entries = tuple(
            ReaderEntry(one.member_id, one.client_id, one.host, partitions)
            for one in group.readers()
            if max(map(len, (one.member_id, one.client_id, one.host))) <= NAME_MAX
            and (partitions := self._partitions(one, broker))
        )
        readers = GroupReaders(group_id, entries)
        size = len(msgspec.json.encode(readers))
        return (readers, size) if size <= GROUP_BYTES_MAX else (nobody, 0)

    def _partitions(self, reader: Reader, broker: str) -> dict[str, tuple[int, ...]]:
        """Return what a member reads on a broker, by topic."""
        found: dict[str, list[int]] = defaultdict(list)
        for partition in reader.partitions:
            queue = self._cluster.queue_of(partition)
            if queue is not None and queue[0] == broker:
                found[partition.topic].append(partition.partition)
        return {topic: tuple(numbers) for topic, numbers in found.items()}

    def check(self) -> None:
        assert self._cluster.me.name not in self._listeners
        for listener in self._listeners.values():
            assert not (listener.is_new and listener.is_asked)
