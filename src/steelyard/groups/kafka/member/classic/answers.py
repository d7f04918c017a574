"""The consequences of a coordinator's errors for the member.

Source: the response handlers of clients/consumer/internals/AbstractCoordinator.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from steelyard.wire.kafka.errors import ErrorCode


class Verdict(Enum):
    FINE = "nothing is wrong"
    REJOIN = "the group rebalances: join it, the membership is kept"
    RETRY = "ask again in a moment"
    FIND_COORDINATOR = "ask somebody else"
    NEW_GENERATION = "the generation is over: join again under the same member id"
    NEW_MEMBER = "the member id is not known: join as a new member"
    GIVE_UP = "nothing that this member does will help"


_MOVED: Mapping[int, Verdict] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Verdict.FIND_COORDINATOR,
}

_JOIN: Mapping[int, Verdict] = {
    **_MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.NEW_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Verdict.NEW_GENERATION,
}

_SYNC: Mapping[int, Verdict] = {
    **_MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.NEW_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Verdict.NEW_GENERATION,
}

_HEARTBEAT: Mapping[int, Verdict] = {
    **_MOVED,
    ErrorCode.NONE: Verdict.FINE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Verdict.NEW_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.NEW_MEMBER,
}


def join_verdict(code: int) -> Verdict:
    """Return the verdict on a JoinGroup response; MEMBER_ID_REQUIRED is handled elsewhere."""
    return _verdict(_JOIN, code)


def sync_verdict(code: int) -> Verdict:
    """Return the verdict on a SyncGroup response."""
    return _verdict(_SYNC, code)


def heartbeat_verdict(code: int) -> Verdict:
    """Return the verdict on a Heartbeat response."""
    return _verdict(_HEARTBEAT, code)


def _verdict(table: Mapping[int, Verdict], code: int) -> Verdict:
    return table.get(code, Verdict.GIVE_UP)
