"""The states of a classic group, what each request does in them, and what leads from one to the other.

Empty                no members; offsets may be there
    JoinGroup        -> PreparingRebalance, where the first generation waits for the initial delay
    SyncGroup, Heartbeat, LeaveGroup     UNKNOWN_MEMBER_ID
    OffsetCommit     accepted without a generation (the client assigns partitions itself)
PreparingRebalance   the join phase: everybody has to join (again)
    JoinGroup        parked. All members have joined, or the longest rebalance timeout is over and those who did not
                     are out (static members stay) -> CompletingRebalance; nobody is left -> Empty
    SyncGroup        REBALANCE_IN_PROGRESS
    Heartbeat        REBALANCE_IN_PROGRESS, and the session goes on
    OffsetCommit     accepted for the generation that ends
CompletingRebalance  a new generation; the leader computes who reads what
    JoinGroup        the same again is answered with this generation; changed or new -> PreparingRebalance
    SyncGroup        parked; the leader's brings the assignments -> Stable, and all are answered.
                     A member that never sends it is out after the rebalance timeout -> PreparingRebalance
    Heartbeat        accepted
    OffsetCommit     REBALANCE_IN_PROGRESS
Stable               everybody can know what to read
    JoinGroup        by the leader, changed or new -> PreparingRebalance; else answered with this generation
    SyncGroup        answered with the assignment
    Heartbeat, OffsetCommit              accepted
Dead                 deleted; a JoinGroup makes a new group
any with members     a member leaves, or its session runs out -> PreparingRebalance

Source: classic/ClassicGroupState.java, GroupMetadataManager.java.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.machine import Machine


class ClassicGroupState(StrEnum):
    """The names are those of ListGroups."""

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
            Move.JOINED: (ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY)
        },
        ClassicGroupState.COMPLETING: {
            Move.ASSIGNED: (ClassicGroupState.STABLE,),
            Move.REBALANCED: (ClassicGroupState.PREPARING,),
        },
        ClassicGroupState.STABLE: {Move.REBALANCED: (ClassicGroupState.PREPARING,)},
        ClassicGroupState.DEAD: {},
    },
)


class InitialDelay(msgspec.Struct):
    """The first generation of a group waits, longer while more members come, until `remaining_ms` are used up."""

    delay_ms: int
    remaining_ms: int
    member_came: bool = False
