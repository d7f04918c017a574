"""The states of a classic group, the requests in each state, and the transitions.

Empty                no members; there may be offsets
    JoinGroup        -> PreparingRebalance, where the first generation waits for the initial delay
    SyncGroup, Heartbeat, LeaveGroup     UNKNOWN_MEMBER_ID
    OffsetCommit     accepted without a generation (the client assigns partitions itself)
PreparingRebalance   the join phase: all members have to join or rejoin
    JoinGroup        parked. All have joined, or the longest rebalance timeout is over and others
                     are removed (static members stay) -> CompletingRebalance; none is left -> Empty
    SyncGroup        REBALANCE_IN_PROGRESS
    Heartbeat        REBALANCE_IN_PROGRESS, and extends the session
    OffsetCommit     accepted for the generation that ends
CompletingRebalance  a new generation; the leader computes the assignments
    JoinGroup        if unchanged, answered with this generation; changed or new
                     -> PreparingRebalance
    SyncGroup        parked; the leader's has the assignments -> Stable, and all are answered.
                     A member that does not send it is removed after the rebalance timeout
                     -> PreparingRebalance
    Heartbeat        accepted
    OffsetCommit     REBALANCE_IN_PROGRESS
Stable               all members can get their assignments
    JoinGroup        by the leader, changed or new -> PreparingRebalance; otherwise answered with
                     this generation
    SyncGroup        answered with the assignment
    Heartbeat, OffsetCommit              accepted
Dead                 deleted; a JoinGroup creates a new group
any with members     a member leaves, or its session expires -> PreparingRebalance

Source: classic/ClassicGroupState.java, GroupMetadataManager.java.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.machine import Machine


class ClassicGroupState(StrEnum):
    """The state of a group, named as in ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Move(StrEnum):
    MADE = "made"
    RESTORED = "restored from disk"
    REBALANCED = "a rebalance begins"
    JOINED = "the join phase is over"
    ASSIGNED = "the leader has assigned"
    DELETED = "deleted"
    MIGRATED = "migrated to the consumer protocol"


GROUPS: Machine[ClassicGroupState, Move] = Machine(
    "Classic group at its coordinator",
    {
        None: {Move.MADE: (ClassicGroupState.EMPTY,)},
        ClassicGroupState.EMPTY: {
            Move.RESTORED: (ClassicGroupState.EMPTY, ClassicGroupState.STABLE),
            Move.REBALANCED: (ClassicGroupState.PREPARING,),
            Move.DELETED: (ClassicGroupState.DEAD,),
        },
        ClassicGroupState.PREPARING: {
            Move.JOINED: (ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY),
            Move.MIGRATED: (ClassicGroupState.DEAD,),
        },
        ClassicGroupState.COMPLETING: {
            Move.ASSIGNED: (ClassicGroupState.STABLE,),
            Move.REBALANCED: (ClassicGroupState.PREPARING,),
            Move.MIGRATED: (ClassicGroupState.DEAD,),
        },
        ClassicGroupState.STABLE: {
            Move.REBALANCED: (ClassicGroupState.PREPARING,),
            Move.MIGRATED: (ClassicGroupState.DEAD,),
        },
        ClassicGroupState.DEAD: {},
    },
)


class InitialDelay(msgspec.Struct):
    """The delay of a group's first generation, extended by new members up to `remaining_ms`.

    `step_ms`: the longest extension at a time.
    """

    delay_ms: int
    remaining_ms: int
    step_ms: int
    member_came: bool = False
