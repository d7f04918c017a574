"""Creates, changes and deletes topics on all brokers that have a part of them.

Only the controller does. Changes of settings and deletions are made here first, then in the
nameservers' settings, then on the live brokers; when all have answered or their calls have timed
out, the `Then` of the change gets the outcome. A broker that could not be reached finds out by
itself (`name_service`).

Partitions are laid out once. The controller asks the others what they know of the topic
(`surveys`), has them store the new layout, and only then stores it itself; from then on it is in
use, and nameservers and the others are told. Both times enough brokers must be up (`membership`),
and no other broker may have asked in the meantime (`claims`); otherwise the change fails, and
clients ask again. Other changes of the topic wait for its end.

Brokers tell the controller about queues created through their RocketMQ listeners (9002), and each
other about new, changed and deleted topics (9003).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec
from msgspec.structs import replace

from steelyard.errors import DiskFullError, ProtocolError, StorageError
from steelyard.nodes.broker.kafka.cluster.claims import Claims, TopicClaim
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.kafka.cluster.merging import contradiction, merged
from steelyard.nodes.broker.kafka.cluster.plans import Plans
from steelyard.nodes.broker.kafka.cluster.postponed import RETRY_MS
from steelyard.nodes.broker.kafka.cluster.surveys import TOPICS_MAX, Answers, Surveys
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, attributes_of, topic_of
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import (
    NEWS,
    QUEUES_WANTED,
    News,
    PeerRequests,
    ProposedTopic,
    QueuesWanted,
    encode_id,
    read_body,
    read_id,
)
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.topics import QUEUES_MAX
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect, Send
from steelyard.routes.layout import Layout, write
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

Faults = Mapping[str, tuple[ErrorCode, str]]
"""By topic: the error code and the text of what went wrong."""

Then = Callable[[Faults, int, list[Effect]], None]
"""(what went wrong, now, effects to add to)."""

WAITING_MAX = 10_000
"""Most changes that wait for others of the same topics."""
CONTRADICTIONS_MAX = 1_000
"""Most contradictions to remember, so that each is logged once."""

Delete = Callable[[str, int, list[Effect]], None]
"""Deletes a topic of this broker, with all its messages. Raises StorageError."""


class _Step(PendingCall, frozen=True):
    """A call of a change in progress. `broker`: the name of its receiver, empty for nameservers."""

    change: int
    broker: str = ""


class _Wanted(PendingCall, frozen=True):
    """A request to the controller for partitions."""


_Stage = Callable[[int, "_Change", int, list[Effect]], None]
"""(serial, change, now, effects): one stage of a change, done when no call is `pending`."""


class _Change(msgspec.Struct):
    """A change in progress.

    `stages`: those to come. `pending`: calls without an outcome. `kept`: brokers that stored the
    news. `topics`: to be stored here once the others have them.
    """

    news: News
    faults: dict[str, tuple[ErrorCode, str]]
    then: Then
    stages: list[_Stage]
    topics: Sequence[KafkaTopic] = ()
    pending: int = 0
    kept: set[str] = msgspec.field(default_factory=set)


class Changes:
    """Changes of topics, and the news of other brokers; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        peer_requests: PeerRequests,
        claims: Claims,
        surveys: Surveys,
        delete: Delete,
    ) -> None:
        self._durability = parts.durability
        self.plans = Plans(parts.config, cluster)
        self._nameservers = parts.config.nameservers
        self._cluster = cluster
        self._peer_requests = peer_requests
        self._claims = claims
        self._surveys = surveys
        self._registration = parts.registration
        self._delete = delete
        self._serial = 0
        self._under_way: dict[int, _Change] = {}
        self._claimed: set[str] = set()
        """Topics that are being laid out."""
        self._waiting: list[Callable[[int, list[Effect]], None]] = []
        """(now, effects): changes that wait for one of these."""
        self._asking = False
        self._cover_at = 0
        """When to lay out this broker's new queues again, after that could not be stored."""
        self._disk_faults = parts.faults
        self._contradictions: set[tuple[str, str, str]] = set()
        self.touched: set[str] = set()
        """Topics that changed since `name_service` last began to read."""

    # -- making and changing ---------------------------------------------------------------------

    def put(
        self, topics: Sequence[KafkaTopic], then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Create topics, or give known ones new layouts or settings."""
        if not self._cluster.is_controller:
            then(_not_controller([topic.name for topic in topics]), now, effects)
            return
        topics = [self._dated(topic, now) for topic in topics]
        if any(topic.name in self._claimed for topic in topics):
            if len(self._waiting) < WAITING_MAX:
                before = [self._cluster.topic(topic.name) for topic in topics]
                self._waiting.append(partial(self._put_later, topics, before, then))
            else:
                text = "too many changes wait for each other; try again later"
                faults = {topic.name: (ErrorCode.NOT_CONTROLLER, text) for topic in topics}
                then(faults, now, effects)
        else:
            self._claim(topics, then, now, effects)

    def _put_later(
        self,
        topics: Sequence[KafkaTopic],
        before: Sequence[KafkaTopic | None],
        then: Then,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Make changes that have waited, of topics as they were `before`."""
        pairs = zip(topics, before, strict=True)
        self.put([self._again(topic, known) for topic, known in pairs], then, now, effects)

    def _again(self, topic: KafkaTopic, before: KafkaTopic | None) -> KafkaTopic:
        """Return a topic with its own changes of settings, and those that were made meanwhile."""
        known = self._cluster.topic(topic.name)
        if before is None or known is None or known.topic_id != topic.topic_id:
            return topic
        wanted, had = topic.settings, before.settings
        changed = {name: value for name, value in wanted.items() if had.get(name) != value}
        removed = had.keys() - wanted.keys()
        kept = {name: value for name, value in known.settings.items() if name not in removed}
        return replace(topic, settings={**kept, **changed})

    def _dated(self, topic: KafkaTopic, now: int) -> KafkaTopic:
        """Return a new topic with its time of creation, unless all brokers lay it out alike."""
        if topic.created_at or topic.is_fixed or self._cluster.topic(topic.name) is not None:
            return topic
        return replace(topic, created_at=now)

    def _claim(
        self, topics: Sequence[KafkaTopic], then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Ask the others about the topics to lay out, if enough of them are up."""
        topics = [topic for topic in topics if topic != self._cluster.topic(topic.name)]
        there = {broker.name for broker in self._cluster.live_brokers()}
        faults: dict[str, tuple[ErrorCode, str]] = {}
        numbering = [topic.name for topic in topics if self._is_numbered(topic)]
        self._judge(numbering, there, faults, now)
        asked = [name for name in numbering if name not in faults]
        others = [
            each for each in self._cluster.live_brokers() if each.name != self._cluster.me.name
        ]
        if not asked or not others:
            first, unmet = self._proposed_first(topics, asked, {})
            self._publish(first, faults, unmet, then, now, effects)
            return
        self._claimed.update(topic.name for topic in topics)
        released = self._released(topics, then)

        def answered(answers: Answers, now: int, effects: list[Effect]) -> None:
            for topic in self._surveys.topics(answers):
                self.take(topic, now, effects)
            for answer in answers.values():
                self._claims.saw(answer.promised)
            promised = [name for name, answer in answers.items() if not answer.promised]
            self._judge(asked, {self._cluster.me.name, *promised}, faults, now)
            first, unmet = self._proposed_first(topics, asked, answers)
            left = {topic.name: topic for topic in self._current(first, faults)}
            news = News(
                self._cluster.entry,
                {name: attributes_of(topic) for name, topic in left.items()},
                claimed=tuple(name for name in asked if name in left),
                claim=claim.number,
            )

            def done(faults: Faults, now: int, effects: list[Effect]) -> None:
                released({**unmet, **faults}, now, effects)

            stages: list[_Stage] = [self._ask_brokers, self._make, self._tell_everybody]
            self._start(_Change(news, faults, done, stages, [*left.values()]), now, effects)

        if len(asked) > TOPICS_MAX:
            text = f"more than {TOPICS_MAX} topics in one request"
            faults.update((name, (ErrorCode.POLICY_VIOLATION, text)) for name in asked)
            released(faults, now, effects)
            return
        claim = self._claims.new(self._cluster.me.name, asked, now)
        self._surveys.ask(others, asked, answered, now, effects, claim=claim)

    def _is_numbered(self, topic: KafkaTopic) -> bool:
        """Return whether this version of the topic has new partitions."""
        known = self._cluster.topic(topic.name)
        return known is None or not known.layout.extends(topic.layout)

    def _judge(
        self,
        names: Iterable[str],
        there: Collection[str],
        faults: dict[str, tuple[ErrorCode, str]],
        now: int,
    ) -> None:
        """Refuse topics that the brokers that are up must not lay out."""
        for name in names:
            text = self._cluster.membership.lacks(name, there, now)
            if text:
                faults[name] = ErrorCode.NOT_CONTROLLER, f"Topic '{name}': {text}"

    def _current(
        self, topics: Sequence[KafkaTopic], faults: dict[str, tuple[ErrorCode, str]]
    ) -> list[KafkaTopic]:
        """Return the topics as they may be made now: others may have reported some meanwhile."""
        left: list[KafkaTopic] = []
        for topic in topics:
            known = self._cluster.topic(topic.name)
            if topic.name in faults:
                continue
            if self._cluster.catalogue.is_deleted(topic.topic_id):
                text = "This server does not host this topic-partition."
                faults[topic.name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text
            elif known is None or topic.layout.extends(known.layout):
                if known is not None and known.topic_id != topic.topic_id:
                    faults[topic.name] = _exists(topic.name)
                else:
                    left.append(topic)
            elif known.topic_id == topic.topic_id and known.layout.extends(topic.layout):
                left.append(replace(topic, layout=known.layout))
            else:
                faults[topic.name] = _exists(topic.name)
        return left

    def _proposed_first(
        self, topics: Sequence[KafkaTopic], asked: Collection[str], answers: Answers
    ) -> tuple[list[KafkaTopic], Faults]:
        """Return the topics, and what to tell callers whose wish cannot be met yet.

        Topics in `asked` get the layouts that were proposed before and may be in use elsewhere.
        """
        first: list[KafkaTopic] = []
        unmet: dict[str, tuple[ErrorCode, str]] = {}
        for wanted in topics:
            name = wanted.name
            known = self._cluster.topic(name)
            proposed = self._surveys.proposed(name, answers) if name in asked else None
            if proposed is None or not self._may_be_used(proposed, known):
                first.append(wanted)
                continue
            grows = False
            if known is not None and known.topic_id == proposed.topic_id:
                grows = True
                proposed = replace(known, layout=proposed.layout)
            else:
                wanted = replace(wanted, topic_id=proposed.topic_id, created_at=proposed.created_at)
            if wanted.layout.extends(proposed.layout):
                first.append(wanted)
            elif grows and proposed.layout.extends(wanted.layout):
                first.append(replace(wanted, layout=proposed.layout))
            else:
                first.append(proposed)
                text = f"Topic '{name}': an earlier change had to be completed first; try again"
                unmet[name] = (ErrorCode.NOT_CONTROLLER, text) if grows else _exists(name)
        return first, unmet

    def _may_be_used(self, proposed: KafkaTopic, known: KafkaTopic | None) -> bool:
        """Return whether another broker may use a proposed layout, as far as this one knows."""
        if self._cluster.catalogue.is_deleted(proposed.topic_id):
            return False
        if known is None or known.topic_id != proposed.topic_id:
            return known is None or merged(known, proposed)[0] is proposed
        return known.layout != proposed.layout and proposed.layout.extends(known.layout)

    def _released(self, topics: Sequence[KafkaTopic], then: Then) -> Then:
        """Return `then` followed by the changes that waited for these topics."""

        def released(faults: Faults, now: int, effects: list[Effect]) -> None:
            self._claimed.difference_update(topic.name for topic in topics)
            then(faults, now, effects)
            waiting, self._waiting = self._waiting, []
            for change in waiting:
                change(now, effects)

        return released

    def _publish(
        self,
        topics: Sequence[KafkaTopic],
        faults: dict[str, tuple[ErrorCode, str]],
        unmet: Faults,
        then: Then,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Make changes of settings, or in a cluster of one: here first, then tell the others."""
        done = self._put_local(self._current(topics, faults), faults, now, effects)
        news = News(self._cluster.entry, {topic.name: attributes_of(topic) for topic in done})
        self._begin(news, {**unmet, **faults}, then, now, effects)

    def _put_local(
        self,
        topics: Sequence[KafkaTopic],
        faults: dict[str, tuple[ErrorCode, str]],
        now: int,
        effects: list[Effect],
    ) -> list[KafkaTopic]:
        """Store topics on this broker; return those that could be stored."""
        changed = False
        done: list[KafkaTopic] = []
        for topic in topics:
            known = self._cluster.topic(topic.name)
            try:
                changed |= self._cluster.put_local(topic, now)
            except ProtocolError as error:
                faults[topic.name] = ErrorCode.POLICY_VIOLATION, str(error)
            except StorageError as error:
                faults[topic.name] = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
            else:
                self._drop_proposed(topic)
                done.append(topic)
                continue
            if known is None:
                self._cluster.forget(topic.name, now, effects)
            else:
                self._cluster.restore(known)
        if changed:
            self._registration.changed(now, effects)
        return done

    def _drop_proposed(self, topic: KafkaTopic) -> None:
        """Forget a proposed layout that a stored one has made obsolete."""
        proposed = self._surveys.proposed(topic.name, {})
        if proposed is None or not self._may_be_used(proposed, topic):
            drop = partial(self._claims.drop, topic.name)
            self._cluster.postponed.do(f"proposed {topic.name}", drop)

    def delete(self, names: Sequence[str], then: Then, now: int, effects: list[Effect]) -> None:
        """Delete topics with all their messages."""
        if not self._cluster.is_controller:
            then(_not_controller(names), now, effects)
            return
        faults: dict[str, tuple[ErrorCode, str]] = {}
        ids: dict[str, str] = {}
        for name in names:
            topic_id = self._cluster.id_of(name)
            try:
                self._bury(name, topic_id, now, effects)
            except StorageError as error:
                faults[name] = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
            else:
                ids[name] = encode_id(topic_id)
        news = News(self._cluster.entry, deleted=tuple(ids), deleted_ids=ids)
        self._begin(news, faults, then, now, effects)

    def _bury(self, name: str, topic_id: bytes, now: int, effects: list[Effect]) -> None:
        """Delete a topic here, and remember that it was deleted. Raises StorageError."""
        if topic_id != NO_ID:
            try:
                self._cluster.catalogue.bury(topic_id, whole=True)
            except DiskFullError:
                if not self._cluster.is_local(name) or self._cluster.id_of(name) != topic_id:
                    raise
                self._delete(name, now, effects)  # to free the space that is missing
                self._cluster.catalogue.bury(topic_id, whole=True)
        if self._cluster.topic(name) is not None and self._cluster.id_of(name) != topic_id:
            return  # it was created again
        if self._cluster.is_local(name):
            self._delete(name, now, effects)
        self._cluster.forget(name, now, effects)

    def was_deleted(self, name: str, topic_id: bytes, now: int, effects: list[Effect]) -> None:
        """Delete a topic that, as another broker says, was deleted while this one was away."""
        try:
            self._bury(name, topic_id, now, effects)
        except StorageError as error:
            self._disk_faults.tell(
                f"topic {name}, which was deleted, could not be removed from disk: {error}",
                now,
                effects,
            )

    # -- telling everybody -----------------------------------------------------------------------

    def _begin(
        self, news: News, faults: Faults, then: Then, now: int, effects: list[Effect]
    ) -> None:
        """Tell the nameservers and the other brokers what is already true here."""
        if self._cluster.is_alone or not (news.changed or news.deleted):
            then(faults, now, effects)
        else:
            stages: list[_Stage] = [self._ask_nameservers, self._ask_brokers]
            self._start(_Change(news, dict(faults), then, stages), now, effects)

    def _start(self, change: _Change, now: int, effects: list[Effect]) -> None:
        self.touched.update(change.news.changed, change.news.deleted)
        self._serial += 1
        self._under_way[self._serial] = change
        self._go_on(self._serial, now, effects)

    def _go_on(self, serial: int, now: int, effects: list[Effect]) -> None:
        """Run the next stages of a change, up to one that waits for answers."""
        change = self._under_way[serial]
        while not change.pending and change.stages:
            change.stages.pop(0)(serial, change, now, effects)
        if not change.pending:
            del self._under_way[serial]
            self.touched.update(change.news.changed, change.news.deleted)
            change.then(change.faults, now, effects)

    def _ask_nameservers(
        self, serial: int, change: _Change, now: int, effects: list[Effect]
    ) -> None:
        for name in (*change.news.changed, *change.news.deleted):
            change.pending += self.tell_nameservers(name, _Step(serial), now, effects)

    def _ask_brokers(self, serial: int, change: _Change, now: int, effects: list[Effect]) -> None:
        others = [
            each for each in self._cluster.live_brokers() if each.name != self._cluster.me.name
        ]
        self._send_news(others, serial, change, now, effects)

    def _tell_everybody(
        self, serial: int, change: _Change, now: int, effects: list[Effect]
    ) -> None:
        """Tell the nameservers, and the brokers that accepted it, what is in use from now on."""
        self._ask_nameservers(serial, change, now, effects)
        there = [each for each in self._cluster.live_brokers() if each.name in change.kept]
        self._send_news(there, serial, change, now, effects)

    def _send_news(
        self,
        brokers: Iterable[Broker],
        serial: int,
        change: _Change,
        now: int,
        effects: list[Effect],
    ) -> None:
        if not (change.news.changed or change.news.deleted):
            return
        body = msgspec.json.encode(change.news)
        for broker in brokers:
            step = _Step(serial, broker.name)
            change.pending += self._peer_requests.ask(
                broker.remoting, NEWS, step, now, effects, body=body
            )

    def _make(self, serial: int, change: _Change, now: int, effects: list[Effect]) -> None:
        """Store layouts here that the others have accepted, if these are enough."""
        there = {self._cluster.me.name, *change.kept}
        self._judge(change.news.changed, there, change.faults, now)
        for name in self._overtaken(change.news):
            text = f"Topic '{name}': another broker gives out its partitions"
            change.faults[name] = ErrorCode.NOT_CONTROLLER, text
        left = self._current(change.topics, change.faults)
        done = {topic.name for topic in self._put_local(left, change.faults, now, effects)}
        changed = {name: each for name, each in change.news.changed.items() if name in done}
        change.news = replace(change.news, changed=changed, claimed=(), claim=0)

    def _overtaken(self, news: News) -> list[str]:
        """Return the topics that are not promised to the one that sends this news."""
        claim = TopicClaim(news.claim, news.broker.name)
        return [name for name in news.claimed if not self._claims.holds(name, claim)]

    def tell_nameservers(
        self, name: str, pending: PendingCall, now: int, effects: list[Effect]
    ) -> int:
        """Write a topic, or that it is gone, to the nameservers; return how many were asked."""
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
            self._peer_requests.ask(address, code, pending, now, effects, ext=ext)
            for address in self._nameservers
        )

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        pending = outcome.purpose
        if isinstance(pending, _Wanted):
            self._asking = False
            return True
        if not isinstance(pending, _Step):
            return False
        change = self._under_way[pending.change]
        change.pending -= 1
        answer = outcome.reply
        if pending.broker and isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            change.kept.add(pending.broker)
        if not change.pending:
            self._go_on(pending.change, now, effects)
        return True

    # -- queues that are not partitions yet ------------------------------------------------------

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Act on what happened through the RocketMQ listener; called after each event.

        Queues created there get partitions, and topics deleted there are removed from the
        nameservers.
        """
        postponed = self._cluster.postponed
        postponed.retry(now)
        if postponed.fault:
            fault, postponed.fault = postponed.fault, ""
            text = f"cluster metadata could not be written to disk: {fault}"
            self._disk_faults.tell(text, now, effects)
        if not (self._cluster.gone or self._cluster.wanted):
            return
        gone, self._cluster.gone = self._cluster.gone, []
        for name in gone:
            if self._cluster.topic(name) is None and not self._cluster.is_alone:
                self.touched.add(name)
                self.tell_nameservers(name, PendingCall(), now, effects)
        if not self._cluster.wanted or self._asking or not self._cluster.is_ready:
            return
        if now < self._cover_at:  # otherwise each event would try again, and be followed by another
            return
        wanted = dict(self._cluster.wanted)
        if self._cluster.is_controller:
            self._cover(self._cluster.me.name, wanted, _ignore, now, effects)
        else:
            body = msgspec.json.encode(QueuesWanted(self._cluster.me.name, wanted))
            address = self._cluster.controller.remoting
            self._asking = self._peer_requests.ask(
                address, QUEUES_WANTED, _Wanted(), now, effects, body=body
            )
            self._cluster.wanted.clear()  # the next round asks again if this fails

    def _cover(
        self, broker: str, queues: dict[str, int], then: Then, now: int, effects: list[Effect]
    ) -> None:
        self._cluster.wanted.clear()
        if not self._claimed.isdisjoint(queues) and len(self._waiting) < WAITING_MAX:
            # Some of these topics are being laid out for another broker's queues: wait.
            self._waiting.append(partial(self._cover, broker, queues, then))
            return
        topics = []
        at_once = len(queues) if len(self._cluster.live_brokers()) == 1 else TOPICS_MAX
        for name, count in islice(queues.items(), at_once):  # the rest comes with the next round
            if name in self._claimed:
                continue
            known = self._cluster.topic(name)
            if known is None:
                known = KafkaTopic(name, self._cluster.new_id(), Layout(), {})
            layout = known.layout.covering({broker: count})
            if layout != known.layout:
                topics.append(replace(known, layout=layout))

        def after(faults: Faults, now: int, effects: list[Effect]) -> None:
            refused = [
                (name, text)
                for name, (code, text) in faults.items()
                if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.POLICY_VIOLATION)
            ]
            for name, text in refused:
                fault = f"layout of topic {name} is not kept: {text}"
                self._disk_faults.tell(fault, now, effects)
            if refused:
                self._cover_at = now + RETRY_MS
                self._cluster.weigh_all()
            then(faults, now, effects)

        self.put(topics, after, now, effects)

    @serves(QUEUES_WANTED)
    def queues_wanted(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        """Answer 9002: another broker has queues that are not partitions. Raises ProtocolError."""
        asked = read_body(request.body, QueuesWanted)
        if not self._cluster.is_controller:
            return request.reply(ResponseCode.SYSTEM_ERROR, "this is not the controller")
        if asked.broker not in self._cluster.brokers:
            raise ProtocolError(f"unknown broker {asked.broker[:100]}")
        queues = {
            name: count
            for name, count in asked.queues.items()
            if self._cluster.is_visible(name) and 0 < count <= QUEUES_MAX
        }

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            effects.append(Send(request.peer.link, request.reply()))

        self._cover(asked.broker, queues, then, now, effects)
        return None

    # -- news of others --------------------------------------------------------------------------

    @serves(NEWS)
    def take_news(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        """Answer 9003, refused if a topic could not be taken over as sent.

        Raises ProtocolError and StorageError.
        """
        news = read_body(request.body, News)
        self._cluster.meet(news.broker)
        if not (news.changed or news.deleted):
            self._cluster.registered(news.broker.name)
        refused = self._overtaken(news)
        for name, attributes in news.changed.items():
            topic = topic_of(name, attributes, self._cluster.readers)
            if topic is None or name in refused or not self._cluster.is_visible(name):
                continue
            proposed = ProposedTopic(news.claim, news.broker.name, attributes)
            if not (
                self._accept(topic, proposed)
                if name in news.claimed
                else self.take(topic, now, effects)
            ):
                refused.append(name)
        for name in news.deleted:
            self.touched.add(name)
            known = encode_id(self._cluster.id_of(name))
            topic_id = read_id(news.deleted_ids.get(name, known))
            self._bury(name, topic_id, now, effects)
        if refused:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"not taken over: {refused[:10]}")
        return self._durability.acknowledge(request, request.reply(), effects)

    def _accept(self, topic: KafkaTopic, proposed: ProposedTopic) -> bool:
        """Store a proposed layout, and return True, unless this broker knows better.

        Raises ProtocolError if the broker has no room for its part, and StorageError.
        """
        known = self._cluster.topic(topic.name)
        if known is not None and _agrees(known, topic):
            return True
        if not (self._may_be_used(topic, known) and self._cluster.is_free(topic)):
            return False
        self._cluster.check_part(topic)
        self._claims.accept(topic.name, proposed)
        return True

    def take(self, topic: KafkaTopic, now: int, effects: list[Effect]) -> bool:
        """Take over a topic from another broker or a nameserver, unless this broker knows better.

        Returns whether this broker now has the topic with these partitions, or more, on its disk.
        """
        if self._cluster.catalogue.is_deleted(topic.topic_id):
            return False
        holds = topic
        known = self._cluster.topic(topic.name)
        if known is not None:
            holds, contradicts = merged(known, topic)
            if contradicts:
                self._tell_contradiction(known, topic, holds, effects)
            if holds == known and not self._cluster.lacks_part(known):
                return _agrees(holds, topic)
        if not self._cluster.is_free(holds):
            return False
        self.touched.add(topic.name)
        try:
            if self._cluster.put_local(holds, now):
                self._registration.changed(now, effects)
            self._drop_proposed(holds)
        except (ProtocolError, StorageError) as error:
            text = f"this broker's part of topic {topic.name} cannot be created: {error}"
            self._disk_faults.tell(text, now, effects)
            return False
        return _agrees(holds, topic)

    def _tell_contradiction(
        self, known: KafkaTopic, other: KafkaTopic, holds: KafkaTopic, effects: list[Effect]
    ) -> None:
        """Log once that brokers laid out a topic in two ways, and what to do."""
        one, two = sorted((write(known.layout), write(other.layout)))
        if (known.name, one, two) in self._contradictions:
            return
        if len(self._contradictions) < CONTRADICTIONS_MAX:
            self._contradictions.add((known.name, one, two))
        effects.append(LogLine("ERROR", contradiction(known, other, holds)))

    def under_way(self) -> set[str]:
        """Return the topics that are being changed."""
        news = [change.news for change in self._under_way.values()]
        return {name for each in news for name in (*each.changed, *each.deleted)}

    def check(self) -> None:
        for change in self._under_way.values():
            assert change.pending > 0
        assert self._claimed or not self._waiting


def _ignore(faults: Faults, now: int, effects: list[Effect]) -> None:
    """Do nothing: nobody waits for the outcome."""


def _not_controller(names: Sequence[str]) -> Faults:
    text = "This is not the correct controller for this cluster."
    return dict.fromkeys(names, (ErrorCode.NOT_CONTROLLER, text))


def _agrees(holds: KafkaTopic, topic: KafkaTopic) -> bool:
    return holds.topic_id == topic.topic_id and holds.layout.extends(topic.layout)


def _exists(name: str) -> tuple[ErrorCode, str]:
    return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
