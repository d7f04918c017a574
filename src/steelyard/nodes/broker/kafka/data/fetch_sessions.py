"""Fetch sessions: a client names the partitions that it fetches only once (KIP-227).

The answers of a session have only what has changed. A full fetch (epoch 0) creates a session if
there is room; each later fetch carries the next epoch, and names only partitions that are new,
changed or to be forgotten. Epoch -1 ends a session.

To make room, the session that was not used for the longest time is removed if that is more than 2
minutes, otherwise the smallest session that is older than 2 minutes, unless it is larger than the
new one. A client without a session names all partitions each time.
Source: server/FetchSession.java, FetchSessionCacheShard.java,
clients/common/requests/FetchMetadata.java.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.nodes.broker.kafka.data.partitions import MetadataVersion, Partition
from steelyard.types import Random

NO_SESSION = 0
EPOCH_MAX = 0x7FFFFFFF

EVICTION_MS = 120_000
PARTITIONS_MAX = 1_000_000
"""Most partitions in all sessions together; a client with more gets no session."""

Key = tuple[str, bytes, int]
"""Topic name and topic id as the client sent them, and partition."""


class CachedPartition(msgspec.Struct, gc=False):
    """A partition that a client fetches.

    `high`, `low`: the high watermark and the log start offset it was last sent, -1 for none.
    `place`: the partition as found under `version`. `end`: the address up to which its log could be
    read when it was last read, -1 if it had none.
    """

    key: Key
    offset: int
    bytes_max: int
    epoch: int
    high: int = -1
    low: int = -1
    version: MetadataVersion = (-1, -1, -1)
    place: Partition | None = None
    end: int = -1


class Session(msgspec.Struct):
    """The partitions that one client fetches. `epoch`: of its next fetch."""

    session_id: int
    uses_ids: bool
    created_at: int
    used_at: int
    parts: dict[Key, CachedPartition]
    epoch: int = 1


class Sessions:
    """The sessions of all clients; see the module docstring.

    `slots`: max.incremental.fetch.session.cache.slots.
    """

    def __init__(self, slots: int, rng: Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, Session] = {}
        """By id, the least recently used first."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def create(
        self, parts: dict[Key, CachedPartition], now: int, *, uses_ids: bool
    ) -> Session | None:
        """Return a new session; None if there is no room."""
        if not parts or self._partitions + len(parts) > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots and not self._evict(len(parts), now):
            return None
        session_id = 0
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(2**31)
        session = self._sessions[session_id] = Session(session_id, uses_ids, now, now, parts)
        self._partitions += len(parts)
        return session

    def _evict(self, size: int, now: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.used_at > EVICTION_MS:
            self.remove(oldest.session_id)
            return True
        old = [each for each in self._sessions.values() if now - each.created_at > EVICTION_MS]
        smallest = min(old, key=lambda each: len(each.parts), default=None)
        if smallest is None or len(smallest.parts) > size:
            return False
        self.remove(smallest.session_id)
        return True

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.parts)

    def update(
        self, session: Session, changed: Iterable[CachedPartition], forgotten: list[Key], now: int
    ) -> bool:
        """Apply the next fetch to a session; return False if there is no room for its partitions.

        A session without room, or without partitions, is removed.
        """
        parts = session.parts
        before = len(parts)
        for asked in changed:
            known = parts.get(asked.key)
            if known is None:
                parts[asked.key] = asked
            else:
                known.offset, known.bytes_max = asked.offset, asked.bytes_max
                known.epoch = asked.epoch
        for key in forgotten:
            parts.pop(key, None)
        self._partitions += len(parts) - before
        session.epoch = next_epoch(session.epoch)
        session.used_at = now
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        fits = self._partitions <= PARTITIONS_MAX
        if not fits or not parts:
            self.remove(session.session_id)
        return fits

    def check(self) -> None:
        assert len(self._sessions) <= self._slots
        assert self._partitions == sum(len(each.parts) for each in self._sessions.values())
        assert self._partitions <= PARTITIONS_MAX
        used = [session.used_at for session in self._sessions.values()]
        assert used == sorted(used)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1
