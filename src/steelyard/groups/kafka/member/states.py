"""The states of a classic group member, what it waits for in them, and what a member is told at its start.

state      what the member waits for                          what moves it on
OUT        topics, or a poll after it fell silent or was      all there -> PREPARING
           refused
PREPARING  `Prepared`: what is consumed is committed, and     Prepared -> READY
           what must be given up before joining is
READY      a coordinator, or the end of a backoff             both there: JoinGroup -> JOINING
JOINING    the JoinGroup response; the coordinator waits      leads: -> ASSIGNING; follows: SyncGroup -> SYNCING
           for the others                                     MEMBER_ID_REQUIRED -> JOINING; other errors -> READY, OUT
ASSIGNING  `TopicsKnown`: the leader must know how many       shares computed: SyncGroup -> SYNCING
           partitions the topics of all members have
SYNCING    the SyncGroup response                             share read -> ADOPTING; errors -> READY, OUT
ADOPTING   `Adopted`: the application knows its new share     Adopted -> STABLE
STABLE     heartbeats that say otherwise                      rebalance -> PREPARING; membership lost -> OUT
GONE       nothing: it closed, or another has its instance id
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.allocate.assignors.plan import Assignor
from steelyard.machine import Machine

NO_GENERATION = -1
JOIN_GRACE_MS = 5_000
"""Added to the rebalance timeout for the answer of a JoinGroup (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE)."""


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
"""In these a request of the rebalance is under way."""

BEATING = (ClientMemberState.PREPARING, ClientMemberState.ADOPTING, ClientMemberState.STABLE)
"""In these the coordinator wants heartbeats of a member."""


class Settings(msgspec.Struct, frozen=True):
    """What a member is told at its start; times in ms. Defaults and meaning: `config.KafkaConsumerConfig`."""

    group: str
    assignors: tuple[Assignor, ...]
    instance: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """Also how long the application may go without a poll (max.poll.interval.ms)."""
    heartbeat_interval_ms: int = 3_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
