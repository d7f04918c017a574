"""Finds the other brokers of the cluster and the layouts of its topics through the nameservers.

Brokers share nothing but the nameservers: each puts what it is (node id, addresses) into their settings, the controller puts
the topics. A round reads all of it from one nameserver: who is alive (106), who is who and which topics there are (219).

- A round every 3 s, at once where something hints at a change. A nameserver that does not answer is passed over; all
  brokers read from the first one that does, so that one that forgot is found out by all, and told again by all.
- The broker answers Kafka clients from its first rounds on: until then `Cluster.is_ready` is False. It waits until the
  nameserver has its registration and its settings, so that of two that start together one sees both. Then it says hello
  to the others and reads once more: a controller that it takes the place of has done its last by then.
- A nameserver that forgot (they keep settings in memory) is told again, by every broker of all topics that it knows
  (`catalogue`). It does so when a topic was missing in two rounds, so that one that is being deleted does not return, and
  when it has asked the other brokers whether it was deleted while this one was away (`surveys`). Then it is deleted here,
  too. While the nameserver does not list ourselves, what it says of others is not believed.
- A broker whose part of a topic is missing makes it, empty.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.changes import Changes
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.surveys import TOPICS_MAX, Answers, Surveys
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, topic_of
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import NEWS, BrokerEntry, News, PeerRequests, read_body
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ClusterInfo, KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

ROUND_MS = 3_000
RETRY_MS = 500
"""Until the next round after one that failed."""
PAUSE_MS = 100
"""Between rounds, however many hints there are."""
REGISTERED_PAUSE_MS = 20
REGISTERED_WAIT_MS = 5_000
"""How often, and for how long, the first round looks for our own registration."""

ROUNDS_TO_TELL = 2
"""A topic that was missing so often is told to the nameservers again, unless another broker knows that it was deleted."""

CLUSTER, BROKERS, LAYOUTS = "cluster", "brokers", "layouts"


class _Read(PendingCall, frozen=True):
    """One of the three questions of a round."""

    serial: int
    what: str


class _Hello(PendingCall, frozen=True):
    """We told another broker that we are here."""


class NameService:
    """See the module's text."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        changes: Changes,
        surveys: Surveys,
        peer_requests: PeerRequests,
        now: int,
    ) -> None:
        self._nameservers = parts.config.nameservers
        self._cluster_name = parts.config.cluster
        self._cluster = cluster
        self._changes = changes
        self._surveys = surveys
        self._peer_requests = peer_requests
        self._registration = parts.registration
        self._position = 0
        self._serial = 0
        self._answers: dict[str, Command | None] | None = None
        """Of the round under way; None without one."""
        self._again = False
        self._started_at = now
        self._hellos = 0
        self._is_greeted = False
        """All have heard our hello."""
        self._missing: dict[str, int] = {}
        """Topics that the last rounds did not find, and how many of them."""
        self._is_asking = False
        """The other brokers are asked about some of those."""
        self._settled: dict[str, tuple[str, KafkaTopic]] = {}
        """What the last round found and left nothing to do about."""
        self.next_at: int | None = now if parts.config.nameservers else None

    # -- rounds ----------------------------------------------------------------------------------

    def soon(self, now: int) -> None:
        """Something hints at a change."""
        if self._answers is not None:
            self._again = True
        elif self.next_at is not None:
            self.next_at = min(self.next_at, now + PAUSE_MS)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Begin a round."""
        self.next_at = None
        self._again = False
        self._serial += 1
        self._answers = {}
        self._changes.touched.clear()
        address = self._nameservers[self._position]
        for what, code, namespace in (
            (CLUSTER, RequestCode.GET_BROKER_CLUSTER_INFO, ""),
            (BROKERS, RequestCode.GET_KVLIST_BY_NAMESPACE, self._cluster.brokers_namespace),
            (LAYOUTS, RequestCode.GET_KVLIST_BY_NAMESPACE, self._cluster.layouts_namespace),
        ):
            pending = _Read(self._serial, what)
            ext = headers.write(headers.KVConfigHeader(namespace=namespace)) if namespace else {}
            if not self._peer_requests.ask(address, code, pending, now, effects, ext=ext):
                self._answers[what] = None
        self._settle(now, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """A call ended; False where it was none of ours."""
        pending = outcome.purpose
        if isinstance(pending, _Hello):
            self._hellos -= 1
            if not self._hellos:
                self._is_greeted = True
                if self._answers is None:
                    self.next_at = now
            return True
        if not isinstance(pending, _Read):
            return False
        if self._answers is not None and pending.serial == self._serial:
            reply = outcome.reply
            self._answers[pending.what] = reply if isinstance(reply, Command) else None
            self._settle(now, effects)
        return True

    def _settle(self, now: int, effects: list[Effect]) -> None:
        """Take the round in when all answers are there."""
        if self._answers is None or len(self._answers) < 3:
            return
        answers, self._answers = self._answers, None
        cluster = answers[CLUSTER]
        brokers, layouts = _table(answers[BROKERS]), _table(answers[LAYOUTS])
        if (
            cluster is None
            or cluster.code != ResponseCode.SUCCESS
            or brokers is None
            or layouts is None
        ):
            self._position = (self._position + 1) % len(self._nameservers)
            if not self._position:
                self._cluster.is_ready = True  # we know nobody else, and serve what we have
            self.next_at = now + RETRY_MS
            return
        self._position = 0
        try:
            info = fastjson.read(ClusterInfo, cluster.body)
        except ProtocolError:
            info = ClusterInfo({}, {})
        live = {
            name
            for name, data in info.broker_addr_table.items()
            if data.cluster == self._cluster_name
        }
        is_registered = self._cluster.me.name in live
        if not is_registered and self._cluster.is_ready:
            # It forgot us, and probably everybody: what we know is better. We tell it at once who we are.
            self._registration.begin(now, effects)
            self.next_at = now + RETRY_MS
            return
        self._meet(brokers, live, now, effects)
        if is_registered:
            self._cluster.membership.looked(now)
        is_known = is_registered and self._cluster.me.name in brokers
        if not is_known and now < self._started_at + REGISTERED_WAIT_MS:
            self.next_at = now + REGISTERED_PAUSE_MS
            return
        self._learn(layouts, now, effects)
        if self._is_greeted:
            self._cluster.is_ready = True
        elif not self._cluster.is_ready and not self._hellos:
            self._greet(now, effects)
        self._cluster.weigh_all()
        self.next_at = now + (PAUSE_MS if self._again else ROUND_MS)

    # -- brokers -----------------------------------------------------------------------------------

    def _meet(
        self, entries: Mapping[str, str], live: set[str], now: int, effects: list[Effect]
    ) -> None:
        cluster = self._cluster
        mine = msgspec.json.encode(cluster.entry).decode()
        if entries.get(cluster.me.name) != mine:
            self._put_entry(mine, now, effects)
        for name, text in sorted(entries.items()):
            try:
                entry = read_body(text.encode(), BrokerEntry)
            except ProtocolError:
                continue
            if name == cluster.me.name or entry.name != name:
                continue
            cluster.meet(entry, live=name in live)
        for name in sorted(cluster.brokers.keys() - entries.keys()):
            cluster.meet(cluster.brokers[name].entry, live=name in live)

    def _put_entry(self, value: str, now: int, effects: list[Effect]) -> None:
        header = headers.KVConfigHeader(
            namespace=self._cluster.brokers_namespace, key=self._cluster.me.name, value=value
        )
        for address in self._nameservers:
            ext = headers.write(header)
            code = RequestCode.PUT_KV_CONFIG
            self._peer_requests.ask(address, code, PendingCall(), now, effects, ext=ext)

    def _greet(self, now: int, effects: list[Effect]) -> None:
        """Say hello; when all have heard it, or nobody is there, this broker is ready."""
        body = msgspec.json.encode(News(self._cluster.entry))
        for broker in self._cluster.live_brokers():
            if broker.name != self._cluster.me.name:
                hello = _Hello()
                self._hellos += self._peer_requests.ask(
                    broker.remoting, NEWS, hello, now, effects, body=body
                )
        if not self._hellos:
            self._cluster.is_ready = True

    # -- topics ------------------------------------------------------------------------------------

    def _learn(self, layouts: Mapping[str, str], now: int, effects: list[Effect]) -> None:
        cluster, changes = self._cluster, self._changes
        touched = changes.touched | changes.under_way()
        before, self._settled = self._settled, {}
        for name, text in layouts.items():
            if name in touched or not cluster.is_visible(name):
                continue
            settled = before.get(name)
            if settled is None or settled != (text, cluster.topic(name)):
                settled = self._take(name, text, now, effects)
            if settled is not None:
                self._settled[name] = settled
        missing: dict[str, int] = {}
        for name in cluster.names():
            if name not in layouts and name not in touched:
                missing[name] = self._missing.get(name, 0) + 1
        self._missing = missing
        lost = [name for name, rounds in missing.items() if rounds >= ROUNDS_TO_TELL]
        if lost and not self._is_asking:
            self._ask_for(lost[:TOPICS_MAX], now, effects)

    def _ask_for(self, names: list[str], now: int, effects: list[Effect]) -> None:
        """Ask the others whether topics that the nameserver does not have were deleted; tell it of those that were not."""
        cluster = self._cluster
        ids = {name: cluster.id_of(name) for name in names}

        def answered(answers: Answers, now: int, effects: list[Effect]) -> None:
            self._is_asking = False
            for name, topic_id in ids.items():
                topic = cluster.topic(name)
                if topic is None or topic.topic_id != topic_id:
                    continue
                if _was_deleted(topic, answers):
                    self._changes.was_deleted(name, topic_id, now, effects)
                else:
                    self._changes.tell_nameservers(name, PendingCall(), now, effects)

        self._is_asking = True
        others = [each for each in cluster.live_brokers() if each.name != cluster.me.name]
        self._surveys.ask(others, names, answered, now, effects)

    def _take(
        self, name: str, text: str, now: int, effects: list[Effect]
    ) -> tuple[str, KafkaTopic] | None:
        """Take in what the nameserver knows of a topic; it and the topic, if there is no more to do about it."""
        cluster, changes = self._cluster, self._changes
        try:
            attributes = read_body(text.encode(), dict[str, str])
        except ProtocolError:
            return None
        topic = topic_of(name, attributes, cluster.readers)
        if topic is None:
            return None
        changes.take(topic, now, effects)
        known = cluster.topic(name)
        if known != topic:
            if known is not None or cluster.catalogue.is_deleted(topic.topic_id):
                changes.tell_nameservers(name, PendingCall(), now, effects)  # they are behind
            return None
        if cluster.lacks_part(topic):
            return None  # our part of it could not be made
        return text, known

    def check(self) -> None:
        assert self._hellos >= 0
        assert (self._answers is None) or len(self._answers) < 3


def _was_deleted(topic: KafkaTopic, answers: Answers) -> bool:
    """Another broker knows that a topic was deleted, or all brokers that had a part of it have deleted theirs."""
    gone = {
        name: answer.deleted[topic.name]
        for name, answer in answers.items()
        if topic.name in answer.deleted
    }
    return any(gone.values()) or topic.layout.queues().keys() <= gone.keys()


def _table(answer: Command | None) -> Mapping[str, str] | None:
    """The settings of a namespace, None where the nameserver did not say."""
    if answer is not None and answer.code == ResponseCode.QUERY_NOT_FOUND:
        return {}
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return fastjson.read(KVTable, answer.body).table
    except ProtocolError:
        return None
