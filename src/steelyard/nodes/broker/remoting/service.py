"""The parts of the RocketMQ listener, put together for the broker's node.

Each part is a module of this package with handlers for the request codes that its first line names. A handler that meets
a bad request raises ProtocolError or MessageError, one that the disk refuses StorageError; both become replies here, and
nothing was acknowledged. An unknown code gets 3; once the broker is `stopping`, requests get 14. The other listener is
`kafka/side.py`.
"""

from __future__ import annotations

from functools import partial

from steelyard.config import BrokerConfig
from steelyard.errors import CorruptError, DiskFullError, MessageError, ProtocolError, StorageError
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.broker.damage import DamageReports
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.filters import Filters
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.peers.registration import Registration
from steelyard.nodes.broker.remoting.admin import Admin
from steelyard.nodes.broker.remoting.clients import Clients
from steelyard.nodes.broker.remoting.consumer_groups import ConsumerGroups
from steelyard.nodes.broker.remoting.offsets import Committed, Offsets
from steelyard.nodes.broker.remoting.progress import Progress
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.remoting.queries import QUERY_TIMER, Queries
from steelyard.nodes.broker.remoting.relays import RELAYS_TIMER, Relays
from steelyard.nodes.broker.remoting.replies import REPLIES_TIMER, Replies
from steelyard.nodes.broker.remoting.resets import Resets
from steelyard.nodes.broker.remoting.retry import Retries
from steelyard.nodes.broker.remoting.schedule import SCHEDULE_TIMER, Schedule
from steelyard.nodes.broker.remoting.send import Sends
from steelyard.nodes.broker.remoting.transactions import TRANSACTIONS_TIMER, Transactions
from steelyard.nodes.broker.requests import Handler, Peer, reply
from steelyard.nodes.broker.retention import Retention
from steelyard.nodes.broker.scrubbing import Scrubbing
from steelyard.nodes.broker.skipped import ANSWER_BYTES_MAX, too_large
from steelyard.nodes.broker.statistics import Statistics
from steelyard.nodes.broker.topics import Topics
from steelyard.nodes.broker.turns import Steps, Turns
from steelyard.nodes.broker.writer import Writer
from steelyard.nodes.refusals import Refusals
from steelyard.nodes.seam import Effect, Link, Send
from steelyard.store.store import Store
from steelyard.types import Random
from steelyard.wire.remoting.codes import NAMESERVER_CODES, RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command


