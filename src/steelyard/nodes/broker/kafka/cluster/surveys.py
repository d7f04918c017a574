"""Asks other brokers what they know of topics (9005), and answers when they ask.

Brokers are asked before a topic is created or grows, so that it is not laid out twice, and before a
topic that a nameserver lacks is restored to it, so that one that was deleted while a broker was
away does not return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.claims import Claims, TopicClaim
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, attributes_of, topic_of
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import (
    SURVEY,
    PeerRequests,
    ProposedTopic,
    Survey,
    SurveyAnswer,
    encode_id,
    read_body,
    read_id,
)
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

TOPICS_MAX = 1_000
"""Most topics in one request."""

Answers = Mapping[str, SurveyAnswer]
"""By the name of the broker; those that did not answer are missing."""

Then = Callable[[Answers, int, list[Effect]], None]


class _Asked(PendingCall, frozen=True):
    """A question to one broker."""

    serial: int
    broker: str


class _Round(msgspec.Struct):
    """Brokers that are asked the same. `pending`: how many have not answered yet."""

    then: Then
    pending: int
    answers: dict[str, SurveyAnswer] = msgspec.field(default_factory=dict)


class Surveys:
    """The surveys of this broker, and its answers to others; see the module docstring."""

    def __init__(self, cluster: Cluster, claims: Claims, peer_requests: PeerRequests) -> None:
        self._cluster = cluster
        self._claims = claims
        self._peer_requests = peer_requests
        self._serial = 0
        self._rounds: dict[int, _Round] = {}

    def ask(
        self,
        brokers: Iterable[Broker],
        topics: Sequence[str],
        then: Then,
        now: int,
        effects: list[Effect],
        *,
        claim: TopicClaim | None = None,
    ) -> None:
        """Ask brokers what they know of at most TOPICS_MAX topics; `then` gets their answers.

        It is called at once if nobody is asked. `claim`: with which this broker means to lay them
        out.
        """
        assert len(topics) <= TOPICS_MAX
        self._serial += 1
        ids = {name: encode_id(self._cluster.id_of(name)) for name in topics}
        survey = Survey(self._cluster.entry, ids, claim.number if claim else 0)
        body = msgspec.json.encode(survey)
        pending = 0
        for broker in brokers:
            asked = _Asked(self._serial, broker.name)
            pending += self._peer_requests.ask(
                broker.remoting, SURVEY, asked, now, effects, body=body
            )
        if pending:
            self._rounds[self._serial] = _Round(then, pending)
        else:
            then({}, now, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        pending = outcome.purpose
        if not isinstance(pending, _Asked):
            return False
        asked = self._rounds[pending.serial]
        answer = _read(outcome.reply, pending.broker)
        if answer is not None:
            asked.answers[pending.broker] = answer
        asked.pending -= 1
        if not asked.pending:
            del self._rounds[pending.serial]
            asked.then(asked.answers, now, effects)
        return True

    @serves(SURVEY)
    def requested(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9005, from another broker. Raises ProtocolError."""
        asked = read_body(request.body, Survey)
        if len(asked.topics) > TOPICS_MAX:
            raise ProtocolError(f"{len(asked.topics)} topics in one request; at most {TOPICS_MAX}")
        self._cluster.meet(asked.broker)
        promised = self._promise(asked)
        known: dict[str, dict[str, str]] = {}
        deleted: dict[str, bool] = {}
        proposed: dict[str, ProposedTopic] = {}
        for name, text in asked.topics.items():
            topic = self._cluster.topic(name)
            accepted = self._claims.proposed(name)
            if accepted is not None:
                proposed[name] = accepted
            if topic is not None:
                known[name] = attributes_of(topic)
            topic_id = read_id(text)
            if topic_id == NO_ID or (topic is not None and topic.topic_id == topic_id):
                continue
            if self._cluster.catalogue.has_no_part(topic_id):
                deleted[name] = self._cluster.catalogue.is_deleted(topic_id)
        answer = SurveyAnswer(self._cluster.me.name, known, deleted, proposed, promised)
        return request.reply(body=msgspec.json.encode(answer))

    def _promise(self, asked: Survey) -> int:
        """Promise the topics to the asker's claim, or return the number of a later one."""
        if not asked.claim:
            return 0
        claim = TopicClaim(asked.claim, asked.broker.name)
        latest = self._claims.latest(asked.topics)
        if latest > claim:
            return latest.number
        self._claims.promise(asked.topics, claim)
        return 0

    def topics(self, answers: Answers) -> list[KafkaTopic]:
        """Return the topics that the others know, by the names of brokers, then of topics."""
        found = [
            topic_of(name, attributes, self._cluster.readers)
            for _, answer in sorted(answers.items())
            for name, attributes in sorted(answer.known.items())
            if self._cluster.is_visible(name)
        ]
        return [topic for topic in found if topic is not None]

    def proposed(self, name: str, answers: Answers) -> KafkaTopic | None:
        """Return the topic as proposed under the latest claim, None if it is not proposed.

        All brokers that answered, and this one, tell which proposal they have accepted.
        """
        accepted = [answer.proposed.get(name) for answer in answers.values()]
        found = [each for each in (*accepted, self._claims.proposed(name)) if each is not None]
        if not found:
            return None
        latest = max(found, key=lambda each: TopicClaim(each.number, each.broker))
        return topic_of(name, latest.attributes, self._cluster.readers)

    def check(self) -> None:
        for asked in self._rounds.values():
            assert asked.pending > 0


def _read(answer: object, broker: str) -> SurveyAnswer | None:
    """Return a broker's answer; None without one, or if another broker has its address by now."""
    if not isinstance(answer, Command) or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        said = read_body(answer.body, SurveyAnswer)
    except ProtocolError:
        return None
    return said if said.broker == broker else None
