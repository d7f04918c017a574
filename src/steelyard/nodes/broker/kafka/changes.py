"""Makes, changes and deletes topics on all brokers that have a part of them.

Only the controller does: first here, then in the nameservers' settings, then it tells the live brokers, and when all have
answered (or took too long) the `Then` of the change is told what it came to. A broker that could not be told finds out by
itself (`name_service`). Other brokers tell the controller of queues that came through their RocketMQ doors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from steelyard.config import BrokerConfig
from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.door import Peer, reply
from steelyard.nodes.broker.kafka.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.kafka_topic import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    KafkaTopic,
    attributes_of,
    topic_of,
)
from steelyard.nodes.broker.kafka.neighbours import (
    NEWS,
    QUEUES_WANTED,
    Neighbours,
    News,
    QueuesWanted,
    read_body,
)
from steelyard.nodes.broker.registration import Errand, Purpose, Registration
from steelyard.nodes.broker.topics import QUEUES_MAX
from steelyard.nodes.calls import Outcome
from steelyard.nodes.seam import Effect, Send, Tell
from steelyard.routes.layout import Extent, Layout, spread, write
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

Faults = Mapping[str, tuple[ErrorCode, str]]
"""By topic: what went wrong, in a code and in words."""

Then = Callable[[Faults, int, list[Effect]], None]
"""(what went wrong, now, effects to add to)."""

Delete = Callable[[str, int, list[Effect]], None]
"""Deletes a topic of this broker, with all that is in it. Raises StorageError."""


class _Step(Errand, frozen=True):
    """A call of a change under way."""

    change: int


class _Wanted(Errand, frozen=True):
    """We asked the controller for partitions."""


class _Change(msgspec.Struct):
    """A change under way. `pending`: calls without an outcome; `told`: the brokers have been called."""

    news: News
    faults: Faults
    then: Then
    pending: int = 0
    told: bool = False


class Changes:
    """See the module's text."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: Cluster,
        neighbours: Neighbours,
        registration: Registration,
        delete: Delete,
    ) -> None:
        assert config.kafka is not None
        self._config = config.kafka
        self._nameservers = config.nameservers
        self._cluster = cluster
        self._neighbours = neighbours
        self._registration = registration
        self._delete = delete
        self._serial = 0
        self._under_way: dict[int, _Change] = {}
        self._asking = False
        self._fault_told = False
        self.touched: set[str] = set()
        """Topics that changed since `name_service` began to read."""

    # -- plans -----------------------------------------------------------------------------------

    def new_topic(
        self, name: str, partitions: int = -1, settings: Mapping[str, str] | None = None
    ) -> KafkaTopic:
        """A topic that is to be made, its partitions spread over the live brokers. -1: as many as is usual."""
        if partitions < 0:
            partitions = self._usual_partitions(name)
        brokers = [broker.name for broker in self._cluster.live_brokers()]
        first = coordinator_partition(name, len(brokers))  # small topics are not all on one broker
        layout = Layout().grown(spread(partitions, brokers[first:] + brokers[:first]))
        return KafkaTopic(name, self._cluster.new_id(), layout, settings or {})

    def more_partitions(self, topic: KafkaTopic, partitions: int) -> list[Extent]:
        """The extents to add to a topic that is to have so many partitions; brokers with few of them go first."""
        have = topic.layout.queues()
        live = [broker.name for broker in self._cluster.live_brokers()]
        live.sort(key=lambda name: have.get(name, 0))
        return spread(partitions - topic.layout.partitions, live)

    def _usual_partitions(self, name: str) -> int:
        if name == OFFSETS_TOPIC:
            return self._config.offsets_topic_num_partitions
        if name == TRANSACTIONS_TOPIC:
            return self._config.transaction_state_log_num_partitions
        return self._config.num_partitions

    # -- changes ---------------------------------------------------------------------------------

    def put(
        self, topics: Sequence[KafkaTopic], then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Make topics, or give known ones a new layout or new settings."""
        if not self._cluster.is_controller:
            then(_not_controller([topic.name for topic in topics]), now, effects)
            return
        faults: dict[str, tuple[ErrorCode, str]] = {}
        changed = False
        for topic in topics:
            known = self._cluster.topic(topic.name)
            try:
                changed |= self._cluster.put_local(topic, now)
            except ProtocolError as error:
                faults[topic.name] = ErrorCode.POLICY_VIOLATION, str(error)
            except StorageError as error:
                faults[topic.name] = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
            if topic.name in faults:
                if known is None:
                    self._cluster.forget(topic.name, now, effects)
                else:
                    self._cluster.learn(known)
        if changed:
            self._registration.changed(now, effects)
        done = [topic for topic in topics if topic.name not in faults]
        news = News(self._cluster.entry, {topic.name: attributes_of(topic) for topic in done})
        self._begin(news, faults, then, now, effects)

    def delete(self, names: Sequence[str], then: Then, now: int, effects: list[Effect]) -> None:
        """Delete topics with all that is in them."""
        if not self._cluster.is_controller:
            then(_not_controller(names), now, effects)
            return
        faults: dict[str, tuple[ErrorCode, str]] = {}
        for name in names:
            try:
                if self._cluster.is_local(name):
                    self._delete(name, now, effects)
            except StorageError as error:
                faults[name] = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
            else:
                self._cluster.forget(name, now, effects)
        done = tuple(name for name in names if name not in faults)
        self._begin(News(self._cluster.entry, deleted=done), faults, then, now, effects)

    def _begin(
        self, news: News, faults: Faults, then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Tell the nameservers."""
        if self._cluster.is_alone or not (news.changed or news.deleted):
            then(faults, now, effects)
            return
        self.touched.update(news.changed, news.deleted)
        self._serial += 1
        change = self._under_way[self._serial] = _Change(news, faults, then)
        step = _Step(self._serial)
        for name in (*news.changed, *news.deleted):
            change.pending += self.tell_nameservers(name, step, now, effects)
        if not change.pending:
            self._tell_brokers(step, now, effects)

    def tell_nameservers(self, name: str, errand: Errand, now: int, effects: list[Effect]) -> int:
        """Bring what we know of a topic, or that it is gone, into the nameservers' settings; how many were asked."""
        topic = self._cluster.topic(name)
        namespace = self._cluster.layouts_namespace
        if topic is None:
            code = RequestCode.DELETE_KV_CONFIG
            header = headers.KVConfigHeader(namespace=namespace, key=name)
        else:
            code = RequestCode.PUT_KV_CONFIG
            value = msgspec.json.encode(attributes_of(topic)).decode()
            header = headers.KVConfigHeader(namespace=namespace, key=name, value=value)
        ext = headers.write(header)
        return sum(
            self._neighbours.ask(address, code, errand, now, effects, ext=ext)
            for address in self._nameservers
        )

    def _tell_brokers(self, step: _Step, now: int, effects: list[Effect]) -> None:
        change = self._under_way[step.change]
        change.told = True
        body = msgspec.json.encode(change.news)
        for broker in self._cluster.live_brokers():
            if broker.name != self._cluster.me.name:
                address = broker.remoting
                change.pending += self._neighbours.ask(address, NEWS, step, now, effects, body=body)
        if not change.pending:
            self._finish(step, now, effects)

    def _finish(self, step: _Step, now: int, effects: list[Effect]) -> None:
        change = self._under_way.pop(step.change)
        self.touched.update(change.news.changed, change.news.deleted)
        change.then(change.faults, now, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """A call ended; False where it was none of ours."""
        errand = outcome.purpose
        if isinstance(errand, _Wanted):
            self._asking = False
            return True
        if not isinstance(errand, _Step):
            return False
        change = self._under_way[errand.change]
        change.pending -= 1
        if not change.pending and not change.told:
            self._tell_brokers(errand, now, effects)
        elif not change.pending:
            self._finish(errand, now, effects)
        return True

    # -- queues that are no partitions yet -----------------------------------------------------------

    def follow(self, now: int, effects: list[Effect]) -> None:
        """After each event: make partitions of the queues that came through the RocketMQ door, and forget what went there."""
        if not (self._cluster.gone or self._cluster.wanted):
            return
        gone, self._cluster.gone = self._cluster.gone, []
        for name in gone:
            if self._cluster.topic(name) is None and not self._cluster.is_alone:
                self.touched.add(name)
                self.tell_nameservers(name, Errand(), now, effects)
        if not self._cluster.wanted or self._asking or not self._cluster.is_ready:
            return
        wanted = dict(self._cluster.wanted)
        if self._cluster.is_controller:
            self._cover(self._cluster.me.name, wanted, _ignore, now, effects)
        else:
            body = msgspec.json.encode(QueuesWanted(self._cluster.me.name, wanted))
            address = self._cluster.controller.remoting
            self._asking = self._neighbours.ask(
                address, QUEUES_WANTED, _Wanted(), now, effects, body=body
            )
            self._cluster.wanted.clear()  # asked again with the next round, where it was in vain

    def _cover(
        self, broker: str, queues: dict[str, int], then: Then, now: int, effects: list[Effect]
    ) -> None:
        topics = []
        for name, count in queues.items():
            known = self._cluster.topic(name)
            if known is None:
                known = KafkaTopic(name, self._cluster.new_id(), Layout(), {})
            layout = known.layout.covering({broker: count})
            if layout != known.layout:
                topics.append(msgspec.structs.replace(known, layout=layout))

        def after(faults: Faults, now: int, effects: list[Effect]) -> None:
            if faults and not self._fault_told:
                self._fault_told = True
                name, (_, text) = next(iter(faults.items()))
                effects.append(Tell("ERROR", f"layout of topic {name} is not kept: {text}"))
            then(faults, now, effects)

        self._cluster.wanted.clear()
        self.put(topics, after, now, effects)

    def queues_wanted(
        self, request: Command, peer: Peer, now: int, effects: list[Effect]
    ) -> Command | None:
        """9002: another broker has queues that are no partitions yet. Raises ProtocolError."""
        asked = read_body(request.body, QueuesWanted)
        if not self._cluster.is_controller:
            return reply(request, ResponseCode.SYSTEM_ERROR, "this is not the controller")
        if asked.broker not in self._cluster.brokers:
            raise ProtocolError(f"nobody knows a broker {asked.broker[:100]}")
        queues = {
            name: count
            for name, count in asked.queues.items()
            if self._cluster.is_visible(name) and 0 < count <= QUEUES_MAX
        }

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            effects.append(Send(peer.link, reply(request)))

        self._cover(asked.broker, queues, then, now, effects)
        return None

    # -- news of others ------------------------------------------------------------------------------

    def take_news(self, request: Command, peer: Peer, now: int, effects: list[Effect]) -> Command:
        """9003. Raises ProtocolError, StorageError."""
        news = read_body(request.body, News)
        self._cluster.meet(news.broker)
        if not (news.changed or news.deleted):
            for watcher in self._cluster.greeted:
                watcher(news.broker.name)
        for name, attributes in news.changed.items():
            topic = topic_of(name, attributes, self._cluster.readers)
            if topic is not None and self._cluster.is_visible(name):
                self.take(topic, now, effects)
        for name in news.deleted:
            self.touched.add(name)
            if self._cluster.is_local(name):
                self._delete(name, now, effects)
            self._cluster.forget(name, now, effects)
        return reply(request)

    def take(self, topic: KafkaTopic, now: int, effects: list[Effect]) -> None:
        """Another broker, or a nameserver, knows a topic so: take that over, unless we know better."""
        known = self._cluster.topic(topic.name)
        same = known is not None and known.topic_id == topic.topic_id
        if known is not None and same and not _prevails(topic.layout, known.layout):
            return
        if not self._cluster.is_free(topic):
            return
        self.touched.add(topic.name)
        try:
            if self._cluster.put_local(topic, now):
                self._registration.changed(now, effects)
        except (ProtocolError, StorageError) as error:
            if not self._fault_told:
                self._fault_told = True
                text = f"our part of topic {topic.name} cannot be made: {error}"
                effects.append(Tell("ERROR", text))

    def under_way(self) -> set[str]:
        """Topics that are being changed."""
        news = [change.news for change in self._under_way.values()]
        return {name for each in news for name in (*each.changed, *each.deleted)}

    def check(self) -> None:
        for change in self._under_way.values():
            assert change.pending > 0


def _ignore(faults: Faults, now: int, effects: list[Effect]) -> None:
    """Nobody waits for it."""


def _prevails(new: Layout, known: Layout) -> bool:
    """Whether a topic has the layout `new` from now on, instead of the one that is known here.

    While the controller changes, two brokers may each let a topic grow, in two ways. Then all must take the same one:
    the longer, or of two as long the one that sorts first. The queues that it lacks become partitions again.
    """
    if new.extends(known) or known.extends(new):
        return new.partitions >= known.partitions
    return (-new.partitions, write(new)) < (-known.partitions, write(known))


def _not_controller(names: Sequence[str]) -> Faults:
    text = "This is not the correct controller for this cluster."
    return dict.fromkeys(names, (ErrorCode.NOT_CONTROLLER, text))
