"""The broker's node: serves clients, keeps the queues, and registers with the nameservers.

The node has a service for each dialect: `remoting/service` for RocketMQ's clients and, if there is
a Kafka listener, `kafka/service` for Kafka's. It creates the parts that both share (`parts`),
starts and stops them, and dispatches events:

- `Opened`, accepted: a peer, known by its address. Dialed: a nameserver, or another broker.
- `Received`, a request: to the service of its dialect. A response: of a nameserver or broker, or of
  a client that a request was passed on to.
- `Closed`: a client leaves its groups, and its waiting requests are dropped; if it was a
  nameserver's link, the broker registers again soon.
- `Due`: the pulse, registration, joining, calls, parked pulls, turns, clients, flush, retention,
  scrubbing, the ledger, and the timers of the services.
- `Flushed`: replies that waited for the disk are sent.
- `Measured`: kept for the figures that others ask for.
- `Asked(Stop)`: the ledger is closed, the broker unregisters (2 s at most), the store is closed,
  then `Answer(None)`. From its arrival on, RocketMQ requests get 14 and Kafka requests no answer.
- `Asked(KafkaReady)`: answered when the Kafka listener has found the other brokers.
- `Asked(AccountsChanged)`: the accounts are replaced (`nodes/access/book`).
- `Asked(TokenKeysChanged)`: the keys that verify access tokens are replaced.
- `Asked(AwaitRegistration)`: answered when clients find the broker (`registration`).
- `Asked(AwaitRefusal)`: answered with an error if another broker has this one's name, node id or
  address (`joining`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from steelyard.acl.accounts import Accounts
from steelyard.config import BrokerConfig
from steelyard.errors import StorageError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.nodes.access.book import AccountBook, AccountsChanged
from steelyard.nodes.broker.compaction.compaction import COMPACTION_TIMER, LogCompaction
from steelyard.nodes.broker.compaction.passes import WithoutKafka
from steelyard.nodes.broker.durability import FLUSH_TIMER
from steelyard.nodes.broker.kafka import KAFKA_TIMER
from steelyard.nodes.broker.parts import make_parts
from steelyard.nodes.broker.peers.joining import JOINING_TIMER, AwaitRefusal
from steelyard.nodes.broker.peers.registration import (
    REGISTER_TIMER,
    STOP_TIMEOUT_MS,
    AwaitRegistration,
    PendingCall,
    Purpose,
)
from steelyard.nodes.broker.remoting.service import RemotingService
from steelyard.nodes.broker.requests import Peer, host_of
from steelyard.nodes.broker.retention import RETENTION_TIMER, SPACE_TIMER
from steelyard.nodes.broker.scrubbing import SCRUB_TIMER
from steelyard.nodes.broker.timers.timers import TIMERS_TIMER, DelayedMessages
from steelyard.nodes.broker.token_keys import TokenKeysChanged
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.nodes.broker.users import User
from steelyard.nodes.broker.writer import Draft
from steelyard.nodes.calls.remoting import CALLS_TIMER, Outcome
from steelyard.nodes.pulse import PULSE_TIMER
from steelyard.nodes.seam import (
    KAFKA,
    Answer,
    Asked,
    Call,
    Closed,
    Due,
    Effect,
    Event,
    Flushed,
    HandlerError,
    Link,
    Measured,
    Opened,
    Received,
    Refused,
    SetTimer,
)
from steelyard.store.store import Store
from steelyard.types import LogLine, Random
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command
from steelyard.wire.remoting.properties import Properties

if TYPE_CHECKING:
    from steelyard.nodes.broker.kafka.service import KafkaService

CLIENTS_TIMER = "clients"
PARKED_TIMER = "parked"
LEDGER_TIMER = "ledger"
STOP_TIMER = "stop"

FREQUENT_REQUESTS = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    )
)
"""Requests of RocketMQ clients of which a broker gets several in a millisecond."""


class Stop(Call[None], frozen=True):
    """Stop cleanly; answered with None when the nameservers know and the store is closed.

    If closing the store fails, the answer is its StorageError.
    """


class KafkaReady(Call[None], frozen=True):
    """Answered with None when Kafka clients are served; only for a broker with a Kafka listener."""


class BrokerNode:
    """A broker; see the module docstring. `store` is open; the node closes it when it stops.

    `users`: to create if they never were. `accounts`: of RocketMQ's clients; None: they need none.
    `secrets`: chance that nobody can predict, by default `rng`. Raises ConfigError if the broker's
    own account is not among them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        rng: Random,
        *,
        users: Sequence[User] = (),
        accounts: Accounts | None = None,
        secrets: Random | None = None,
    ) -> None:
        self._config = config
        self._accounts = None if accounts is None else AccountBook(accounts, config.acl_access_key)
        self._first_users = users
        self._secrets = secrets
        self._store = store
        self._rng = rng
        self._parked_at: int | None = None
        self._ledger_at: int | None = None
        self._kafka: KafkaService | None = None
        self._stop_call: int | None = None
        self._stopped = False

    # -- the seam --------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        config, store = self._config, self._store
        if config.flush == "sync":
            # What a killed process wrote may not be on the disk yet, but will be read.
            store.take_dirty().sync()
        parts = self._parts = make_parts(
            config,
            store,
            self._rng,
            self._appended,
            now,
            users=self._first_users,
            accounts=self._accounts,
            secrets=self._secrets,
        )
        self._durability, self._ledger, self._pulse = parts.durability, parts.ledger, parts.pulse
        self._timers = DelayedMessages(parts)
        asked: list[object] = [parts.joining]
        if config.kafka is not None:
            # Imported only if needed: it is a third of all code that is loaded.
            from steelyard.nodes.broker.kafka.service import KafkaService

            self._kafka = KafkaService(parts, self._timers, self._delete_topic, now)
            asked.extend(self._kafka.asked)
        visible = None if self._kafka is None else self._kafka.producers
        timers = self._timers
        remoting = self._remoting = RemotingService(parts, timers, visible, asked, now)
        self._pulls = remoting.pulls
        effects: list[Effect] = []
        self._pulse.beat(now, effects)
        self._durability.start(now, effects)
        effects.append(SetTimer(CLIENTS_TIMER, now + config.client_scan_interval_ms))
        parts.retention.start(now, effects)
        parts.scrubbing.start(now, effects)
        compaction = self._compaction = LogCompaction(
            config.store,
            store,
            parts.durability,
            WithoutKafka(store, parts.durability) if visible is None else visible,
            parts.faults,
            parts.statistics,
        )
        compaction.start(now, effects)
        self._timers.start(now, effects)
        remoting.start(now, effects)
        self._ledger.started(now)
        parts.joining.look(now, effects)
        self._follow_up(now, effects)
        return effects

    def _delete_topic(self, topic: str, now: int, effects: list[Effect]) -> None:
        """Delete a topic of this broker for a Kafka client. Raises StorageError."""
        self._remoting.admin.delete(topic, now, effects)

    def _appended(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """Wake the requests that wait for something new in a queue."""
        self._pulls.wake(topic, queue_id, now, effects)
        if self._kafka is not None:
            self._kafka.appended(topic, queue_id, now, effects)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._stopped and not _reaches_stopped_broker(event):
            return effects  # the store is closed: a session that ends now must not write its end
        self._pulse.beat(now, effects)
        frequent = False
        try:
            if type(event) is Received:  # by far the most, and a match costs half a microsecond
                message = event.message
                if isinstance(message, Command):
                    if message.flag & RESPONSE_FLAG:
                        self._responded(event.link, message, now, effects)
                    else:
                        self._remoting.requested(event.link, message, now, effects)
                        frequent = message.code in FREQUENT_REQUESTS
                elif self._stop_call is None:
                    assert self._kafka is not None
                    self._kafka.received(event.link, message, now, effects)
            else:
                self._happened(event, now, effects)
            self._follow_up(now, effects, frequent=frequent)
        except Exception as error:
            self._broken_off(event, error, now, effects)
            raise HandlerError(effects) from error
        return effects

    def _broken_off(self, event: Event, error: Exception, now: int, effects: list[Effect]) -> None:
        """Clean up after a bug: send the asker an error, and set the timers that others need."""
        try:
            if isinstance(event, Received):
                if isinstance(event.message, Command):
                    self._remoting.failed(event.link, event.message, effects)
                elif self._kafka is not None:
                    self._kafka.failed(event.link, event.message, effects)
            self._follow_up(now, effects)
        except Exception as another:
            error.add_note(f"processing after the event failed, too: {another!r}")

    # -- responses ---------------------------------------------------------------------------------

    def _responded(self, link: Link, response: Command, now: int, effects: list[Effect]) -> None:
        if self._parts.calls.address_of(link) is None:
            self._remoting.answered(link, response, now, effects)
            return
        outcome = self._parts.calls.replied(link, response)
        if outcome is not None:
            self._ended([outcome], now, effects)

    def _ended(self, outcomes: list[Outcome[Purpose]], now: int, effects: list[Effect]) -> None:
        for outcome in outcomes:
            if isinstance(outcome.purpose, PendingCall):
                if self._stop_call is not None or self._parts.joining.ended(outcome, now, effects):
                    continue
                assert self._kafka is not None
                self._kafka.ended(outcome, now, effects)
            else:
                self._parts.registration.ended(outcome, now, effects)
                if isinstance(outcome.reply, Command):
                    self._parts.joining.registered(now, effects)
        if self._stop_call is not None and not self._stopped and self._parts.registration.idle:
            self._finish(now, effects)

    # -- other events ----------------------------------------------------------------------------

    def _happened(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case Opened(link, address, dialed, dialect, owner):
                if dialect == KAFKA:
                    assert self._kafka is not None
                    if dialed:
                        self._kafka.dialed(event, now, effects)
                    else:
                        self._kafka.opened(Peer(link, address, host_of(address), owner), now)
                elif dialed:
                    self._parts.calls.opened(event, effects)
                else:
                    self._remoting.opened(Peer(link, address, host_of(address)))
            case Closed(link, _):
                self._closed(event, now, effects)
            case Refused():
                if self._kafka is not None:
                    self._kafka.refused(event, now, effects)
                self._ended(self._parts.calls.refused(event), now, effects)
            case Due(key):
                self._due(key, now, effects)
            case Flushed(ticket):
                for log in self._durability.flushed(ticket, effects):
                    self._appended(log.topic, log.queue_id, now, effects)
                self._remoting.flushed()
                self._timers.flushed()
                if self._kafka is not None:
                    self._kafka.flushed(now, effects)
            case Measured(figures):
                self._parts.statistics.process = figures
            case Asked(call_id, call):
                if isinstance(call, Stop):
                    self._stop(call_id, now, effects)
                elif isinstance(call, AccountsChanged):
                    assert self._accounts is not None
                    effects.append(Answer(call_id, self._accounts.take(call)))
                elif isinstance(call, TokenKeysChanged):
                    self._parts.tokens.replace(call.keys)
                    effects.append(Answer(call_id, None))
                elif isinstance(call, AwaitRegistration):
                    self._parts.registration.await_registration(call_id, effects)
                elif isinstance(call, AwaitRefusal):
                    self._parts.joining.await_refusal(call_id, effects)
                else:
                    assert isinstance(call, KafkaReady)
                    assert self._kafka is not None
                    self._kafka.await_ready(call_id, effects)

    def _closed(self, event: Closed, now: int, effects: list[Effect]) -> None:
        address = self._parts.calls.address_of(event.link)
        if address is not None:
            self._ended(self._parts.calls.closed(event), now, effects)
            self._parts.registration.link_lost(address, now, effects)
            if self._kafka is not None:
                self._kafka.topology.link_lost(address, now)
            return
        self._parts.turns.closed(event.link)
        if self._kafka is not None and self._kafka.closed(event, now, effects):
            return
        self._remoting.closed(event.link, now, effects)

    def _due(self, key: object, now: int, effects: list[Effect]) -> None:
        if key == PARKED_TIMER:
            self._parked_at = None
            self._remoting.expire(now, effects)
        elif key == FLUSH_TIMER:
            self._flush_index(now, effects)
            self._durability.due(now, effects, dirty=self._store.dirty())
        elif key == TURNS_TIMER:
            self._parts.turns.due(now, effects)
        elif key == LEDGER_TIMER:
            self._ledger_at = None
        elif key == JOINING_TIMER:
            self._parts.joining.look(now, effects)
        elif key == REGISTER_TIMER:
            self._parts.registration.begin(now, effects)
        elif key == CALLS_TIMER:
            self._ended(self._parts.calls.expire(now, effects), now, effects)
        elif key == TIMERS_TIMER:
            self._timers.due(now, effects)
        elif key == KAFKA_TIMER:
            assert self._kafka is not None
            self._kafka.due(now, effects)
        elif key == CLIENTS_TIMER:
            effects.append(SetTimer(CLIENTS_TIMER, now + self._config.client_scan_interval_ms))
            self._remoting.clients.scan(now, effects)
            self._parts.statistics.sample(now)
        elif key == SCRUB_TIMER:
            self._parts.scrubbing.due(now, effects)
        elif key == COMPACTION_TIMER:
            self._compaction.due(now, effects)
        elif key == RETENTION_TIMER:
            self._parts.retention.due(now, effects)
        elif key == SPACE_TIMER:
            self._parts.retention.look_at_space(now, effects)
        elif key == PULSE_TIMER:
            pass  # it has beaten, as before every event
        elif key == STOP_TIMER:
            if self._stop_call is not None:
                self._finish(now, effects)
        else:
            self._remoting.due(key, now, effects)

    def _flush_index(self, now: int, effects: list[Effect]) -> None:
        """Write the index rows in memory, whose checksums would be lost with the process."""
        try:
            self._store.flush_index()
        except StorageError as error:
            self._parts.faults.tell(f"index rows wait in memory: {error}", now, effects)

    # -- after each event ------------------------------------------------------------------------

    def _follow_up(self, now: int, effects: list[Effect], *, frequent: bool = False) -> None:
        """Write the ledger if it is due, log what went wrong, and set timers that have moved.

        `frequent`: the event was one of `FREQUENT_REQUESTS`.
        """
        if self._stopped:
            return
        ledger = self._ledger
        if ledger.urgent or (ledger.due_at is not None and ledger.due_at <= now):
            self._write_ledger(now, effects)
        if self._kafka is not None:
            if frequent:
                self._kafka.follow_up_soon(now, effects)
            else:
                self._kafka.follow_up(now, effects)
        self._remoting.follow_up(now, effects)
        if self._store.findings.waiting:
            self._parts.damage.report(now, effects)
        self._durability.follow_up(effects)
        if ledger.due_at is not None and self._ledger_at is None:
            self._ledger_at = ledger.due_at
            effects.append(SetTimer(LEDGER_TIMER, ledger.due_at))
        next_parked = self._remoting.next_at(frequent=frequent)
        if next_parked is not None and (self._parked_at is None or next_parked < self._parked_at):
            self._parked_at = next_parked
            effects.append(SetTimer(PARKED_TIMER, next_parked))

    def _write_ledger(self, now: int, effects: list[Effect]) -> None:
        for body in self._ledger.take(now):
            draft = Draft(body, Properties(""), self._parts.writer.host, now)
            try:
                self._parts.writer.write(LEDGER_TOPIC, 0, draft, now, effects)
            except StorageError as error:
                effects.append(LogLine("WARNING", f"ledger records are lost: {error}"))

    # -- stopping --------------------------------------------------------------------------------

    def _stop(self, call_id: int, now: int, effects: list[Effect]) -> None:
        if self._stop_call is not None:
            effects.append(Answer(call_id, None))
            return
        self._stop_call = call_id
        self._remoting.stopping = True
        self._ledger.stopped(now)
        self._write_ledger(now, effects)
        self._parts.registration.stop(now, effects)
        if self._parts.registration.idle:
            self._finish(now, effects)
        else:
            effects.append(SetTimer(STOP_TIMER, now + STOP_TIMEOUT_MS))

    def _finish(self, now: int, effects: list[Effect]) -> None:
        assert self._stop_call is not None
        if self._stopped:
            return
        self._stopped = True
        result: StorageError | None = None
        try:
            if self._kafka is not None:
                self._kafka.stop(now, effects)
            self._store.flush()
            self._durability.flushed_all(effects)
            self._remoting.stop()
            self._timers.stop()
            self._store.close()
        except StorageError as error:
            result = error
        effects.append(Answer(self._stop_call, result))

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert every invariant of the node's state."""
        self._parts.registry.check()
        self._ledger.check()
        self._parts.calls.check()
        self._parts.turns.check()
        self._parts.registration.check()
        self._parts.joining.check()
        self._remoting.check()
        assert self._remoting.stopping == (self._stop_call is not None)
        if self._stopped:
            return
        self._durability.check()
        self._parts.topics.check()
        self._remoting.check_kept()
        self._timers.check()
        if self._kafka is not None:
            self._kafka.check()
        self._store.check()
        parked_at = self._remoting.next_at()
        assert parked_at is None or (self._parked_at is not None and self._parked_at <= parked_at)
        assert not self._ledger.urgent
        assert self._ledger.due_at is None or self._ledger_at is not None


def _reaches_stopped_broker(event: Event) -> bool:
    """Return whether a broker takes the event after its stop: it refuses requests."""
    if isinstance(event, Received) and isinstance(event.message, Command):
        return not event.message.flag & RESPONSE_FLAG
    return isinstance(event, Opened | Asked)
