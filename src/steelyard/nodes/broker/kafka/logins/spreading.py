"""9008, a request of our own between brokers: every broker has all users.

- A change is sent to all live brokers at once, and answered when all have answered or failed.
- Brokers compare their digests when they meet and every COMPARE_MS. Where they differ, the asked
  one answers with all of its users, and the asker sends those back that are newer here.

Users do not go through the nameservers, whose settings anybody may list. A broker that has no users
and no logins asks nobody. Order does not matter: of two versions of a user the higher one counts
(`nodes/broker/users`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import USERS, PeerRequests, read_body
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.users import User, UserStore, check_user
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

COMPARE_MS = 10_000
"""Interval of the comparison with all other brokers."""

Then = Callable[[int, list[Effect]], None]


class UserNews(msgspec.Struct, frozen=True):
    """Body of 9008, and of its answer.

    `digest`: of all users of the sender; empty in a request that wants no comparison. `users`: some
    of them; in the answer all, if the digests differ.
    """

    digest: str = ""
    users: tuple[User, ...] = ()


class _Told(PendingCall, frozen=True):
    """One broker that is told of changes, or asked for its users."""

    broker: str
    serial: int = 0


class UserSpreading:
    """The users of this broker and of the others; see the module docstring.

    `has_logins`: whether clients log in at this broker.
    """

    def __init__(
        self,
        users: UserStore,
        cluster: Cluster,
        peer_requests: PeerRequests,
        faults: Faults,
        *,
        has_logins: bool,
    ) -> None:
        self._users = users
        self._cluster = cluster
        self._peer_requests = peer_requests
        self._faults = faults
        self._has_logins = has_logins
        self._seen_version = -1
        self._compare_at: int | None = None
        self._serial = 0
        self._changes: dict[int, tuple[int, Then]] = {}
        """Changes that others are told of: how many have not answered, and what follows."""

    # -- changes of this broker ------------------------------------------------------------------

    def publish(self, users: Sequence[User], then: Then, now: int, effects: list[Effect]) -> None:
        """Tell all live brokers of changed users; `then` is called when they know."""
        body = msgspec.json.encode(UserNews(users=tuple(users)))
        self._serial += 1
        told = _Told("", self._serial)
        pending = sum(
            self._peer_requests.ask(broker.remoting, USERS, told, now, effects, body=body)
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
        body = msgspec.json.encode(UserNews(self._users.digest or "none"))
        for broker in self._others():
            told = _Told(broker.name)
            self._peer_requests.ask(broker.remoting, USERS, told, now, effects, body=body)

    @property
    def _is_concerned(self) -> bool:
        return not self._cluster.is_alone and (self._has_logins or bool(len(self._users)))

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
        if not isinstance(told, _Told):
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
            news = _read(reply.body)
        except ProtocolError as error:
            self._faults.tell(f"the users of {told.broker} cannot be read: {error}", now, effects)
            return True
        if news.digest and news.digest != (self._users.digest or "none"):
            self._merge(news.users, now, effects)
            self._send_newer(told.broker, news.users, now, effects)
        return True

    def _send_newer(
        self, name: str, theirs: Sequence[User], now: int, effects: list[Effect]
    ) -> None:
        """Send a broker the users that it does not have, or in older versions."""
        known = {user.name: user for user in theirs}
        newer = tuple(user for user in self._users.all() if known.get(user.name) != user)
        broker = self._cluster.brokers.get(name)
        if newer and broker is not None:
            body = msgspec.json.encode(UserNews(users=newer))
            told = _Told(name)
            self._peer_requests.ask(broker.remoting, USERS, told, now, effects, body=body)

    def _merge(self, users: Sequence[User], now: int, effects: list[Effect]) -> None:
        try:
            self._users.merge(users)
        except StorageError as error:
            self._faults.tell(f"users of other brokers were not stored: {error}", now, effects)

    @serves(USERS)
    def requested(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9008, from another broker. Raises ProtocolError or StorageError."""
        news = _read(request.body)
        self._users.merge(news.users)
        mine = self._users.digest or "none"
        if not news.digest:
            return request.reply(body=msgspec.json.encode(UserNews()))
        users = () if news.digest == mine else tuple(self._users.all())
        return request.reply(body=msgspec.json.encode(UserNews(mine, users)))

    def check(self) -> None:
        for pending, _ in self._changes.values():
            assert pending > 0


def _read(body: bytes) -> UserNews:
    """Read users that another broker sends. Raises ProtocolError."""
    news = read_body(body, UserNews)
    for user in news.users:
        check_user(user)
    return news
