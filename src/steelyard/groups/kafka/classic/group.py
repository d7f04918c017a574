"""A classic group: its members, its generation, and the requests allowed in each state.

The states are in `state`; `joining`, `syncing`, `leaving` and `rebalances` change them. Source:
classic/ClassicGroup.java.
"""

from __future__ import annotations

from collections import deque

from steelyard.groups.kafka.classic.members import (
    ClassicGroupMember,
    Protocols,
    Room,
    subscription_of,
)
from steelyard.groups.kafka.classic.owners import Owners
from steelyard.groups.kafka.classic.saved import (
    SavedGroup,
    SavedGroups,
    restored_member,
    saved_member,
)
from steelyard.groups.kafka.classic.state import GROUPS, ClassicGroupState, InitialDelay, Move
from steelyard.groups.kafka.effects import BEGUN_MAX, Begun, Handle
from steelyard.groups.kafka.groups import Reader, TopicsView
from steelyard.groups.kafka.timers import JOIN, LEAVES, SESSION, SYNC, WAITING, Key, Timers
from steelyard.groups.kafka.window import JoinWindow
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE


class ClassicGroup:
    """A classic group; a `groups.kafka.groups.Group`. Members are in the order of their arrival."""

    kind = "classic"

    def __init__(
        self,
        group_id: str,
        timers: Timers,
        saved: SavedGroups,
        room: Room,
        now: int,
        window_max_ms: int = 0,
    ) -> None:
        self.group_id = group_id
        self.window = JoinWindow(window_max_ms)
        """Holds newcomers back while others come (see `deferring`)."""
        self._timers = timers
        self._saved = saved
        self._room = room
        self.bytes = 0
        """Approximate memory of its members."""
        self._state = self.previous_state = GROUPS.move(None, Move.MADE)
        self.since = now
        """When it entered its state, in ms since the epoch."""
        self.generation = 0
        self._announced = 0
        """The last generation that was stored as announced before the broker started."""
        self._protocol_type: str | None = None
        self.protocol: str | None = None
        """The protocol of this generation, by name."""
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending: dict[str, int] = {}
        """Ids assigned to clients that have yet to join with them (KIP-394), and when."""
        self.unsynced: set[str] = set()
        """Members that have yet to send SyncGroup in this generation."""
        self.expecting: frozenset[str] = frozenset()
        """Members that got nothing new in this generation, while others have to rejoin."""
        self.left: list[str] = []
        """Names of members that have left, and for which no rebalance has begun yet."""
        self.initial: InitialDelay | None = None
        """Set while the group waits for its first generation."""
        self.joining_count = 0
        """Number of members with a parked JoinGroup."""
        self.begun: deque[Begun] = deque(maxlen=BEGUN_MAX)
        """The latest rebalances, the newest last."""
        self.began_at = now
        self.awaited_since = now
        """When the present phase began, in which requests are awaited."""
        self._support: dict[str, int] = {}
        """The number of members that support each protocol."""
        self._subscribed: frozenset[str] | None = None
        self._owners = Owners()

    # -- as a group of either kind ---------------------------------------------------------------

    @property
    def state(self) -> ClassicGroupState:
        return self._state

    @property
    def protocol_type(self) -> str:
        return self._protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self._state is ClassicGroupState.EMPTY

    def member_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.members))

    def subscribes_to(self, topic: str) -> bool:
        if self._subscribed is None:
            return self._protocol_type == PROTOCOL_TYPE
        return topic in self._subscribed

    def expires_from(self, committed_at: int) -> int | None:
        if self._protocol_type is None:
            return committed_at
        if self._state is ClassicGroupState.EMPTY:
            return self.since
        known = self._protocol_type == PROTOCOL_TYPE and self._subscribed is not None
        return committed_at if known and self._state is ClassicGroupState.STABLE else None

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool,
        now: int,
    ) -> ErrorCode:
        """Implement `Group.check_commit`; a commit also shows that its member is alive."""
        error = self._check_commit(member_id, instance_id, generation, transactional)
        if (
            error is ErrorCode.NONE
            and not transactional
            and self._state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING)
        ):
            self.heard(self.members[member_id], now)
        return error

    def _check_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool
    ) -> ErrorCode:
        if self._state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self._state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if not self.is_in(member_id, generation):
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self._state is ClassicGroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return (
            ErrorCode.GROUP_ID_NOT_FOUND
            if self._state is ClassicGroupState.DEAD
            else ErrorCode.NONE
        )

    def owner_of(self, partition: TopicPartition) -> str | None:
        owner = self._owners.get(partition)
        return owner if owner in self.members else None

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        return self._owners.reader_at(client_id, host, partition, self.members)

    def readers(self) -> list[Reader]:
        return self._owners.readers(self.members)

    def forget(self) -> None:
        """Implement `Group.forget`; parked requests must have been answered before."""
        self._saved.delete(self.group_id)
        self._drop_timers()
        self.move(Move.DELETED, self.since)

    def migrated(self) -> None:
        """Drop the members of a group that has migrated; the other group has them now.

        Their parked requests must have been answered before. Raises StorageError if the group could
        not be deleted on the disk.
        """
        self._drop_timers()
        for member_id in (*self.members, *self.pending):
            self.remove(member_id)
        self.move(Move.MIGRATED, self.since)
        self._saved.delete(self.group_id)

    def _drop_timers(self) -> None:
        self.left.clear()
        for kind in (JOIN, SYNC, WAITING, LEAVES):
            self._timers.drop(self.key(kind))
        for member_id in (*self.members, *self.pending):
            self._timers.drop(self.key(SESSION, member_id))

    # -- state -----------------------------------------------------------------------------------

    def move(self, event: Move, now: int, to: ClassicGroupState | None = None) -> None:
        """Move to another state, and note when."""
        self.previous_state, self._state = self._state, GROUPS.move(self._state, event, to)
        self.since = now

    @property
    def can_rebalance(self) -> bool:
        return GROUPS.can(self._state, Move.REBALANCED)

    @property
    def everyone_joined(self) -> bool:
        return not self.pending and self.joining_count == len(self.members)

    @property
    def awaited_until(self) -> int | None:
        """Return when the members whose requests are awaited now will be removed."""
        return self._timers.at(
            self.key(JOIN if self._state is ClassicGroupState.PREPARING else SYNC)
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def last_generation(self) -> int:
        """Return the last number that members may know."""
        return max(self.generation, self._announced)

    def is_in(self, member_id: str, generation: int) -> bool:
        """Return whether a member is in the generation that it names.

        That may be its epoch in the consumer group that this one was. (Kafka answers members that
        were behind the group's epoch with ILLEGAL_GENERATION: they lose their partitions, and
        cannot commit what they have processed.)
        """
        return generation in (self.generation, self.members[member_id].epoch)

    @property
    def is_downgraded(self) -> bool:
        """Return whether it was a consumer group, and has not been rebalanced since."""
        return any(member.epoch is not None for member in self.members.values())

    def next_generation(self, now: int) -> None:
        """End the join phase: all present members are in the new generation."""
        self.generation = self.last_generation + 1
        for member in self.members.values():
            member.epoch = None
        self.unsynced.clear()
        self.expecting = frozenset()
        self.protocol = self.vote() if self.members else None
        self._subscribe()
        self.move(
            Move.JOINED,
            now,
            ClassicGroupState.COMPLETING if self.members else ClassicGroupState.EMPTY,
        )

    def _subscribe(self) -> None:
        """Set the topics that are read; None if a member's subscription cannot be read.

        Only groups of consumers have readable subscriptions.
        """
        self._subscribed = None
        if self._protocol_type != PROTOCOL_TYPE:
            return
        topics: set[str] = set()
        for member in self.members.values():
            metadata = member.protocols.get(self.protocol or "", b"")
            subscription = subscription_of(PROTOCOL_TYPE, metadata)
            if subscription is None:
                return
            topics.update(subscription.topics)
        self._subscribed = frozenset(topics)

    # -- members ---------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if this is a member, and the latest one with its instance id."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a client with these protocols can be a member of this group."""
        if self._state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self._protocol_type != protocol_type:
            return False
        return any(self._support.get(name, 0) == len(self.members) for name in protocols)

    def vote(self) -> str:
        """Return the protocol with most votes among those that all members support.

        In a tie, the one that got a vote first.
        """
        everyone = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everyone}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def add(self, member: ClassicGroupMember) -> None:
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static
            self.static[member.instance_id] = member.member_id
        if not self.members:
            self._protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self._count(member, 1)
        self.leader = self.leader or member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id, with its timers.

        The member's parked requests must have been answered before.
        """
        self._timers.drop(self.key(SESSION, member_id))
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.joining is None
        assert member.syncing is None
        self._count(member, -1)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update(
        self, member: ClassicGroupMember, protocols: Protocols, client_id: str, host: str
    ) -> None:
        """Take over the protocols, client id and host of a member that joined again."""
        self._count(member, -1)
        member.protocols, member.client_id, member.host = protocols, client_id, host
        self._count(member, 1)

    def park_join(self, member: ClassicGroupMember, handle: Handle, now: int) -> Handle | None:
        """Park a JoinGroup until the join phase is over; return one that was parked before."""
        member.heard_at = now
        before = self.take_join(member)
        member.joining = handle
        self.joining_count += 1
        return before

    def take_join(self, member: ClassicGroupMember) -> Handle | None:
        """Return the parked JoinGroup, which must then be answered."""
        handle, member.joining = member.joining, None
        self.joining_count -= handle is not None
        return handle

    def rename(self, old: ClassicGroupMember, new: ClassicGroupMember) -> None:
        """Put a static member that returned under a new member id in the place of the old one."""
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        self._timers.drop(self.key(SESSION, old.member_id))
        self.unsynced.discard(old.member_id)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self._count(old, -1)
        self._count(new, 1)
        self.static[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        self._owners.renamed(old.member_id, new.member_id)

    def _count(self, member: ClassicGroupMember, step: int) -> None:
        self._use(step * member.bytes)
        for name in member.protocols:
            count = self._support.get(name, 0) + step
            if count:
                self._support[name] = count
            else:
                del self._support[name]

    def _use(self, size: int) -> None:
        self.bytes += size
        self._room.bytes += size

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined; return False if no member has."""
        if self.leader is not None and not self.members[self.leader].is_joining:
            joined = (id for id, member in self.members.items() if member.is_joining)
            self.leader = next(joined, self.leader)
        return self.leader is not None and self.members[self.leader].is_joining

    # -- assignments -----------------------------------------------------------------------------

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Set the leader's assignments; a member that is not among them gets nothing."""
        for member in self.members.values():
            before = len(member.assignment)
            member.assignment = assignments.get(member.member_id, b"")
            self._use(len(member.assignment) - before)
        self._owners.assigned(self.members.values(), self.protocol_type)

    def outgrown(self, topics: TopicsView) -> tuple[str, ...]:
        """Return the group's topics with partitions beyond all assigned ones.

        None are returned while the topics are unknown.
        """
        wanted = sorted(self._subscribed or ())
        return tuple(name for name in wanted if topics.partitions(name) > self._owners.end(name))

    # -- timers ----------------------------------------------------------------------------------

    def key(self, kind: str, member_id: str = "") -> Key:
        return (self.group_id, kind, member_id)

    def heard(self, member: ClassicGroupMember, now: int) -> None:
        """Note a request of the member, and start its session again."""
        member.heard_at = now
        self.keep_alive(member, now)

    def keep_alive(self, member: ClassicGroupMember, now: int) -> None:
        """Start the member's session again."""
        self._timers.set(self.key(SESSION, member.member_id), now + member.session_timeout_ms)

    def session_ends(self, member: ClassicGroupMember) -> int | None:
        """Return when the member will be removed if nothing is heard of it."""
        return self._timers.at(self.key(SESSION, member.member_id))

    # -- on disk ---------------------------------------------------------------------------------

    def save(self) -> None:
        """Store this generation. Raises StorageError."""
        self._saved.save(
            SavedGroup(
                self.group_id,
                self.generation,
                self.protocol_type,
                self.since,
                self.protocol,
                self.leader,
                tuple(map(saved_member, self.members.values())),
            )
        )

    def save_return(self, member: ClassicGroupMember) -> None:
        """Store the new owner of an instance id. Raises StorageError."""
        self._saved.save_return(self.group_id, member)

    def save_announced(self) -> None:
        """Store the number of a generation of which members learn. Raises StorageError."""
        self._saved.save_announced(self.group_id, self.generation)

    def restore(self, saved: SavedGroup, now: int) -> None:
        """Restore the stored state: Stable if there were members, whose sessions begin now."""
        self.generation = saved.generation
        self._announced = saved.announced
        self._protocol_type = saved.protocol_type or None
        self.protocol = saved.protocol
        for one in saved.members:
            member = restored_member(one, saved.protocol_type)
            self.add(member)
            self.keep_alive(member, now)
        self.leader = saved.leader
        self.move(
            Move.RESTORED,
            saved.since,
            ClassicGroupState.STABLE if saved.members else ClassicGroupState.EMPTY,
        )
        self._subscribe()
        self._owners.assigned(self.members.values(), self.protocol_type)

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        assert self.bytes == sum(member.bytes for member in self.members.values())
        assert self.joining_count == sum(m.is_joining for m in self.members.values())
        assert (self.leader is None) == (not self.members)
        assert self.leader is None or self.leader in self.members
        assert not self.members.keys() & self.pending.keys()
        assert self.unsynced <= self.members.keys()
        assert (
            self._state not in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD) or not self.members
        )
        statics = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id}
        assert statics == {name: id for name, id in self.static.items() if name}
        for member in self.members.values():
            assert member.joining is None or self._state is ClassicGroupState.PREPARING
            assert member.syncing is None or self._state is ClassicGroupState.COMPLETING
            # A member whose request is awaited has a timer, so that nobody waits for ever.
            if not member.is_waiting:
                assert self._timers.at(self.key(SESSION, member.member_id)) is not None
        for member_id in self.pending:
            assert self._timers.at(self.key(SESSION, member_id)) is not None
        if self._state is ClassicGroupState.PREPARING:
            assert self._timers.at(self.key(JOIN)) is not None
            assert not self.everyone_joined or self.previous_state is ClassicGroupState.EMPTY
        if self.left:
            assert self._state is ClassicGroupState.STABLE
            assert self._timers.at(self.key(LEAVES)) is not None
        if self._state is ClassicGroupState.COMPLETING or self.unsynced:
            assert self._timers.at(self.key(SYNC)) is not None
