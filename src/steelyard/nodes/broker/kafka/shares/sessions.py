"""Share sessions: a member names the partitions that it fetches only once (KIP-932).

A session begins with a fetch of epoch 0, and each later request of the member carries the next
epoch, acknowledgements as well; epoch -1 ends it. There is one for each member, on the connection
on which it began; when that closes, the member has lost what it had acquired.
Source: server/share/session/ShareSessionCache.java, ShareSession.java; core/kafka/server/share/
SharePartitionManager.newContext, acknowledgeSessionUpdate.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.nodes.broker.kafka.data.fetch_sessions import next_epoch
from steelyard.nodes.seam import Link
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import FIRST_EPOCH, LAST_EPOCH

PARTITIONS_MAX = 1_000_000
"""Most partitions in all sessions together."""

Place = tuple[bytes, int]
"""The id of a topic, and a partition."""

SessionKey = tuple[str, str]
"""Group id and member id."""


class ShareSession(msgspec.Struct):
    """What one member fetches, in order. `epoch`: of its next request."""

    key: SessionKey
    link: Link
    parts: dict[Place, None]
    epoch: int = 1


class ShareSessions:
    """The sessions of all members. `limit`: group.share.max.share.sessions."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_link: dict[Link, set[SessionKey]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, key: SessionKey, link: Link, parts: Iterable[Place]) -> ShareSession | None:
        """Begin a session, in place of one that the member has; None if there is no room."""
        self.end(key)
        session = ShareSession(key, link, dict.fromkeys(parts))
        if (
            len(self._sessions) >= self._limit
            or self._partitions + len(session.parts) > PARTITIONS_MAX
        ):
            return None
        self._sessions[key] = session
        self._by_link.setdefault(link, set()).add(key)
        self._partitions += len(session.parts)
        return session

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def fault(self, key: SessionKey, epoch: int) -> ErrorCode:
        """Return why a request other than a first one cannot continue a session; NONE if it can."""
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (LAST_EPOCH, session.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return ErrorCode.NONE

    def advance(self, key: SessionKey, epoch: int) -> ErrorCode:
        """Take a ShareAcknowledge into the session; return why that cannot be, or NONE."""
        if epoch == FIRST_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        fault = self.fault(key, epoch)
        if fault is ErrorCode.NONE and epoch != LAST_EPOCH:
            session = self._sessions[key]
            session.epoch = next_epoch(session.epoch)
        return fault

    def update(
        self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> None:
        """Apply the next fetch of a session. What there is no room for is not added."""
        before = len(session.parts)
        room = PARTITIONS_MAX - self._partitions
        for place in added:
            if room > 0 and place not in session.parts:
                session.parts[place] = None
                room -= 1
        for place in forgotten:
            session.parts.pop(place, None)
        self._partitions += len(session.parts) - before
        session.epoch = next_epoch(session.epoch)

    def end(self, key: SessionKey) -> ShareSession | None:
        """End a member's session, and return it."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._partitions -= len(session.parts)
            of_link = self._by_link[session.link]
            of_link.discard(key)
            if not of_link:
                del self._by_link[session.link]
        return session

    def closed(self, link: Link) -> list[ShareSession]:
        """End the sessions of a closed link, and return them."""
        ended = [self.end(key) for key in sorted(self._by_link.get(link, ()))]
        return [session for session in ended if session is not None]

    def check(self) -> None:
        assert len(self._sessions) <= self._limit
        assert self._partitions == sum(len(each.parts) for each in self._sessions.values())
        by_link = {(link, key) for link, keys in self._by_link.items() for key in keys}
        assert by_link == {(each.link, key) for key, each in self._sessions.items()}
        assert all(self._by_link.values())
