"""Laws of classic groups, whatever clients do: join, sync, heartbeat, leave, die, come back, ask twice; and restarts.

- In a generation a partition has one owner at most, and what it was told counts across restarts.
- Generations only grow, and never past one that members were given to read by.
- Every parked request is answered in the end; a join phase ends as soon as all have joined (`ClassicGroup.check`).
- A silent member holds a rebalance up by its timeouts at most.
- Of the clients with one instance id the one that joined last is never fenced, across restarts.
- When everybody behaves, the group becomes stable, with those who live and nobody else, and all partitions are read.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import examples
from tests.groups.kafka.conftest import GROUP, TOPIC, Rig, assignment

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import read_assignment
from steelyard.wire.kafka.messages.groups import JoinGroupResponse, SyncGroupResponse

PARTITIONS = 4
SESSION_MS = 6_000
REBALANCE_MS = 20_000
HEARTBEAT_MS = 2_000
CLIENTS_MAX = 5


class Client:
    """A client that does what Kafka's do when it is its turn."""

    def __init__(self, name: str, instance: str | None, version: int) -> None:
        self.name = name
        self.instance = instance
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.parked: int | None = None
        self.members: tuple[str, ...] = ()
        """Whom it leads."""
        self.must = "join"
        """join | sync | beat"""
        self.alive = True

    @property
    def identity(self) -> str:
        return self.instance or self.member_id