class RemotingService:
    """See the module's text. The node hands on what its clients do, and the timers of the parts."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: Topics,
        registry: Registry,
        committed: Committed,
        ledger: Ledger,
        registration: Registration,
        durability: Durability,
        turns: Turns,
        retention: Retention,
        rng: Random,
        now: int,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._registry = registry
        self._committed = committed
        self._registration = registration
        self._durability = durability
        self._rng = rng
        self._turns = turns
        self.stopping = False
        self.faults = Faults()
        self.damage = DamageReports(store.findings)
        self.scrubbing = Scrubbing(store, config.store, self.faults)
        self._refusals = Refusals()
        self._peers: dict[Link, Peer] = {}
        self._groups = ConsumerGroups(store.table("groups"), now)
        self.statistics = Statistics(now)
        offsets = Offsets(topics, committed, store, durability, ledger)
        self.pulls = Pulls(
            config,
            store,
            topics,
            self._groups,
            registry,
            offsets,
            ledger,
            durability,
            self.statistics,
            turns,
        )
        self.writer = Writer(store, durability, retention, self.statistics, config.address)
        self.writer.watchers.append(self.pulls.wake)
        self._passed = self.pulls.conversion.passed
        self._schedule = Schedule(store, store.table("schedule"), topics, self.writer)
        self._transactions = Transactions(
            config, store, topics, registry, self.writer, self._schedule, durability
        )
        self.clients = Clients(
            config, registry, self._groups, topics, registration, ledger, self.pulls
        )
        self._relays = Relays(config, registry, store)
        self._queries = Queries(store, durability, self.pulls.conversion)
        self.handlers = self._make_handlers(offsets)
        """By request code. The Kafka listener has some of its own."""

    def _make_handlers(self, offsets: Offsets) -> dict[int, Handler]:
        sends = Sends(
            self._config,
            self._topics,
            self._groups,
            self.writer,
            self._schedule,
            self._transactions,
            self._registration,
            self._durability,
            self._rng,
        )
        self._replies = Replies(self._config, self._registry, sends, self.writer)
        filters = Filters(self._config)
        retries = Retries(
            self._store,
            self._topics,
            self._groups,
            self.writer,
            self._schedule,
            self._registration,
            self._durability,
            self._rng,
        )
        admin = self.admin = Admin(
            self._config,
            self._store,
            self._topics,
            self._groups,
            self._committed,
            self.pulls,
            self._registration,
            self.statistics,
            self.damage,
            self.scrubbing,
        )
        progress = Progress(
            self._config,
            self._store,
            self._topics,
            self._committed,
            self._registry,
            self.statistics,
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
        clients = self.clients
        code = RequestCode
        return {
            code.SEND_MESSAGE: sends.send,
            code.SEND_MESSAGE_V2: sends.send_v2,
            code.SEND_BATCH_MESSAGE: sends.send_batch,
            code.END_TRANSACTION: self._transactions.end,
            code.SEND_REPLY_MESSAGE: self._replies.send,
            code.SEND_REPLY_MESSAGE_V2: self._replies.send_v2,
            code.PULL_MESSAGE: self.pulls.pull,
            code.LITE_PULL_MESSAGE: self.pulls.pull,
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

    def start(self, now: int, effects: list[Effect]) -> None:
        """Go on with what was delayed, or undecided, when the broker stopped."""
        self._schedule.start(now, effects)
        self._transactions.start(now, effects)

    # -- links -----------------------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        self._peers[peer.link] = peer

    def requested(self, link: Link, request: Command, now: int, effects: list[Effect]) -> None:
        """A client asks."""
        peer = self._peers.get(link)
        handler = self.handlers.get(request.code)
        answer: Command | Steps[Command | None] | None
        if peer is None:
            return  # its Closed was handled
        if handler is None:
            remark = f" request type {request.code} not supported"
            if request.code in NAMESERVER_CODES:
                remark += ": this is a broker's port, and nameservers answer it"
            answer = reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif self.stopping:
            answer = reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is stopping")
        else:
            try:
                answer = handler(request, peer, now, effects)
            except (MessageError, ProtocolError, UnicodeEncodeError, StorageError) as error:
                if not isinstance(error, MessageError | StorageError):
                    self._refusals.tell(peer.address, request.code, str(error), now, effects)
                answer = self._refusal(request, error)
        if answer is not None and not isinstance(answer, Command):
            then = partial(self._answer, link, request)
            steps, size = self._guarded(request, answer), len(request.body)
            if self._turns.run(link, steps, then, now, effects, size):
                return
            remark = "too many requests wait for their turn on this broker"
            answer = reply(request, ResponseCode.SYSTEM_BUSY, remark)
        self._answer(link, request, answer, now, effects)

    def _guarded(self, request: Command, steps: Steps[Command | None]) -> Steps[Command | None]:
        """The steps, and what is answered where they fail."""
        try:
            return (yield from steps)
        except (MessageError, ProtocolError, UnicodeEncodeError, StorageError) as error:
            return self._refusal(request, error)

    def _answer(
        self, link: Link, request: Command, answer: Command | None, now: int, effects: list[Effect]
    ) -> None:
        if answer is None or request.flag & ONEWAY_FLAG:
            return
        if len(answer.body) > ANSWER_BYTES_MAX:
            # RocketMQ's clients would close the connection, and all that goes on on it.
            answer = reply(request, ResponseCode.SYSTEM_ERROR, too_large(len(answer.body)))
        effects.append(Send(link, answer))

    def failed(self, link: Link, request: Command, effects: list[Effect]) -> None:
        """A bug ended the handling of a request (or of a response, which has no answer)."""
        if link in self._peers and not request.flag & (ONEWAY_FLAG | RESPONSE_FLAG):
            remark = "an internal error of the broker; its log has it"
            effects.append(Send(link, reply(request, ResponseCode.SYSTEM_ERROR, remark)))

    def _refusal(self, request: Command, error: Exception) -> Command:
        """Nothing was written, nothing is acknowledged. People hear of what the disk refused, but not with every request."""
        code = ResponseCode.SYSTEM_ERROR
        if isinstance(error, MessageError):
            code = ResponseCode.MESSAGE_ILLEGAL
        elif isinstance(error, StorageError):
            if not isinstance(error, CorruptError):  # `damage` says that to people
                self.faults.note(f"request {request.code} failed: {error}")
            if isinstance(error, DiskFullError):
                code = ResponseCode.SERVICE_NOT_AVAILABLE
        return reply(request, code, str(error))

    def follow_up(self, now: int, effects: list[Effect]) -> None:
        """After each event: say what went wrong."""
        if self.faults.noted:
            self.faults.report(now, effects)
        if self._passed.has_news:
            self._passed.report(now, effects)

    def answered(self, link: Link, response: Command, effects: list[Effect]) -> None:
        """A client answers what it was asked on behalf of another."""
        if not self._replies.answered(link, response, effects):
            self._relays.answered(link, response, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """A link is gone; maybe one of a client."""
        if self._peers.pop(link, None) is not None:
            self.pulls.parked.closed(link)
            self._relays.closed(link, effects)
            self._replies.closed(link, effects)
            self._queries.closed(link)
            self.clients.closed(link, now, effects)

    # -- timers ----------------------------------------------------------------------------------

    def due(self, key: object, now: int, effects: list[Effect]) -> None:
        """A timer of one of the parts came."""
        if isinstance(key, tuple):
            kind, level = key
            assert kind == SCHEDULE_TIMER
            self._schedule.due(level, now, effects)
        elif key == RELAYS_TIMER:
            self._relays.due(now, effects)
        elif key == REPLIES_TIMER:
            self._replies.due(now, effects)
        elif key == TRANSACTIONS_TIMER:
            self._transactions.due(now, effects)
        else:
            assert key == QUERY_TIMER, f"no timer of ours: {key}"
            self._queries.due(now, effects)

    def stop(self) -> None:
        """The store is about to be closed. Raises StorageError."""
        self._transactions.stop()

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of what is in memory."""
        self.clients.check()
        self._relays.check()
        self._replies.check()
        self._queries.check()
        self.pulls.parked.check()

    def check_kept(self) -> None:
        """Assert the invariants of what is on the disk too, while the store is open."""
        self._groups.check()
        self._schedule.check()
        self._transactions.check()
