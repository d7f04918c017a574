"""One broker: takes its clients' requests, keeps the queues, and tells nameservers what it has.

Each concern is a module of this package with handlers for its codes; the node dispatches, and hands the
other events to whom they concern:

- `Opened`, accepted: a peer, known by its address. Dialed: a nameserver.
- `Received` request: the handler of its code; an unknown code gets 3. Response: of a nameserver, or of a client that
  a request was relayed to.
- `Closed`: a client leaves its groups, its held pulls are forgotten; a nameserver is told again soon.
- `Due`: registration, holds, clients, flush, retention, ledger, delayed messages, transactions, questions and replies
  to clients.
- `Flushed`: replies that waited for the disk go out.
- `Asked(Stop)`: the ledger is closed, the nameservers are told (2 s at most), the store is closed, then `Answer(None)`.
  From then on requests get 14.
- `Asked(KafkaReady)`: answered when the Kafka door has found the other brokers.

A handler that meets a bad request raises ProtocolError or MessageError, one that the disk refuses
StorageError; both become replies here, and nothing was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steelyard.config import BrokerConfig
from steelyard.errors import DiskFullError, MessageError, ProtocolError, StorageError
from steelyard.groups.ledger import LEDGER_TOPIC
from steelyard.groups.registry import Registry
from steelyard.nodes.broker.admin import Admin
from steelyard.nodes.broker.clients import Clients
from steelyard.nodes.broker.consumer_groups import ConsumerGroups
from steelyard.nodes.broker.door import Handler, Peer, host_of, reply
from steelyard.nodes.broker.durability import FLUSH_TIMER, Durability
from steelyard.nodes.broker.filters import Filters
from steelyard.nodes.broker.kafka import KAFKA_TIMER
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.offsets import Committed, Offsets
from steelyard.nodes.broker.progress import Progress
from steelyard.nodes.broker.pull import Pulls
from steelyard.nodes.broker.queries import QUERY_TIMER, Queries
from steelyard.nodes.broker.registration import (
    REGISTER_TIMER,
    STOP_TIMEOUT_MS,
    Errand,
    Purpose,
    Registration,
)
from steelyard.nodes.broker.relays import RELAYS_TIMER, Relays
from steelyard.nodes.broker.replies import REPLIES_TIMER, Replies
from steelyard.nodes.broker.resets import Resets
from steelyard.nodes.broker.retention import retentions
from steelyard.nodes.broker.retry import Retries
from steelyard.nodes.broker.schedule import SCHEDULE_TIMER, Schedule
from steelyard.nodes.broker.send import Sends
from steelyard.nodes.broker.statistics import Statistics
from steelyard.nodes.broker.topics import Topics
from steelyard.nodes.broker.transactions import TRANSACTIONS_TIMER, Transactions
from steelyard.nodes.broker.writer import Draft, Writer
from steelyard.nodes.calls import CALLS_TIMER, Calls, Outcome
from steelyard.nodes.seam import (
    KAFKA,
    Answer,
    Asked,
    Closed,
    Due,
    Effect,
    Event,
    Flushed,
    Link,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
    Tell,
)
from steelyard.store.store import Store
from steelyard.types import Random
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command

if TYPE_CHECKING:
    from steelyard.nodes.broker.kafka.side import KafkaSide

CLIENTS_TIMER = "clients"
HOLDS_TIMER = "holds"
LEDGER_TIMER = "ledger"
RETENTION_TIMER = "retention"
STOP_TIMER = "stop"

RETENTION_INTERVAL_MS = 600_000
"""RocketMQ looks for old files every 10 s and deletes at 4 o'clock."""

FAULT_INTERVAL_MS = 1_000
"""Of faults of the disk one is reported in so long."""


class Stop(msgspec.Struct, frozen=True):
    """Stop cleanly; answered with None when the nameservers know and the store is closed."""


class KafkaReady(msgspec.Struct, frozen=True):
    """Answered with None when Kafka clients are served. Only for a broker with a Kafka door."""


