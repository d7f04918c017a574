"""What one member of a share group asks the leaders of its partitions, and what they answer.

It fetches, and acknowledges with a fetch or by itself. Now and then it sends an epoch that its
session does not have, which must be refused, and begins the session anew, as Java's client does
after such an answer. What it sends and is told goes to the `ShareWitness`. Source: the client's
ShareConsumeRequestManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from steelyard.errors import SteelyardError
from steelyard.nodes.broker.kafka.data.fetch_sessions import next_epoch
from steelyard.nodes.broker.kafka.shares.share_partition import RENEW
from steelyard.nodes.calls.kafka import Lane
from steelyard.nodes.seam import Address, Effect, Link
from steelyard.sim.kafka.script import AGAIN_MS
from steelyard.sim.kafka.shares.fates import Who
from steelyard.sim.kafka.shares.session import (
    Exchange,
    FetchLimits,
    Kinds,
    LeaderSession,
    Place,
    ShareHabits,
    forgotten,
)
from steelyard.sim.kafka.shares.witness import ShareWitness
from steelyard.sim.world import Violation
from steelyard.types import Random, TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import MetadataResponse
from steelyard.wire.kafka.messages.data import FIRST_EPOCH, LAST_EPOCH
from steelyard.wire.kafka.messages.share_data import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

SHARE_GROUP = "share-group"
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 1 << 20
RECORDS_MAX = 100
"""Most records of one leader that an application has before its member fetches again."""
PROBE_EVERY = 40
"""One request in this many has an epoch that its session does not have."""

_NO_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


Call = Callable[[Lane, Api, ApiMessage, Exchange, int, list[Effect]], None]
"""Sends a request; `ShareLeaders.exchanged` gets its outcome."""


class ShareLeaders:
    """The sessions of a member; see the module docstring. `name`: the member's id."""

    def __init__(
        self,
        name: str,
        habits: ShareHabits,
        limits: FetchLimits,
        call: Call,
        witness: ShareWitness,
        rng: Random,
    ) -> None:
        self._name = name
        self._habits = habits
        self._limits = limits
        self._call = call
        self._witness = witness
        self._rng = rng
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._leaders: dict[Place, Address] = {}
        self._sessions: dict[Address, LeaderSession] = {}
        self._is_stopping = False

    # -- what to fetch -----------------------------------------------------------------------------

    def learn(self, reply: MetadataResponse) -> None:
        """Learn who leads the partitions."""
        addresses = {node.node_id: f"{node.host}:{node.port}" for node in reply.brokers}
        for topic in reply.topics:
            if topic.error_code or topic.name is None:
                continue
            self._ids[topic.name] = topic.topic_id
            self._names[topic.topic_id] = topic.name
            for part in topic.partitions:
                if part.leader_id in addresses:
                    place = topic.topic_id, part.partition_index
                    self._leaders[place] = addresses[part.leader_id]

    def share_out(self, assigned: Mapping[Place, None], now: int) -> bool:
        """Tell the sessions what the member has; return whether all leaders are known."""
        by_leader: dict[Address, dict[Place, None]] = {leader: {} for leader in self._sessions}
        known = {place: None for place in assigned if place in self._leaders}
        for place in known:
            by_leader.setdefault(self._leaders[place], {})[place] = None
        for leader, places in by_leader.items():
            if leader not in self._sessions:
                self._sessions[leader] = LeaderSession(leader, self._habits, self._rng)
            self._sessions[leader].wants(places, now)
        held = frozenset(TopicPartition(self._names[topic], part) for topic, part in known)
        self._witness.assigned(self._name, held)
        return len(known) == len(assigned)

    def stop(self, now: int) -> None:
        """End all sessions with their next requests."""
        self._is_stopping = True
        for session in self._sessions.values():
            session.next_at = now

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is under way or to be sent."""
        return all(
            session.exchange is None and session.next_at is None
            for session in self._sessions.values()
        )

    @property
    def next_at(self) -> int | None:
        """Return when to call `ask`."""
        times = [each.asks_at for each in self._sessions.values()]
        return min((at for at in times if at is not None), default=None)

    def closed(self, link: Link, now: int) -> None:
        """Begin the session on a lost connection anew, if no request was under way on it."""
        for session in self._sessions.values():
            if session.link == link and session.exchange is None:
                session.reset(now)
                session.next_at = now

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, now: int, effects: list[Effect]) -> None:
        """Send what is due."""
        for session in self._sessions.values():
            if session.asks_at is not None and session.asks_at <= now:
                session.next_at = None
                self._go_on(session, now, effects)

    def _go_on(self, session: LeaderSession, now: int, effects: list[Effect]) -> None:
        if session.epoch == FIRST_EPOCH:
            session.reset(now)
            if session.wanted and not self._is_stopping:
                self._fetch(session, {}, now, effects)
            return
        if self._is_stopping:
            self._acknowledge(session, session.due(now), now, effects)
            return
        if not self._rng.randrange(PROBE_EVERY):
            self._probe(session, now, effects)
            return
        kinds = session.due(now)
        fetches = session.size < RECORDS_MAX and bool(session.wanted or session.named)
        if kinds and (_renews(kinds) or not fetches or self._rng.random() < 0.5):
            self._acknowledge(session, kinds, now, effects)
        elif fetches:
            self._fetch(session, kinds, now, effects)
        else:
            session.next_at = session.due_at

    def _begin(self, session: LeaderSession, kinds: Kinds, now: int, epoch: int) -> Exchange:
        """Return the next request of a session, noted where that matters."""
        run = self._witness.run_of(session.leader)
        exchange = Exchange(session, epoch, now, run, kinds=kinds)
        exchange.counts = session.say(kinds, now)
        session.exchange = exchange
        who = Who(self._name, session.leader, session.link)
        for partition, offsets in kinds.items():
            self._witness.acknowledges(who, partition, offsets)
        return exchange

    def _fetch(self, session: LeaderSession, kinds: Kinds, now: int, effects: list[Effect]) -> None:
        exchange = self._begin(session, kinds, now, session.epoch)
        exchange.is_fetch, exchange.named = True, dict(session.wanted)
        self._witness.unseen.fetches(self._name, session.leader)
        added = [place for place in session.wanted if place not in session.named]
        self._send_fetch(
            exchange,
            ShareFetchRequest(
                SHARE_GROUP,
                self._name,
                session.epoch,
                FETCH_WAIT_MS,
                1,
                FETCH_BYTES_MAX,
                self._limits.records,
                self._limits.records,
                int(self._limits.by_record),
                topics=session.topics(kinds, self._ids, added),
                forgotten_topics_data=forgotten(
                    place for place in session.named if place not in session.wanted
                ),
            ),
            now,
            effects,
        )

    def _probe(self, session: LeaderSession, now: int, effects: list[Effect]) -> None:
        """Send an epoch of the past or of the future."""
        epoch = session.epoch + self._rng.choice((-1, 1, 5))
        exchange = self._begin(session, {}, now, max(epoch, 1))
        if exchange.epoch == session.epoch:
            exchange.epoch += 1
        exchange.is_probe = True
        message = ShareFetchRequest(
            SHARE_GROUP, self._name, exchange.epoch, 0, 0, FETCH_BYTES_MAX, 1, 1
        )
        self._send_fetch(exchange, message, now, effects)

    def _send_fetch(
        self, exchange: Exchange, message: ShareFetchRequest, now: int, effects: list[Effect]
    ) -> None:
        lane = Lane(exchange.session.leader, "share")
        self._call(lane, SHARE_FETCH, message, exchange, now, effects)

    def _acknowledge(
        self, session: LeaderSession, kinds: Kinds, now: int, effects: list[Effect]
    ) -> None:
        """Acknowledge without a fetch, at the end of the session if the member stops."""
        epoch = LAST_EPOCH if self._is_stopping else session.epoch
        exchange = self._begin(session, kinds, now, epoch)
        if self._is_stopping:
            self._witness.closes(Who(self._name, session.leader, session.link))
        exchange.named = session.named
        topics = session.topics(kinds, self._ids, ())
        message = ShareAcknowledgeRequest(SHARE_GROUP, self._name, epoch, _renews(kinds), topics)
        lane = Lane(session.leader, "share")
        self._call(lane, SHARE_ACKNOWLEDGE, message, exchange, now, effects)

    # -- answers -----------------------------------------------------------------------------------

    def exchanged(
        self, exchange: Exchange, reply: ApiMessage | SteelyardError, link: Link, now: int
    ) -> bool:
        """Take the outcome of a request; return False if leaders may have changed."""
        session = exchange.session
        session.exchange = None
        if exchange.is_fetch:
            heard = not isinstance(reply, SteelyardError)
            self._witness.unseen.fetched(self._name, session.leader, heard=heard)
        if isinstance(reply, SteelyardError):
            self._refused(exchange, None)
            session.lost += 1
            session.reset(now)
            session.next_at = None if self._is_stopping else now + AGAIN_MS
            return False
        assert isinstance(reply, ShareFetchResponse | ShareAcknowledgeResponse)
        session.next_at = now
        session.throttled_until = now + reply.throttle_time_ms
        who = Who(self._name, session.leader, link)
        if exchange.is_probe or reply.error_code:
            self._check_error(exchange, reply.error_code)
            self._refused(exchange, now)
            if not exchange.is_probe:
                self._witness.loses(who)
            session.reset(now)
            if not exchange.is_probe:
                session.next_at = now + AGAIN_MS
            return True
        self._witness.answered(who, exchange.sent_at)
        if exchange.epoch == FIRST_EPOCH:
            session.link = link
        assert session.link == link, f"a session on {session.link} is answered on {link}"
        session.named, session.epoch = exchange.named, next_epoch(exchange.epoch)
        if exchange.epoch == LAST_EPOCH:
            session.epoch, session.next_at = FIRST_EPOCH, None
        if isinstance(reply, ShareAcknowledgeResponse):
            errors = {
                (topic.topic_id, part.partition_index): part.error_code
                for topic in reply.responses
                for part in topic.partitions
            }
            self._told(exchange, errors, now)
            return not any(errors.values())
        return self._fetched(exchange, reply, link, now)

    def _fetched(self, exchange: Exchange, reply: ShareFetchResponse, link: Link, now: int) -> bool:
        session = exchange.session
        parts = {
            (topic.topic_id, part.partition_index): part
            for topic in reply.responses
            for part in topic.partitions
        }
        self._told(
            exchange, {place: part.acknowledge_error_code for place, part in parts.items()}, now
        )
        who = Who(self._name, session.leader, link)
        for (topic_id, number), part in parts.items():
            if part.acquired_records:
                partition = TopicPartition(self._names[topic_id], number)
                data = part.records or b""
                assert isinstance(data, bytes)
                found = session.take(partition, data, part.acquired_records, now)
                self._witness.delivered(who, found, exchange.sent_at, now, exchange.run)
        is_well = not any(part.error_code for part in parts.values())
        if not is_well:
            session.next_at = now + AGAIN_MS
        return is_well

    def _check_error(self, exchange: Exchange, error: int) -> None:
        """Check the error of a whole request. Raises Violation.

        A session ends with its connection, and is not lost while that is there; unless a request of
        its member came late, on the connection before.
        """
        name, epoch = self._name, exchange.epoch
        if exchange.is_probe and error not in _NO_SESSION:
            raise Violation(
                f"{name} sends the epoch {epoch}, its session has {exchange.session.epoch}:"
                f" answered with error {error}"
            )
        if not exchange.is_probe and not (exchange.session.lost and error in _NO_SESSION):
            raise Violation(f"{name} sends the next epoch, {epoch}: answered with error {error}")

    def _told(self, exchange: Exchange, errors: Mapping[Place, int], now: int) -> None:
        """Take the outcomes of acknowledgements, by partition."""
        who = Who(self._name, exchange.session.leader, exchange.session.link)
        for partition, kinds in exchange.kinds.items():
            error = errors[self._ids[partition.topic], partition.partition]
            if error:
                is_state = error == ErrorCode.INVALID_RECORD_STATE
                self._witness.refuses(who, partition, kinds, now, because_of_state=is_state)
            else:
                counts = exchange.counts[partition]
                self._witness.acknowledged(who, partition, kinds, counts, exchange.sent_at, now)

    def _refused(self, exchange: Exchange, now: int | None) -> None:
        """Note that none of the acknowledgements was taken, or that nobody knows (None)."""
        who = Who(self._name, exchange.session.leader, exchange.session.link)
        for partition, kinds in exchange.kinds.items():
            self._witness.refuses(who, partition, kinds, now, because_of_state=False)

    def check(self) -> None:
        for session in self._sessions.values():
            assert session.exchange is None or session.exchange.session is session


def _renews(kinds: Kinds) -> bool:
    return any(kind == RENEW for offsets in kinds.values() for kind in offsets.values())
