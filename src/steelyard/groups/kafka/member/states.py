"""The states of a classic group member, what it waits for in each, and its settings.

state      what the member waits for                     transitions
OUT        topics, or a poll after it fell silent or     complete -> PREPARING
           was refused
PREPARING  `Prepared`: consumed offsets are committed,   Prepared -> READY
           and partitions revoked before joining
READY      a coordinator, or the end of a back-off       both: JoinGroup -> JOINING
JOINING    the JoinGroup response; the coordinator       leads: -> ASSIGNING
           waits for the others                          follows: SyncGroup -> SYNCING
                                                         MEMBER_ID_REQUIRED -> JOINING
                                                         other errors -> READY, OUT
ASSIGNING  `TopicsKnown`: the leader needs the numbers   computed: SyncGroup -> SYNCING
           of partitions of all members' topics
SYNCING    the SyncGroup response                        assignment -> ADOPTING; else READY, OUT
ADOPTING   `Adopted`: the application knows its new      Adopted -> STABLE
           partitions
STABLE     heartbeat responses with errors               rebalance -> PREPARING; lost -> OUT
GONE       nothing: it closed, or another has its instance id
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.allocate.assignors.plan import Assignor
from steelyard.machine import Machine

NO_GENERATION = -1
JOIN_GRACE_MS = 5_000
"""Added to the rebalance timeout for a JoinGroup (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE)."""


class ClientMemberState(StrEnum):
    OUT = "out"
    PREPARING = "preparing"
    READY = "ready"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    ADOPTING = "adopting"
    STABLE = "stable"
    GONE = "gone"


class Move(StrEnum):
    MADE = "made"
    BEGAN = "a rebalance begins"
    PREPARED = "the application is prepared"
    ASKED = "JoinGroup is sent"
    LEADS = "joined, and leads"
    FOLLOWS = "joined, and follows"
    ASSIGNED = "shares are computed"
    SYNCED = "the share is there"
    ADOPTED = "the application has adopted it"
    REFUSED = "to be tried again"
    LOST = "the membership is lost"
    FENCED = "another has its instance id"
    CLOSED = "closed"


_ENDS = {Move.FENCED: (ClientMemberState.GONE,), Move.CLOSED: (ClientMemberState.GONE,)}
_LOST = {Move.LOST: (ClientMemberState.OUT,), **_ENDS}

MEMBERS: Machine[ClientMemberState, Move] = Machine(
    "Member of a classic group",
    {
        None: {Move.MADE: (ClientMemberState.OUT,)},
        ClientMemberState.OUT: {Move.BEGAN: (ClientMemberState.PREPARING,), **_ENDS},
        ClientMemberState.PREPARING: {
            Move.PREPARED: (ClientMemberState.READY, ClientMemberState.OUT),
            **_ENDS,
        },
        ClientMemberState.READY: {Move.ASKED: (ClientMemberState.JOINING,), **_ENDS},
        ClientMemberState.JOINING: {
            Move.LEADS: (ClientMemberState.ASSIGNING,),
            Move.FOLLOWS: (ClientMemberState.SYNCING,),
            Move.REFUSED: (ClientMemberState.READY,),
            **_LOST,
        },
        ClientMemberState.ASSIGNING: {Move.ASSIGNED: (ClientMemberState.SYNCING,), **_ENDS},
        ClientMemberState.SYNCING: {
            Move.SYNCED: (ClientMemberState.ADOPTING,),
            Move.REFUSED: (ClientMemberState.READY,),
            **_LOST,
        },
        ClientMemberState.ADOPTING: {
            Move.ADOPTED: (ClientMemberState.STABLE, ClientMemberState.OUT),
            **_ENDS,
        },
        ClientMemberState.STABLE: {Move.BEGAN: (ClientMemberState.PREPARING,), **_LOST},
        ClientMemberState.GONE: {},
    },
)

ASKING = (ClientMemberState.JOINING, ClientMemberState.SYNCING)
"""States in which a request of the rebalance is in flight."""

BEATING = (ClientMemberState.PREPARING, ClientMemberState.ADOPTING, ClientMemberState.STABLE)
"""States in which the coordinator expects heartbeats of a member."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of a member, times in ms.

    Defaults and meanings are in `config.KafkaConsumerConfig`.
    """

    group: str
    assignors: tuple[Assignor, ...]
    instance: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """Also the longest time without a poll (max.poll.interval.ms)."""
    heartbeat_interval_ms: int = 3_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
