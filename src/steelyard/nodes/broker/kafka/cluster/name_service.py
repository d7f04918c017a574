"""Finds the other brokers of the cluster and the layouts of its topics through the nameservers.

Brokers share nothing but the nameservers. Each writes its own entry (node id, addresses) to their
settings, and the controller writes the topics. A round reads everything from one nameserver: which
brokers are alive (106), their entries, and the topics (both 219).

- There is a round every 3 s, and soon after any hint of a change. A nameserver that does not answer
  is skipped. All brokers read from the first one that answers, so all of them notice if it has lost
  its settings, and all restore them.
- The broker answers Kafka clients after its first rounds; until then `Cluster.is_ready` is False.
  It waits until the nameserver has its registration and its entry (at most `REGISTERED_WAIT_MS`),
  so that of two brokers that start together at least one sees both. Then it greets the others and
  reads once more: by then, a controller that it replaces has made its last change.
- Nameservers keep settings in memory. Every broker restores all topics that it knows (`catalogue`)
  to one that has lost them, but only a topic that was missing in two rounds, so that one that is
  being deleted does not return, and only after asking the other brokers whether it was deleted
  while this one was away (`surveys`). If it was, it is deleted here as well. Once the broker is
  ready, it ignores a nameserver that does not list it, and registers there again.
- A topic that another one has replaced, by its name, was most probably deleted and made again while
  this broker was away. The broker asks the others about that, too, and takes over the new topic
  afterwards. It is not ready before, so that the former topic's records, and the offsets that
  groups have committed in it, are gone by then.
- A broker that lacks its part of a topic creates it, empty.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.changes import Changes
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.merging import merged
from steelyard.nodes.broker.kafka.cluster.surveys import TOPICS_MAX, Answers, Surveys
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, topic_of
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import NEWS, News, PeerRequests, read_body
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.routes.brokers import BrokerEntry
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ClusterInfo, KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

ROUND_MS = 3_000
RETRY_MS = 500
"""Pause after a round that failed."""
PAUSE_MS = 100
"""Shortest pause between rounds, however many hints there are."""
REGISTERED_PAUSE_MS = 20
REGISTERED_WAIT_MS = 5_000
"""How often, and for how long, the first rounds look for this broker's own registration."""

ROUNDS_TO_TELL = 2
"""Rounds in which a topic must be missing before the broker restores it to the nameservers."""

CLUSTER, BROKERS, LAYOUTS = "cluster", "brokers", "layouts"


class _Read(PendingCall, frozen=True):
    """One of the three reads of a round."""

    serial: int
    what: str


class _Hello(PendingCall, frozen=True):
    """A greeting to another broker."""


