"""The RocketMQ listener: its parts, combined for the broker's node.

Each part is a module of this package with handlers for the request codes that its first lines name.
If a handler raises ProtocolError or MessageError for a bad request, or StorageError because the
disk refuses, the error becomes a reply here, and nothing was acknowledged. An unknown code gets 3;
once the broker is `stopping`, requests get 14. The other listener is `kafka/service.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from steelyard.errors import CorruptError, DiskFullError, MessageError, ProtocolError, StorageError
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.nodes.access.guard import AccessGuard
from steelyard.nodes.access.needs import NEEDS, NeedLevel, check_complete
from steelyard.nodes.broker.conversion.to_rocketmq import Conversion, Visible
from steelyard.nodes.broker.filters import Filters
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.requests import PEER_CODES
from steelyard.nodes.broker.remoting.acl_users import AclUserHandlers
from steelyard.nodes.broker.remoting.admin import AdminHandlers
from steelyard.nodes.broker.remoting.clients import Clients
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.delays import Delays
from steelyard.nodes.broker.remoting.figures import FigureHandlers
from steelyard.nodes.broker.remoting.handovers import Handovers
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets, OffsetHandlers
from steelyard.nodes.broker.remoting.progress import ProgressHandlers
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.remoting.queries import QUERY_TIMER, Queries
from steelyard.nodes.broker.remoting.recall import Recalls
from steelyard.nodes.broker.remoting.relays import RELAYS_TIMER, Relays
from steelyard.nodes.broker.remoting.renewals import Renewals
from steelyard.nodes.broker.remoting.replies import REPLIES_TIMER, Replies
from steelyard.nodes.broker.remoting.resets import OffsetResets
from steelyard.nodes.broker.remoting.retry import Retries
from steelyard.nodes.broker.remoting.runtime_info import RuntimeInfo
from steelyard.nodes.broker.remoting.schedule import SCHEDULE_TIMER, Schedule
from steelyard.nodes.broker.remoting.send import Sends
from steelyard.nodes.broker.remoting.transactions import TRANSACTIONS_TIMER, Transactions
from steelyard.nodes.broker.requests import Handler, Peer, Refusal, RemotingRequest, served
from steelyard.nodes.broker.timers.timers import DelayedMessages
from steelyard.nodes.broker.topics import INTERNAL_TOPICS
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.refusals import Refusals
from steelyard.nodes.seam import Effect, Link, Send, earliest
from steelyard.wire.remoting.codes import NAMESERVER_CODES, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX, too_large

_FAULTS = (Refusal, MessageError, ProtocolError, UnicodeEncodeError, StorageError)
"""What a handler may raise."""

_Outcome = Command | Exception | None
"""What a handler returns, or one of the errors that it raised."""


class RemotingService:
    """The parts of the listener; the node passes on links, requests, responses and timers."""

    def __init__(
        self,
        parts: Parts,
        timers: DelayedMessages,
        visible: Visible | None,
        others: Iterable[object],
        now: int,
    ) -> None:
        """Create the parts of the listener.

        `visible`: which of Kafka's batches may be read. `others`: parts of the broker that also
        serve requests.
        """
        store = parts.store
        self._turns = parts.turns
        self._requests = parts.statistics.remoting_requests
        self._refused = parts.statistics.remoting_refused
        self.stopping = False
        self._faults = parts.faults
        self._refusals = Refusals()
        self._peers: dict[Link, Peer] = {}
        self._groups = SubscriptionGroups(store.table("groups"), now)
        self._committed = CommittedOffsets(store.table("offsets"))
        self._conversion = Conversion(parts.writer.host, visible)
        self._passed = self._conversion.passed
        delayed = parts.config.delayed_answers
        handovers = Handovers(parts.registry, enabled=delayed)
        self._renewals = Renewals(parts.registry, enabled=delayed)
        offsets = OffsetHandlers(parts, self._committed, handovers, self._conversion)
        self.pulls = Pulls(
            parts,
            self._groups,
            self._committed,
            offsets,
            handovers,
            self._renewals,
            self._conversion,
        )
        self._schedule = Schedule(parts)
        delays = Delays(self._schedule, timers)
        self._transactions = Transactions(parts, delays)
        locks = QueueLocks(parts.config.lock_expiry_ms, parts.pulse.clock)
        self.clients = Clients(parts, self._groups, self._committed, self.pulls, locks)
        self._relays = Relays(parts)
        self._queries = Queries(parts, self._conversion)
        sends = Sends(parts, self._groups, locks, delays, self._transactions)
        self._replies = Replies(parts, sends)
        self.admin = AdminHandlers(
            parts,
            self._groups,
            self._committed,
            self.pulls,
        )
        serving = (
            sends,
            Recalls(parts, timers),
            self._transactions,
            self._replies,
            self.pulls,
            Filters(parts.config),
            offsets,
            self.clients,
            Retries(parts, self._groups, delays),
            self._relays,
            OffsetResets(parts, self._committed, offsets),
            self._queries,
            self.admin,
            ProgressHandlers(parts, self._committed),
            RuntimeInfo(parts, self.pulls, self._passed),
            FigureHandlers(parts, self._committed, self.pulls, self._passed),
            AclUserHandlers(parts),
        )
        self._handlers: dict[int, Handler] = served((*serving, *others))
        needs = {**NEEDS, **dict.fromkeys(PEER_CODES, NeedLevel.ADMIN)}
        check_complete(self._handlers, needs)
        self._guard: AccessGuard | None = None
        if parts.accounts is not None:
            self._guard = AccessGuard(parts.accounts, needs, INTERNAL_TOPICS, parts.config.cluster)

    def start(self, now: int, effects: list[Effect]) -> None:
        """Continue what was delayed or undecided when the broker stopped."""
        self._schedule.start(now, effects)
        self._transactions.start(now, effects)

    # -- links -----------------------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        self._peers[peer.link] = peer

    def requested(self, link: Link, command: Command, now: int, effects: list[Effect]) -> None:
        """Handle a client's request."""
        peer = self._peers.get(link)
        if peer is None:
            return  # its Closed was handled
        counts, code = self._requests, command.code if command.code in self._handlers else -1
        counts[code] = counts.get(code, 0) + 1
        request = RemotingRequest(command, peer)
        if self._guard is not None and command.code in self._handlers:
            self._handle_guarded(self._guard, request, now, effects)
        else:
            self._handle(request, now, effects)

    def _handle_guarded(
        self, guard: AccessGuard, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> None:
        """Handle a request if its sender may."""
        command, peer = request.command, request.peer
        try:
            account = guard.admit(command, peer.link, peer.address, now, effects)
        except ProtocolError as error:
            self._answer(request, error, now, effects)
            return
        if account is None:
            code = int(ResponseCode.NO_PERMISSION)
            self._refused[code] = self._refused.get(code, 0) + 1
        else:
            self._handle(RemotingRequest(command, peer, account), now, effects)

    def _handle(self, request: RemotingRequest, now: int, effects: list[Effect]) -> None:
        command, link = request.command, request.peer.link
        handler = self._handlers.get(command.code)
        answer: _Outcome | Steps[Command | None]
        if handler is None:
            remark = f" request type {command.code} not supported"
            if command.code in NAMESERVER_CODES:
                remark += ": this is a broker's port; send it to a nameserver"
            answer = request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif self.stopping:
            answer = request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is stopping")
        else:
            try:
                answer = handler(request, now, effects)
            except _FAULTS as error:
                answer = error
        if answer is not None and not isinstance(answer, (Command, Exception)):
            then = partial(self._answer, request)
            steps, size = _guarded(answer), len(request.body)
            if self._turns.run(link, steps, then, now, effects, size):
                return
            remark = "too many requests wait for their turn on this broker"
            answer = request.reply(ResponseCode.SYSTEM_BUSY, remark)
        self._answer(request, answer, now, effects)

    def _answer(
        self, request: RemotingRequest, answer: _Outcome, now: int, effects: list[Effect]
    ) -> None:
        """Answer a request, with a refusal if the outcome is an error."""
        if isinstance(answer, Exception):
            answer = self._refusal(request, answer, now, effects)
        if answer is None or request.is_oneway:
            return
        if len(answer.body) > ANSWER_BYTES_MAX:
            # RocketMQ's clients would close the connection, with everything else under way on it.
            answer = request.reply(ResponseCode.SYSTEM_ERROR, too_large(len(answer.body)))
        effects.append(Send(request.peer.link, answer))

    def failed(self, link: Link, command: Command, effects: list[Effect]) -> None:
        """Answer a request whose handling a bug has ended; a response has no answer."""
        peer = self._peers.get(link)
        if peer is not None and not command.flag & (ONEWAY_FLAG | RESPONSE_FLAG):
            remark = "an internal error of the broker; see its log"
            effects.append(
                Send(link, RemotingRequest(command, peer).reply(ResponseCode.SYSTEM_ERROR, remark))
            )

    def _refusal(
        self, request: RemotingRequest, error: Exception, now: int, effects: list[Effect]
    ) -> Command:
        """Return the refusal for an error.

        A request that cannot be read and a disk fault are also logged, at a limited rate.
        """
        code = ResponseCode.SYSTEM_ERROR
        if isinstance(error, ProtocolError | UnicodeEncodeError):
            address, number = request.peer.address, request.command.code
            self._refusals.tell(address, number, str(error), now, effects)
        if isinstance(error, Refusal):
            code = error.code
        elif isinstance(error, MessageError):
            code = ResponseCode.MESSAGE_ILLEGAL
        elif isinstance(error, StorageError):
            if not isinstance(error, CorruptError):  # `damage` reports those
                self._faults.note(f"request {request.command.code} failed: {error}")
            if isinstance(error, DiskFullError):
                code = ResponseCode.SERVICE_NOT_AVAILABLE
        self._refused[code] = self._refused.get(code, 0) + 1
        return request.reply(code, str(error))

    def follow_up(self, now: int, effects: list[Effect]) -> None:
        """Log what went wrong; called after each event."""
        if self._faults.noted:
            self._faults.report(now, effects)
        if self._passed.has_news:
            self._passed.report(now, effects)

    def answered(self, link: Link, response: Command, now: int, effects: list[Effect]) -> None:
        """Handle a client's answer to a request of the broker."""
        if not self._replies.answered(link, response, effects):
            self._relays.answered(link, response, effects)
            renewed = self._renewals.answered(link, response)
            if renewed is not None:
                self.pulls.refiltered(link, renewed.group, renewed.refiltered, effects)
                for pull in renewed.waiting:
                    self._handle(pull, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Handle a closed link, if it was a client's."""
        if self._peers.pop(link, None) is not None:
            if self._guard is not None:
                self._guard.closed(link)
            self.pulls.closed(link)
            self._relays.closed(link, effects)
            self._replies.closed(link, effects)
            self._queries.closed(link)
            self.clients.closed(link, now, effects)

    # -- waiting requests ------------------------------------------------------------------------

    def next_at(self, *, frequent: bool = False) -> int | None:
        """Return when to call `expire` next, None if nothing waits.

        `frequent`: after one of `FREQUENT_REQUESTS`, which leave nothing waiting but pulls and what
        the guard refuses late.
        """
        late = None if self._guard is None else self._guard.next_at
        if frequent:
            return self.pulls.next_at if late is None else earliest(self.pulls.next_at, late)
        return earliest(self.pulls.next_at, self.clients.next_at, late)

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Answer the requests that have waited long enough."""
        self.pulls.expire(now, effects)
        self.clients.expire(now, effects)
        if self._guard is not None:
            self._guard.expire(now, effects)
        for pull in self._renewals.due(now):
            self._handle(pull, now, effects)

    # -- timers ----------------------------------------------------------------------------------

    def due(self, key: object, now: int, effects: list[Effect]) -> None:
        """Handle a timer of one of the parts."""
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

    def flushed(self) -> None:
        """Record what was waiting for a flush."""
        self._schedule.flushed()

    def stop(self) -> None:
        """Prepare for the closing of the store, which was flushed. Raises StorageError."""
        self._schedule.stop()
        self._transactions.stop()

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of the state in memory."""
        self.clients.check()
        self._relays.check()
        self._replies.check()
        self._queries.check()
        self.pulls.parked.check()
        self.pulls.handovers.check()
        self._renewals.check()
        self._conversion.check()

    def check_kept(self) -> None:
        """Assert the invariants of the state on the disk; the store must be open."""
        self._groups.check()
        self._committed.check()
        self._schedule.check()
        self._transactions.check()


def _guarded(steps: Steps[Command | None]) -> Steps[_Outcome]:
    """Take the steps; return the error if they fail."""
    try:
        return (yield from steps)
    except _FAULTS as error:
        return error