class Groups(RuleBasedStateMachine):
    """The rules."""

    @initialize(
        delay=st.sampled_from([0, 3_000]),
        window=st.sampled_from([0, 1_000]),
        damping=st.sampled_from([0, 20_000]),
        rebalance=st.sampled_from([4_000, REBALANCE_MS]),
        statics=st.lists(st.booleans(), max_size=3),
    )
    def begin(
        self, delay: int, window: int, damping: int, rebalance: int, statics: list[bool]
    ) -> None:
        self.rig = Rig(
            group_initial_rebalance_delay_ms=delay,
            group_join_window_max_ms=window,
            group_flapping_delay_max_ms=damping,
        )
        self.rebalance_ms = rebalance
        self.clients: list[Client] = []
        self.names = 0
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> who was told that it is its own."""
        self.told_generation = 0
        self.latest: dict[str, Client] = {}
        """Who joined last without a member id, by instance id."""
        self.asked: set[int] = set()
        """Requests of this life of the coordinator."""
        for static in statics:
            self.starts(static=static, version=9)
        self.everybody_acts(8)

    # -- clients ---------------------------------------------------------------------------------

    @rule(static=st.booleans(), version=st.sampled_from([3, 5, 9]))
    def starts(self, static: bool, version: int) -> None:
        if sum(client.alive for client in self.clients) < CLIENTS_MAX:
            self.names += 1
            instance = f"i{self.names}" if static and version >= 5 else None
            self.clients.append(Client(f"c{self.names}", instance, version))

    @rule(which=st.integers(0, 20))
    def acts(self, which: int) -> None:
        alive = [client for client in self.clients if client.alive]
        if alive:
            self.step(alive[which % len(alive)])

    @rule(times=st.integers(1, 8))
    def everybody_acts(self, times: int) -> None:
        for _ in range(times):
            for client in self.clients:
                if client.alive:
                    self.step(client)
            self.rig.run(1)

    @rule(which=st.integers(0, 20))
    def dies(self, which: int) -> None:
        if self.clients:
            self.clients[which % len(self.clients)].alive = False

    @rule(which=st.integers(0, 20))
    def comes_back(self, which: int) -> None:
        """A static one with its instance id, before or after the old process is gone."""
        static = [client for client in self.clients if client.instance is not None]
        if static:
            old = static[which % len(static)]
            old.alive = False
            self.clients.append(Client(old.name, old.instance, old.version))

    @rule(which=st.integers(0, 20))
    def leaves(self, which: int) -> None:
        members = [client for client in self.clients if client.alive and client.member_id]
        if members:
            client = members[which % len(members)]
            client.alive = False
            self.rig.leave(client.member_id)

    @rule(which=st.integers(0, 20))
    def asks_again(self, which: int) -> None:
        """Its connection broke; it does not know what became of its request."""
        waiting = [client for client in self.clients if client.alive and client.parked is not None]
        if waiting:
            waiting[which % len(waiting)].parked = None

    @rule(which=st.integers(0, 20))
    def wants_something_else(self, which: int) -> None:
        settled = [client for client in self.clients if client.alive and client.must == "beat"]
        if settled:
            settled[which % len(settled)].must = "join"

    @rule(which=st.integers(0, 20), offset=st.integers(0, 9))
    def commits(self, which: int, offset: int) -> None:
        members = [client for client in self.clients if client.generation > 0]
        if members:
            client = members[which % len(members)]
            error = self.rig.commit(
                offset,
                member_id=client.member_id,
                generation=client.generation,
                instance=client.instance,
            )
            if error is ErrorCode.NONE:
                assert self.rig.state().generation == client.generation
                assert client.member_id in self.rig.state().members

    # -- the world -------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 100, HEARTBEAT_MS, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.rig.run(ms)

    @rule()
    def restarts(self) -> None:
        before = self.rig.seen()
        group = self.rig.groups.get(GROUP)
        leaving = isinstance(group, ClassicGroup) and bool(group.left)
        self.rig.restart()
        self.asked.clear()
        for client in self.clients:
            client.parked = None
        after = self.rig.seen()
        # A member that has just left is back with its session, if no rebalance has begun yet.
        if before is not None and before.state == "Stable" and not leaving:
            assert after is not None
            assert (after.state, after.generation) == ("Stable", before.generation)
            assert (after.members, after.leader) == (before.members, before.leader)

    @rule(which=st.integers(0, 20), times=st.integers(1, 4))
    def restarts_before_a_static_client_is_assigned(self, which: int, times: int) -> None:
        self.starts(static=True, version=9)
        self.comes_back(which)
        self.everybody_acts(times)
        self.restarts()

    # -- what a client does ----------------------------------------------------------------------

    def step(self, client: Client) -> None:
        if client.parked is not None:
            reply = self.rig.replies.get(client.parked)
            if isinstance(reply, JoinGroupResponse):
                self.joined(client, reply)
            elif isinstance(reply, SyncGroupResponse):
                self.synced(client, reply)
            return
        if client.must == "join":
            if client.instance is not None and not client.member_id:
                self.latest[client.instance] = client
            client.parked = self.rig.join(
                client.member_id,
                instance=client.instance,
                version=client.version,
                session=SESSION_MS,
                rebalance=self.rebalance_ms,
                client="app",
                protocols={"range": f"{client.name} {client.generation}".encode()},
            )
            self.asked.add(client.parked)
        elif client.must == "sync":
            shares: dict[str, list[int]] = {member: [] for member in client.members}
            for partition in range(PARTITIONS if client.members else 0):
                shares[client.members[partition % len(client.members)]].append(partition)
            client.parked = self.rig.sync(
                client.member_id,
                client.generation,
                {member: assignment(share) for member, share in shares.items()},
                instance=client.instance,
            )
            self.asked.add(client.parked)
        else:
            self.heard(client, self.rig.beat(client.member_id, client.generation, client.instance))

    def joined(self, client: Client, reply: JoinGroupResponse) -> None:
        client.parked = None
        error = ErrorCode(reply.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = reply.member_id
        elif error is ErrorCode.NONE:
            assert reply.generation_id >= self.told_generation
            client.member_id, client.generation = reply.member_id, reply.generation_id
            leads = reply.leader == reply.member_id and not reply.skip_assignment
            client.members = tuple(m.member_id for m in reply.members) if leads else ()
            client.must = "sync"
        else:
            self.heard(client, error)

    def synced(self, client: Client, reply: SyncGroupResponse) -> None:
        client.parked = None
        if reply.error_code != ErrorCode.NONE:
            self.heard(client, ErrorCode(reply.error_code))
            return
        client.must = "beat"
        self.told_generation = max(self.told_generation, client.generation)
        for topic in read_assignment(reply.assignment).assigned_partitions:
            for partition in topic.partitions:
                key = (client.generation, partition)
                assert self.owners.setdefault(key, client.identity) == client.identity

    def heard(self, client: Client, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                client.must = "join"
            case ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id, client.generation, client.must = "", -1, "join"
            case ErrorCode.FENCED_INSTANCE_ID:
                assert client.instance is not None
                assert self.latest[client.instance] is not client
                client.alive = False
            case _:
                raise AssertionError(f"{client.name} was told {error}")

    # -- laws ------------------------------------------------------------------------------------

    @invariant()
    def no_phase_is_endless(self) -> None:
        state = self.rig.seen() if hasattr(self, "rig") else None
        if state is not None and state.state in ("PreparingRebalance", "CompletingRebalance"):
            assert self.rig.now - state.since <= max(self.rebalance_ms, 3_000) + SESSION_MS

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.calm()
        alive = {client.identity for client in self.clients if client.alive}
        state = self.rig.seen()
        if alive:
            assert state is not None
            assert state.state == "Stable", state
            found = {client.member_id for client in self.clients if client.alive}
            assert set(state.members) == found
            group = self.rig.groups.get(GROUP)
            assert group is not None
            owners = {group.owner_of(TopicPartition(TOPIC, p)) for p in range(PARTITIONS)}
            assert None not in owners
        else:
            assert state is None or state.state == "Empty"
        assert all(handle in self.rig.replies for handle in self.asked)

    def calm(self) -> None:
        """Those who live behave, until those who died are forgotten."""
        for client in self.clients:
            twins = [c for c in self.clients if c.alive and c.instance == client.instance]
            if client.instance is not None:
                for twin in twins[:-1]:
                    twin.alive = False
        new_members_wait_ms = 300_000
        for _ in range((new_members_wait_ms + 2 * REBALANCE_MS) // HEARTBEAT_MS):
            self.everybody_acts(4)
            if self.is_settled():
                break
            self.rig.run(HEARTBEAT_MS)

    def is_settled(self) -> bool:
        """Those who live are the members, and know it."""
        alive = [client for client in self.clients if client.alive]
        state = self.rig.seen()
        if state is None:
            return not alive
        if state.state not in ("Stable", "Empty"):
            return False
        group = self.rig.groups.get(GROUP)
        assert isinstance(group, ClassicGroup)
        if group.left or not all(handle in self.rig.replies for handle in self.asked):
            return False
        members = set(state.members)
        return members == {client.member_id for client in alive} and all(
            client.must == "beat" and client.parked is None for client in alive
        )


Groups.TestCase.settings = settings(
    max_examples=examples(80),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.filter_too_much],
)
TestGroups = Groups.TestCase