class NameService:
    """The rounds that read the nameservers; see the module docstring."""

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
        """Of the round in progress; None between rounds."""
        self._again = False
        self._started_at = now
        self._hellos = 0
        self._is_greeted = False
        """Whether all greetings have been answered, or have failed."""
        self._missing: dict[str, int] = {}
        """Topics that the last rounds did not find, and in how many rounds."""
        self._replaced: dict[str, KafkaTopic] = {}
        """By name, the successors that the last round found of topics that this broker has."""
        self._has_heard = False
        """Whether the others have told once what became of such topics."""
        self._is_asking = False
        """Whether the other brokers are being asked about some of these."""
        self._settled: dict[str, tuple[str, KafkaTopic]] = {}
        """What the last round found and left nothing to do about."""
        self.next_at: int | None = now if parts.config.nameservers else None

    # -- rounds ----------------------------------------------------------------------------------

    def soon(self, now: int) -> None:
        """Begin the next round soon, because something hints at a change."""
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
        """Handle the outcome of a call; return False if it is not one of these."""
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
        """Apply the results of the round once all answers are there."""
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
                self._cluster.is_ready = True  # no nameserver answers: serve what is known
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
            # It has probably forgotten everybody: what this broker knows is better. Register again.
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
            is_settled = self._has_heard or not self._replaced
            self._cluster.is_ready = self._cluster.is_ready or is_settled
        elif not self._cluster.is_ready and not self._hellos:
            self._greet(now, effects)
        self._cluster.weigh_all()
        self.next_at = now + (PAUSE_MS if self._again else ROUND_MS)

    # -- brokers ---------------------------------------------------------------------------------

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
        """Greet the other brokers; if there are none, this broker is ready at once."""
        body = msgspec.json.encode(News(self._cluster.entry))
        for broker in self._cluster.live_brokers():
            if broker.name != self._cluster.me.name:
                hello = _Hello()
                self._hellos += self._peer_requests.ask(
                    broker.remoting, NEWS, hello, now, effects, body=body
                )
        if not self._hellos:
            self._cluster.is_ready = True

    # -- topics ----------------------------------------------------------------------------------

    def _learn(self, layouts: Mapping[str, str], now: int, effects: list[Effect]) -> None:
        cluster, changes = self._cluster, self._changes
        touched = changes.touched | changes.under_way()
        before, self._settled = self._settled, {}
        self._replaced = {}
        for name, text in layouts.items():
            if name in touched or not cluster.is_visible(name):
                continue
            settled = before.get(name)
            if settled is None or settled != (text, cluster.topic(name)):
                topic = _topic(name, text, cluster)
                if topic is None:
                    continue
                if self._replaces(topic):
                    self._replaced[name] = topic
                    continue
                settled = self._take(topic, text, now, effects)
            if settled is not None:
                self._settled[name] = settled
        missing: dict[str, int] = {}
        for name in cluster.names():
            if name not in layouts and name not in touched:
                missing[name] = self._missing.get(name, 0) + 1
        self._missing = missing
        lost = [name for name, rounds in missing.items() if rounds >= ROUNDS_TO_TELL]
        if (lost or self._replaced) and not self._is_asking:
            self._ask_for([*self._replaced, *lost][:TOPICS_MAX], now, effects)

    def _replaces(self, topic: KafkaTopic) -> bool:
        """Return whether a topic is the successor of one that this broker has under its name."""
        known = self._cluster.topic(topic.name)
        return (
            known is not None
            and known.topic_id != topic.topic_id
            and not known.is_fixed
            and merged(known, topic)[0] is topic
            and not self._cluster.catalogue.is_deleted(topic.topic_id)
        )

    def _ask_for(self, names: list[str], now: int, effects: list[Effect]) -> None:
        """Ask the others whether topics were deleted that a nameserver lacks, or has replaced.

        Those that were are deleted here. Of the others, those that it lacks are restored to the
        nameservers, and the successor of a replaced one is taken over all the same.
        """
        cluster = self._cluster
        ids = {name: cluster.id_of(name) for name in names}
        replaced = self._replaced

        def answered(answers: Answers, now: int, effects: list[Effect]) -> None:
            self._is_asking = False
            if replaced:
                self._has_heard = True
                self.soon(now)
            for name, topic_id in ids.items():
                topic = cluster.topic(name)
                if topic is None or topic.topic_id != topic_id:
                    continue
                if _was_deleted(topic, answers):
                    self._changes.was_deleted(name, topic_id, now, effects)
                elif name in replaced:
                    self._changes.take(replaced[name], now, effects)
                else:
                    self._changes.tell_nameservers(name, PendingCall(), now, effects)

        self._is_asking = True
        others = [each for each in cluster.live_brokers() if each.name != cluster.me.name]
        self._surveys.ask(others, names, answered, now, effects)

    def _take(
        self, topic: KafkaTopic, text: str, now: int, effects: list[Effect]
    ) -> tuple[str, KafkaTopic] | None:
        """Take in what a nameserver knows of a topic; return both versions if they agree."""
        cluster, changes = self._cluster, self._changes
        changes.take(topic, now, effects)
        known = cluster.topic(topic.name)
        if known != topic:
            if known is not None or cluster.catalogue.is_deleted(topic.topic_id):
                changes.tell_nameservers(topic.name, PendingCall(), now, effects)  # they are behind
            return None
        if cluster.lacks_part(topic):
            return None  # this broker's part could not be created
        return text, known

    def check(self) -> None:
        assert self._hellos >= 0
        assert (self._answers is None) or len(self._answers) < 3


def _topic(name: str, text: str, cluster: Cluster) -> KafkaTopic | None:
    """Return a topic as a nameserver has it; None if that cannot be read."""
    try:
        attributes = read_body(text.encode(), dict[str, str])
    except ProtocolError:
        return None
    return topic_of(name, attributes, cluster.readers)


def _was_deleted(topic: KafkaTopic, answers: Answers) -> bool:
    """Return whether the whole topic was deleted, or its part on each of its brokers."""
    gone = {
        name: answer.deleted[topic.name]
        for name, answer in answers.items()
        if topic.name in answer.deleted
    }
    return any(gone.values()) or topic.layout.queues().keys() <= gone.keys()


def _table(answer: Command | None) -> Mapping[str, str] | None:
    """Return the settings of a namespace; None if the nameserver did not answer."""
    if answer is not None and answer.code == ResponseCode.QUERY_NOT_FOUND:
        return {}
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return fastjson.read(KVTable, answer.body).table
    except ProtocolError:
        return None
