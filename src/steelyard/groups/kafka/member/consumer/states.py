"""The states of a member of a KIP-848 group, what it waits for in each, and its settings.

state          what the member waits for                 transitions
OUT            topics, or a poll after it fell silent    both: -> JOINING; while the application
               or was refused                            still has partitions: -> LOSING
LOSING         `Prepared`: the application has given up  Prepared -> OUT
               the partitions that it lost
JOINING        a coordinator, the end of a back-off,     no error -> STABLE
               and the answer to a heartbeat of epoch 0  errors: JOINING, OUT
STABLE         answers to heartbeats                     another assignment -> ADOPTING; lost -> OUT
ADOPTING       `Adopted`: the application knows its      Adopted -> ACKNOWLEDGING; if the membership
               new partitions                            was lost meanwhile: -> OUT
ACKNOWLEDGING  the turn of the heartbeat that tells      sent -> STABLE; lost -> OUT
               what it owns now
GONE           nothing: it closed, or another has its instance id
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.machine import Machine


class ConsumerMemberState(StrEnum):
    OUT = "out"
    LOSING = "losing"
    JOINING = "joining"
    STABLE = "stable"
    ADOPTING = "adopting"
    ACKNOWLEDGING = "acknowledging"
    GONE = "gone"


class Move(StrEnum):
    MADE = "made"
    BEGAN = "it wants to be a member"
    RELEASED = "lost partitions are given up"
    JOINED = "it is a member"
    ASSIGNED = "another assignment"
    ADOPTED = "the application has adopted it"
    ACKNOWLEDGED = "the coordinator is told"
    LOST = "the membership is lost"
    FENCED = "another has its instance id"
    CLOSED = "closed"


_ENDS = {Move.FENCED: (ConsumerMemberState.GONE,), Move.CLOSED: (ConsumerMemberState.GONE,)}
_LOST = {Move.LOST: (ConsumerMemberState.OUT,), **_ENDS}

MEMBERS: Machine[ConsumerMemberState, Move] = Machine(
    "Member of a consumer group (KIP-848) at its client",
    {
        None: {Move.MADE: (ConsumerMemberState.OUT,)},
        ConsumerMemberState.OUT: {
            Move.BEGAN: (ConsumerMemberState.JOINING, ConsumerMemberState.LOSING),
            **_ENDS,
        },
        ConsumerMemberState.LOSING: {Move.RELEASED: (ConsumerMemberState.OUT,), **_ENDS},
        ConsumerMemberState.JOINING: {Move.JOINED: (ConsumerMemberState.STABLE,), **_LOST},
        ConsumerMemberState.STABLE: {Move.ASSIGNED: (ConsumerMemberState.ADOPTING,), **_LOST},
        ConsumerMemberState.ADOPTING: {
            Move.ADOPTED: (ConsumerMemberState.ACKNOWLEDGING, ConsumerMemberState.OUT),
            **_ENDS,
        },
        ConsumerMemberState.ACKNOWLEDGING: {
            Move.ACKNOWLEDGED: (ConsumerMemberState.STABLE,),
            **_LOST,
        },
        ConsumerMemberState.GONE: {},
    },
)


class ConsumerMemberSettings(msgspec.Struct, frozen=True):
    """Settings of a member, times in ms.

    Defaults and meanings are in `config.KafkaConsumerConfig`. `member_id`: chosen by the client,
    the same for as long as it runs (KIP-1082).
    """

    group: str
    member_id: str
    assignor: str | None = None
    """The coordinator's assignor that this member prefers; None for any."""
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = 300_000
    """Also the longest time without a poll (max.poll.interval.ms)."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
