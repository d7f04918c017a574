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


class ClassicMemberState(StrEnum):
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


_ENDS = {Move.FENCED: (ClassicMemberState.GONE,), Move.CLOSED: (ClassicMemberState.GONE,)}
_LOST = {Move.LOST: (ClassicMemberState.OUT,), **_ENDS}

MEMBERS: Machine[ClassicMemberState, Move] = Machine(
    "Member of a classic group",
    {
        None: {Move.MADE: (ClassicMemberState.OUT,)},
        ClassicMemberState.OUT: {Move.BEGAN: (ClassicMemberState.PREPARING,), **_ENDS},
        ClassicMemberState.PREPARING: {
            Move.PREPARED: (ClassicMemberState.READY, ClassicMemberState.OUT),
            **_ENDS,
        },
        ClassicMemberState.READY: {Move.ASKED: (ClassicMemberState.JOINING,), **_ENDS},
        ClassicMemberState.JOINING: {
            Move.LEADS: (ClassicMemberState.ASSIGNING,),
            Move.FOLLOWS: (ClassicMemberState.SYNCING,),
            Move.REFUSED: (ClassicMemberState.READY,),
            **_LOST,
        },
        ClassicMemberState.ASSIGNING: {Move.ASSIGNED: (ClassicMemberState.SYNCING,), **_ENDS},
        ClassicMemberState.SYNCING: {
            Move.SYNCED: (ClassicMemberState.ADOPTING,),
            Move.REFUSED: (ClassicMemberState.READY,),
            **_LOST,
        },
        ClassicMemberState.ADOPTING: {
            Move.ADOPTED: (ClassicMemberState.STABLE, ClassicMemberState.OUT),
            **_ENDS,
        },
        ClassicMemberState.STABLE: {Move.BEGAN: (ClassicMemberState.PREPARING,), **_LOST},
        ClassicMemberState.GONE: {},
    },
)

ASKING = (ClassicMemberState.JOINING, ClassicMemberState.SYNCING)
"""States in which a request of the rebalance is in flight."""

BEATING = (ClassicMemberState.PREPARING, ClassicMemberState.ADOPTING, ClassicMemberState.STABLE)
"""States in which the coordinator expects heartbeats of a member."""


class ClassicMemberSettings(msgspec.Struct, frozen=True):
    """ClassicMemberSettings of a member, times in ms.

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
