"""Slows down clients that send or read more than their quotas (KIP-13, KIP-219).

The answer to a request that went beyond the quota says for how long the client is to be silent
(`throttle_time_ms`); whatever it does, nothing is taken from its link for so long. What counts are
the records in Produce requests, and in Fetch and ShareFetch responses. A fetch gets no more than a
quota allows in WINDOW_MS, and is given what was read. (Apache Kafka gives it nothing, and the
records later.) Until that is paid for, fetches on other links of the same owner are answered with
nothing: whoever connects anew gains nothing by it, and begins no session. A ShareFetch gets one
batch, because it locks records.
Source: core/kafka/server/ClientQuotaManager.scala, KafkaApis.scala, FetchSession.scala
(getThrottledResponse).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from steelyard.nodes.broker.kafka.quotas.allowance import WINDOW_MS, Allowance
from steelyard.nodes.broker.kafka.requests.channel import Handler, Handlers, OpenRequest
from steelyard.nodes.broker.kafka.requests.completing import completed
from steelyard.nodes.broker.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QuotaOwner,
    QuotaStore,
)
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Link, Mute
from steelyard.wire.kafka.messages.data import (
    FETCH,
    FIRST_EPOCH,
    LAST_EPOCH,
    PRODUCE,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.share_data import (
    SHARE_FETCH,
    ShareFetchRequest,
    ShareFetchResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

OWNERS_MAX = 10_000
"""Most owners of quotas that are known; who was silent longest is forgotten first."""


class Throttles:
    """What clients with quotas have had. `principal_of`: who a client is: `User:alice`."""

    def __init__(self, quotas: QuotaStore, principal_of: Callable[[Peer], str]) -> None:
        self._quotas = quotas
        self._principal_of = principal_of
        self._allowances: dict[tuple[str, QuotaOwner], Allowance] = {}
        self._now = 0
        self._muted: dict[Link, int] = {}
        """Links to mute at the end of this event, and until when."""

    def begin(self, now: int) -> None:
        """Note the time of an event, in which requests may be answered."""
        self._now = now

    def follow_up(self, effects: list[Effect]) -> None:
        """Mute the links of the clients that exceeded their quotas in this event."""
        if self._muted:
            effects.extend(Mute(link, until) for link, until in self._muted.items())
            self._muted.clear()

    def throttled(self, handlers: Handlers) -> dict[int, Handler]:
        """Return handlers that slow clients down."""
        return {
            **handlers,
            PRODUCE.key: partial(self._produce, handlers[PRODUCE.key]),
            FETCH.key: partial(self._fetch, handlers[FETCH.key]),
            SHARE_FETCH.key: partial(self._fetch, handlers[SHARE_FETCH.key]),
        }

    def _limit(self, key: str, call: OpenRequest) -> tuple[float, QuotaOwner] | None:
        if not len(self._quotas):
            return None
        user = self._principal_of(call.peer).partition(":")[2]
        return self._quotas.find(key, user, call.request.client_id or "")

    def _produce(
        self, handler: Handler, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | Steps[ApiMessage] | None:
        limit = self._limit(PRODUCER_BYTE_RATE, call)
        if limit is None:
            return handler(call, now, effects)
        message = call.read(ProduceRequest)
        size = sum(
            len(part.records or b"")
            for topic in message.topic_data
            for part in topic.partition_data
        )
        if message.acks == 0:
            self._charge(PRODUCER_BYTE_RATE, call, limit, size)
            return handler(call, now, effects)

        def complete(answer: ApiMessage) -> ApiMessage:
            assert isinstance(answer, ProduceResponse)
            throttle_ms = self._charge(PRODUCER_BYTE_RATE, call, limit, size)
            return replace(answer, throttle_time_ms=throttle_ms)

        return completed(handler, call, message, complete, now, effects)

    def _fetch(
        self, handler: Handler, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | Steps[ApiMessage] | None:
        limit = self._limit(CONSUMER_BYTE_RATE, call)
        if limit is None:
            return handler(call, now, effects)
        message = call.message
        assert isinstance(message, FetchRequest | ShareFetchRequest)
        bytes_max = max(1, int(limit[0] * WINDOW_MS / 1000))
        if self._owes(limit[1]):
            if isinstance(message, ShareFetchRequest):
                bytes_max = 1
            elif message.session_epoch == FIRST_EPOCH:  # its answer has nothing to begin one with
                message = replace(message, session_epoch=LAST_EPOCH)

        def complete(answer: ApiMessage) -> ApiMessage:
            assert isinstance(answer, FetchResponse | ShareFetchResponse)
            size = sum(
                len(part.records or b"") for topic in answer.responses for part in topic.partitions
            )
            if size and isinstance(answer, FetchResponse) and self._owes(limit[1]):
                answer, size = replace(answer, responses=()), 0
            throttle_ms = self._charge(CONSUMER_BYTE_RATE, call, limit, size)
            return replace(answer, throttle_time_ms=throttle_ms)

        message = replace(message, max_bytes=min(message.max_bytes, bytes_max))
        return completed(handler, call, message, complete, now, effects)

    def _owes(self, owner: QuotaOwner) -> bool:
        """Return whether a consumer is to be silent, because of what was read before."""
        allowance = self._allowances.get((CONSUMER_BYTE_RATE, owner))
        return allowance is not None and allowance.owed_ms(self._now) > 0

    def _charge(
        self, key: str, call: OpenRequest, limit: tuple[float, QuotaOwner], size: int
    ) -> int:
        """Count bytes; return for how many ms the client is muted, usually 0."""
        bytes_per_s, owner = limit
        allowance = self._allowances.pop((key, owner), None) or Allowance()
        self._allowances[key, owner] = allowance  # behind the others
        if len(self._allowances) > OWNERS_MAX:
            del self._allowances[next(iter(self._allowances))]
        throttle_ms = allowance.take(size, bytes_per_s, self._now)
        if throttle_ms:
            self._muted[call.peer.link] = self._now + throttle_ms
        return throttle_ms

    def check(self) -> None:
        assert len(self._allowances) <= OWNERS_MAX
        assert not self._muted