class BrokerNode:
    """See the module's text. `store` is open; the node closes it when it is stopped."""

    def __init__(self, config: BrokerConfig, store: Store, rng: Random) -> None:
        self._config = config
        self._store = store
        self._rng = rng
        self._peers: dict[Link, Peer] = {}
        self._calls: Calls[Purpose] = Calls()
        self._durability = Durability(sync=config.flush == "sync")
        self._registry = Registry()
        self._ledger = Ledger(config, self._registry)
        self._committed = Committed(store.table("offsets"))
        self._handlers: dict[int, Handler] = {}
        self._holds_at: int | None = None
        self._ledger_at: int | None = None
        self._tell_fault_at = 0
        self._kafka: KafkaSide | None = None
        self._stop_call: int | None = None
        self._stopped = False

    # -- the seam --------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        config, store = self._config, self._store
        if config.flush == "sync":
            # What a killed process wrote may not be on the disk, but will be read.
            store.take_dirty().sync()
        self._topics = Topics(config, store.table("topics"), now)
        self._groups = ConsumerGroups(store.table("groups"), now)
        self._statistics = Statistics(now)
        offsets = Offsets(self._topics, self._committed, store, self._durability, self._ledger)
        self._pulls = Pulls(
            config,
            store,
            self._topics,
            self._groups,
            self._registry,
            offsets,
            self._ledger,
            self._durability,
            self._statistics,
        )
        self._writer = Writer(
            store, self._pulls, self._durability, self._statistics, config.address
        )
        self._registration = Registration(config, self._topics, self._calls)
        self._schedule = Schedule(store, store.table("schedule"), self._topics, self._writer)
        self._transactions = Transactions(
            config,
            store,
            self._topics,
            self._registry,
            self._writer,
            self._schedule,
            self._durability,
        )
        self._clients = Clients(
            config,
            self._registry,
            self._groups,
            self._topics,
            self._registration,
            self._ledger,
            self._pulls,
        )
        self._relays = Relays(config, self._registry, store)
        self._queries = Queries(store, self._durability, self._pulls.crossing)
        self._set_handlers(offsets)
        if config.kafka is not None:
            from steelyard.nodes.broker.kafka.side import KafkaSide  # a third of all that is loaded

            self._kafka = KafkaSide(
                config,
                store,
                self._topics,
                self._writer,
                self._durability,
                self._ledger,
                self._calls,
                self._registration,
                self._admin.delete,
                self._rng,
                now,
            )
            self._handlers |= self._kafka.remoting_handlers
            self._pulls.crossing.visible = self._kafka.producers
        effects: list[Effect] = self._durability.start(now)
        effects.append(SetTimer(CLIENTS_TIMER, now + config.client_scan_interval_ms))
        effects.append(SetTimer(RETENTION_TIMER, now + RETENTION_INTERVAL_MS))
        self._schedule.start(now, effects)
        self._transactions.start(now, effects)
        self._ledger.started(now)
        self._registration.begin(now, effects)
        self._follow_up(now, effects)
        return effects

    def _set_handlers(self, offsets: Offsets) -> None:
        sends = Sends(
            self._config,
            self._topics,
            self._groups,
            self._writer,
            self._schedule,
            self._transactions,
            self._registration,
            self._durability,
            self._rng,
        )
        self._replies = Replies(self._config, self._registry, sends, self._writer)
        filters = Filters(self._config)
        retries = Retries(
            self._store,
            self._topics,
            self._groups,
            self._writer,
            self._schedule,
            self._registration,
            self._durability,
            self._rng,
        )
        admin = self._admin = Admin(
            self._config,
            self._store,
            self._topics,
            self._groups,
            self._committed,
            self._pulls,
            self._registration,
            self._statistics,
        )
        progress = Progress(
            self._config,
            self._store,
            self._topics,
            self._committed,
            self._registry,
            self._statistics,
        )
        resets = Resets(
            self._config,
            self._store,
            self._topics,
            self._committed,
            offsets,
            self._registry,
            self._durability,
        )
        clients = self._clients
        code = RequestCode
        self._handlers = {
            code.SEND_MESSAGE: sends.send,
            code.SEND_MESSAGE_V2: sends.send_v2,
            code.SEND_BATCH_MESSAGE: sends.send_batch,
            code.END_TRANSACTION: self._transactions.end,
            code.SEND_REPLY_MESSAGE: self._replies.send,
            code.SEND_REPLY_MESSAGE_V2: self._replies.send_v2,
            code.PULL_MESSAGE: self._pulls.pull,
            code.LITE_PULL_MESSAGE: self._pulls.pull,
            code.CHECK_CLIENT_CONFIG: filters.check_client,
            code.QUERY_CONSUMER_OFFSET: offsets.query,
            code.UPDATE_CONSUMER_OFFSET: offsets.commit,
            code.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
            code.GET_MAX_OFFSET: offsets.max_offset,
            code.GET_MIN_OFFSET: offsets.min_offset,
            code.GET_EARLIEST_MSG_STORETIME: offsets.earliest,
            code.VIEW_MESSAGE_BY_ID: offsets.view,
            code.HEART_BEAT: clients.heartbeat,
            code.UNREGISTER_CLIENT: clients.unregister,
            code.CONSUMER_SEND_MSG_BACK: retries.send_back,
            code.GET_CONSUMER_LIST_BY_GROUP: clients.members,
            code.LOCK_BATCH_MQ: clients.lock,
            code.UNLOCK_BATCH_MQ: clients.unlock,
            code.GET_CONSUMER_CONNECTION_LIST: clients.consumer_connections,
            code.GET_PRODUCER_CONNECTION_LIST: clients.producer_connections,
            code.GET_CONSUMER_RUNNING_INFO: self._relays.running_info,
            code.CONSUME_MESSAGE_DIRECTLY: self._relays.consume_directly,
            code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._relays.consumer_status,
            code.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
            code.QUERY_MESSAGE: self._queries.query,
            code.UPDATE_AND_CREATE_TOPIC: admin.update_topic,
            code.UPDATE_AND_CREATE_TOPIC_LIST: admin.update_topics,
            code.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
            code.GET_ALL_TOPIC_CONFIG: admin.all_topics,
            code.GET_TOPIC_CONFIG: admin.one_topic,
            code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: admin.system_topics,
            code.GET_TOPIC_STATS_INFO: admin.topic_stats,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin.update_group,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: admin.update_groups,
            code.DELETE_SUBSCRIPTIONGROUP: admin.delete_group,
            code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.all_groups,
            code.GET_CONSUME_STATS: progress.consume_stats,
            code.GET_BROKER_CONSUME_STATS: progress.all_stats,
            code.QUERY_TOPIC_CONSUME_BY_WHO: progress.groups_of_topic,
            code.QUERY_CONSUME_TIME_SPAN: progress.time_spans,
            code.VIEW_BROKER_STATS_DATA: progress.stats_data,
            code.GET_BROKER_CONFIG: admin.broker_config,
            code.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        }

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if type(event) is Received:  # by far the most, and a match costs half a microsecond
            message = event.message
            if isinstance(message, Command):
                if message.flag & RESPONSE_FLAG:
                    self._responded(event.link, message, now, effects)
                else:
                    self._requested(event.link, message, now, effects)
            elif self._stop_call is None:
                assert self._kafka is not None
                self._kafka.received(event.link, message, now, effects)
        else:
            self._happened(event, now, effects)
        self._follow_up(now, effects)
        return effects

    # -- requests --------------------------------------------------------------------------------

    def _requested(self, link: Link, request: Command, now: int, effects: list[Effect]) -> None:
        peer = self._peers.get(link)
        handler = self._handlers.get(request.code)
        answer: Command | None
        if peer is None:
            return  # its Closed was handled
        if handler is None:
            remark = f" request type {request.code} not supported"
            answer = reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif self._stop_call is not None:
            answer = reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is stopping")
        else:
            try:
                answer = handler(request, peer, now, effects)
            except MessageError as error:
                answer = reply(request, ResponseCode.MESSAGE_ILLEGAL, str(error))
            except (ProtocolError, UnicodeEncodeError) as error:
                answer = reply(request, ResponseCode.SYSTEM_ERROR, str(error))
            except StorageError as error:
                answer = self._storage_fault(request, error, now, effects)
        if answer is not None and not request.flag & ONEWAY_FLAG:
            effects.append(Send(link, answer))

    def _storage_fault(
        self, request: Command, error: StorageError, now: int, effects: list[Effect]
    ) -> Command:
        """Nothing was written, nothing is acknowledged. People hear of it, but not with every request."""
        if now >= self._tell_fault_at:
            self._tell_fault_at = now + FAULT_INTERVAL_MS
            effects.append(Tell("ERROR", f"request {request.code} failed: {error}"))
        full = isinstance(error, DiskFullError)
        code = ResponseCode.SERVICE_NOT_AVAILABLE if full else ResponseCode.SYSTEM_ERROR
        return reply(request, code, str(error))

    def _responded(self, link: Link, response: Command, now: int, effects: list[Effect]) -> None:
        if self._calls.address_of(link) is None:
            if not self._replies.answered(link, response, effects):
                self._relays.answered(link, response, effects)
            return
        outcome = self._calls.replied(response)
        if outcome is not None:
            self._ended([outcome], now, effects)

    def _ended(self, outcomes: list[Outcome[Purpose]], now: int, effects: list[Effect]) -> None:
        for outcome in outcomes:
            if isinstance(outcome.purpose, Errand):
                assert self._kafka is not None
                if self._stop_call is None:
                    self._kafka.ended(outcome, now, effects)
            else:
                self._registration.ended(outcome, now, effects)
        if self._stop_call is not None and not self._stopped and self._registration.idle:
            self._finish(effects)

    # -- other events ----------------------------------------------------------------------------

    def _happened(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case Opened(link, address, dialed, dialect):
                if dialect == KAFKA:
                    assert self._kafka is not None
                    if dialed:
                        self._kafka.dialed(event, now, effects)
                    else:
                        self._kafka.opened(Peer(link, address, host_of(address)))
                elif dialed:
                    effects += self._calls.opened(event)
                else:
                    self._peers[link] = Peer(link, address, host_of(address))
            case Closed(link, _):
                self._closed(event, now, effects)
            case Refused():
                if self._kafka is not None:
                    self._kafka.refused(event, now, effects)
                self._ended(self._calls.refused(event), now, effects)
            case Due(key):
                if not self._stopped:
                    self._due(key, now, effects)
            case Flushed(ticket):
                for log in self._durability.flushed(ticket, effects):
                    self._writer.appended(log.topic, log.queue_id, now, effects)
            case Asked(call_id, call):
                if isinstance(call, Stop):
                    self._stop(call_id, now, effects)
                else:
                    assert isinstance(call, KafkaReady)
                    assert self._kafka is not None
                    self._kafka.await_ready(call_id, effects)

    def _closed(self, event: Closed, now: int, effects: list[Effect]) -> None:
        address = self._calls.address_of(event.link)
        if address is not None:
            self._ended(self._calls.closed(event), now, effects)
            self._registration.link_lost(address, now, effects)
            if self._kafka is not None:
                self._kafka.topology.link_lost(address, now)
            return
        if self._kafka is not None and self._kafka.closed(event, now, effects):
            return
        if self._peers.pop(event.link, None) is not None:
            self._pulls.holds.closed(event.link)
            self._relays.closed(event.link, effects)
            self._replies.closed(event.link, effects)
            self._queries.closed(event.link)
            self._clients.closed(event.link, now, effects)

    def _due(self, key: object, now: int, effects: list[Effect]) -> None:
        if isinstance(key, tuple):
            kind, level = key
            assert kind == SCHEDULE_TIMER
            self._schedule.due(level, now, effects)
        elif key == HOLDS_TIMER:
            self._holds_at = None
            self._pulls.expire(now, effects)
        elif key == FLUSH_TIMER:
            self._durability.due(now, effects, dirty=self._store.dirty())
        elif key == LEDGER_TIMER:
            self._ledger_at = None
        elif key == REGISTER_TIMER:
            self._registration.begin(now, effects)
        elif key == CALLS_TIMER:
            outcomes, timers = self._calls.expire(now)
            effects += timers
            self._ended(outcomes, now, effects)
        elif key == RELAYS_TIMER:
            self._relays.due(now, effects)
        elif key == REPLIES_TIMER:
            self._replies.due(now, effects)
        elif key == TRANSACTIONS_TIMER:
            self._transactions.due(now, effects)
        elif key == QUERY_TIMER:
            self._queries.due(now, effects)
        elif key == KAFKA_TIMER:
            assert self._kafka is not None
            self._kafka.due(now, effects)
        elif key == CLIENTS_TIMER:
            effects.append(SetTimer(CLIENTS_TIMER, now + self._config.client_scan_interval_ms))
            self._clients.scan(now, effects)
            self._statistics.sample(now)
        elif key == RETENTION_TIMER:
            effects.append(SetTimer(RETENTION_TIMER, now + RETENTION_INTERVAL_MS))
            self._drop_old(now, effects)
        else:
            assert key == STOP_TIMER, f"no timer of ours: {key}"
            if self._stop_call is not None:
                self._finish(effects)

    def _drop_old(self, now: int, effects: list[Effect]) -> None:
        try:
            usual_ms = self._config.store.retention_ms
            gone = self._store.drop_old(now, retentions(self._topics, usual_ms))
        except StorageError as error:
            effects.append(Tell("ERROR", f"old messages could not be deleted: {error}"))
            return
        if gone:
            effects.append(Tell("INFO", f"{gone} messages past their retention were deleted"))

    # -- after each event ------------------------------------------------------------------------

    def _follow_up(self, now: int, effects: list[Effect]) -> None:
        """Write the ledger where it is time, and set the timers that moved."""
        if self._stopped:
            return
        ledger = self._ledger
        if ledger.urgent or (ledger.due_at is not None and ledger.due_at <= now):
            self._write_ledger(now, effects)
        if self._kafka is not None:
            self._kafka.follow_up(now, effects)
        self._durability.follow_up(effects)
        if ledger.due_at is not None and self._ledger_at is None:
            self._ledger_at = ledger.due_at
            effects.append(SetTimer(LEDGER_TIMER, ledger.due_at))
        next_hold = self._pulls.holds.next_at
        if next_hold is not None and (self._holds_at is None or next_hold < self._holds_at):
            self._holds_at = next_hold
            effects.append(SetTimer(HOLDS_TIMER, next_hold))

    def _write_ledger(self, now: int, effects: list[Effect]) -> None:
        for body in self._ledger.take():
            draft = Draft(body, "", self._writer.host, now)
            try:
                self._writer.write(LEDGER_TOPIC, 0, draft, now, effects)
            except StorageError as error:
                effects.append(Tell("WARNING", f"ledger records are lost: {error}"))

    # -- stopping --------------------------------------------------------------------------------

    def _stop(self, call_id: int, now: int, effects: list[Effect]) -> None:
        if self._stop_call is not None:
            effects.append(Answer(call_id, None))
            return
        self._stop_call = call_id
        self._ledger.stopped(now)
        self._write_ledger(now, effects)
        self._registration.stop(now, effects)
        if self._registration.idle:
            self._finish(effects)
        else:
            effects.append(SetTimer(STOP_TIMER, now + STOP_TIMEOUT_MS))

    def _finish(self, effects: list[Effect]) -> None:
        assert self._stop_call is not None
        if self._stopped:
            return
        self._stopped = True
        result: StorageError | None = None
        try:
            self._store.close()
            self._durability.closed(effects)
        except StorageError as error:
            result = error
        effects.append(Answer(self._stop_call, result))

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert every invariant of the node's state."""
        self._registry.check()
        self._ledger.check()
        self._durability.check()
        self._calls.check()
        self._registration.check()
        self._clients.check()
        self._relays.check()
        self._replies.check()
        self._queries.check()
        self._pulls.holds.check()
        if self._stopped:
            return
        self._committed.check()
        self._topics.check()
        self._groups.check()
        self._schedule.check()
        self._transactions.check()
        if self._kafka is not None:
            self._kafka.check()
        self._store.check()
        holds_at = self._pulls.holds.next_at
        assert holds_at is None or (self._holds_at is not None and self._holds_at <= holds_at)
        assert not self._ledger.urgent
        assert self._ledger.due_at is None or self._ledger_at is not None
