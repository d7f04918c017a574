"""Records that every broker has (`nodes/broker/versioned`) go from broker to broker.

- A change is sent to all live brokers at once, and answered when all have answered or failed.
- Brokers compare their digests when they meet and every COMPARE_MS. Where they differ, the asked
  one answers with all of its records, and the asker sends those back that are newer here.

They do not go through the nameservers, whose settings anybody may list. A broker that has no
records and does not use them asks nobody. Order does not matter: of two versions of a record the
higher one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import PeerRequests, read_body
from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.broker.versioned import Versioned, VersionedStore
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

COMPARE_MS = 10_000
"""Interval of the comparison with all other brokers."""

Then = Callable[[int, list[Effect]], None]

R = TypeVar("R", bound=Versioned)


class RecordNews(msgspec.Struct, Generic[R], frozen=True):
    """Body of a request, and of its answer.

    `digest`: of all records of the sender; empty in a request that wants no comparison. `records`:
    some of them; in the answer all, if the digests differ.
    """

    digest: str = ""
    records: tuple[R, ...] = ()


class RecordKind(msgspec.Struct, Generic[R], frozen=True):
    """What is spread.

    `request`: the code of the request. `text`: what the records are called in the log. `news`: the
    body. `check`: raises ProtocolError for a record that no broker could have sent.
    """

    request: int
    text: str
    news: type[RecordNews[R]]
    check: Callable[[R], None]


class _Told(PendingCall, frozen=True):
    """One broker that is told of changes, or asked for its records."""

    request: int
    broker: str
    serial: int = 0


class Spreading(Generic[R]):
    """The records of this broker and of the others; see the module docstring.

    `is_used`: whether this broker needs them, even if it has none yet.
    """

    def __init__(
        self,
        kind: RecordKind[R],
        records: VersionedStore[R],
        cluster: Cluster,
        peer_requests: PeerRequests,
        faults: Faults,
        *,
        is_used: bool,
    ) -> None:
        self._kind = kind
        self._records = records
        self._cluster = cluster
        self._peer_requests = peer_requests
        self._faults = faults
        self._is_used = is_used
        self._seen_version = -1
        self._compare_at: int | None = None
        self._serial = 0
        self._changes: dict[int, tuple[int, Then]] = {}
        """Changes that others are told of: how many have not answered, and what follows."""

    # -- changes of this broker ------------------------------------------------------------------

    def publish(self, records: Sequence[R], then: Then, now: int, effects: list[Effect]) -> None:
        """Tell all live brokers of changed records; `then` is called when they know."""
        body = msgspec.json.encode(RecordNews(records=tuple(records)))
        self._serial += 1
        told = _Told(self._kind.request, "", self._serial)
        pending = sum(
            self._peer_requests.ask(
                broker.remoting, self._kind.request, told, now, effects, body=body
            )
            for broker in self._others()
        )
        if pending:
            self._changes[self._serial] = pending, then
        else:
            then(now, effects)

    def _others(self) -> list[Broker]:
        me = self._cluster.me.name
        return [broker for broker in self._cluster.live_brokers() if broker.name != me]

    # -- comparisons -----------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._compare_at

    def due(self, now: int, effects: list[Effect]) -> None:
        """Compare with all other brokers."""
        self._compare_at = now + COMPARE_MS if self._is_concerned else None
        body = msgspec.json.encode(RecordNews(self._records.digest or "none"))
        for broker in self._others():
            told = _Told(self._kind.request, broker.name)
            self._peer_requests.ask(
                broker.remoting, self._kind.request, told, now, effects, body=body
            )

    @property
    def _is_concerned(self) -> bool:
        return not self._cluster.is_alone and (self._is_used or bool(len(self._records)))

    def follow(self, now: int) -> None:
        """Compare soon if a broker came or changed; called after each event."""
        version = self._cluster.brokers_version
        if version != self._seen_version:
            self._seen_version = version
            if self._is_concerned:
                self._compare_at = now
        elif self._compare_at is None and self._is_concerned:
            self._compare_at = now + COMPARE_MS

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        told = outcome.purpose
        if not isinstance(told, _Told) or told.request != self._kind.request:
            return False
        if told.serial:
            pending, then = self._changes.pop(told.serial)
            if pending > 1:
                self._changes[told.serial] = pending - 1, then
            else:
                then(now, effects)
            return True
        reply = outcome.reply
        if not isinstance(reply, Command) or reply.code != ResponseCode.SUCCESS:
            return True
        try:
            news = self._read(reply.body)
        except ProtocolError as error:
            self._faults.tell(
                f"{self._kind.text} of {told.broker} cannot be read: {error}", now, effects
            )
            return True
        if news.digest and news.digest != (self._records.digest or "none"):
            self._merge(news.records, now, effects)
            self._send_newer(told.broker, news.records, now, effects)
        return True

    def _send_newer(self, name: str, theirs: Sequence[R], now: int, effects: list[Effect]) -> None:
        """Send a broker the records that it does not have, or in older versions."""
        known = {record.name: record for record in theirs}
        newer = tuple(each for each in self._records.all() if known.get(each.name) != each)
        broker = self._cluster.brokers.get(name)
        if newer and broker is not None:
            body = msgspec.json.encode(RecordNews(records=newer))
            told = _Told(self._kind.request, name)
            self._peer_requests.ask(
                broker.remoting, self._kind.request, told, now, effects, body=body
            )

    def _merge(self, records: Sequence[R], now: int, effects: list[Effect]) -> None:
        try:
            self._records.merge(records)
        except StorageError as error:
            self._faults.tell(
                f"{self._kind.text} of other brokers were not stored: {error}", now, effects
            )

    def requested(self, request: RemotingRequest) -> Command:
        """Answer the request of another broker. Raises ProtocolError or StorageError."""
        news = self._read(request.body)
        self._records.merge(news.records)
        mine = self._records.digest or "none"
        if not news.digest:
            return request.reply(body=msgspec.json.encode(RecordNews()))
        records = () if news.digest == mine else tuple(self._records.all())
        return request.reply(body=msgspec.json.encode(RecordNews(mine, records)))

    def _read(self, body: bytes) -> RecordNews[R]:
        """Read records that another broker sends. Raises ProtocolError."""
        news = read_body(body, self._kind.news)
        for record in news.records:
            self._kind.check(record)
        return news

    def check(self) -> None:
        for pending, _ in self._changes.values():
            assert pending > 0
