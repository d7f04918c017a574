"""Laws of the new protocol, whatever happens: joins, leaves, silence, lost answers, slow members, topics, restarts,
answers that wait, and connections that are lost meanwhile, whether the broker knows or not.

- A partition has one reader at any moment: among those whom the coordinator counts as members, by what the clients
  themselves do, not by what the coordinator believes.
- Epochs of the group and of a member only grow.
- When it gets quiet, everybody comes to the target, all partitions are read, and evenly.
- Nobody who answers is put out, as members are that do not release partitions of which they do not know that they must.
- A quiet group moves nothing.
- With a window for joins, a change takes effect when the window's limit is over, or with the next heartbeat.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.examples import examples
from tests.groups.kafka.consumer.conftest import BEAT_MS, GROUP, Client, Rig, World

from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.report import report_consumer
from steelyard.store.memory import Killed
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

TOPICS = ["a", "b", "t"]
CLIENTS_MAX = 6
PARTITIONS_MAX = 6
ROUNDS_MAX = 20
FORGIVEN_ROUNDS = 3
"""In the first of these rounds members may hear that they are out, for what they did before."""
OUT = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}

picks = st.integers(0, CLIENTS_MAX - 1)
topics = st.lists(st.sampled_from(TOPICS), unique=True).map(sorted)


class Members(RuleBasedStateMachine):
    @initialize(window_ms=st.sampled_from([0, 1_000]), delay_ms=st.sampled_from([0, 20_000]))
    def begin(self, window_ms: int, delay_ms: int) -> None:
        self.rig = Rig(
            World(a=2, t=3),
            group_join_window_max_ms=window_ms,
            group_flapping_delay_max_ms=delay_ms,  # all clients of this rig have one name
        )
        self.clients: list[Client] = []
        self.away: list[Client] = []
        self.names = 0
        self.epoch_seen = 0

    def one(self, pick: int) -> Client:
        return self.clients[pick % len(self.clients)]

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.rig.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    # -- clients ---------------------------------------------------------------------------------

    def add(
        self, wanted: list[str], lazy: bool, instance: str | None, assignor: str | None
    ) -> None:
        self.names += 1
        client = Client(
            self.rig, f"m{self.names}", wanted, instance=instance, assignor=assignor, lazy=lazy
        )
        self.clients.append(client)
        client.beat()

    @rule(wanted=topics, lazy=st.booleans(), static=st.booleans())
    def join(self, wanted: list[str], lazy: bool, static: bool) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.add(wanted, lazy, f"i{self.names}" if static else None, None)

    @rule(assignor=st.sampled_from(["uniform", "range"]))
    def join_with_a_preference(self, assignor: str) -> None:
        if len(self.clients) < CLIENTS_MAX:
            self.add(TOPICS, False, None, assignor)

    @precondition(lambda self: self.clients)
    @rule(pick=picks, lost=st.booleans(), silent=st.booleans())
    def beat(self, pick: int, lost: bool, silent: bool) -> None:
        client = self.one(pick)
        client.beat(lost=lost, silent=silent)
        if not lost:
            self.knows(client)

    def knows(self, client: Client) -> None:
        """Check that a client that was answered knows what the coordinator takes it to know."""
        member = None if self.group is None else self.group.member(client.member_id)
        if member is not None and client.epoch:
            assert client.given == {
                # Of a topic that was deleted until the coordinator has looked at the topics again.
                TopicPartition(self.rig.world.latest_label(topic), number)
                for topic, number in member.assigned
            }

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def wait(self, pick: int) -> None:
        self.one(pick).wait()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def read(self, pick: int) -> None:
        self.one(pick).read()

    @precondition(lambda self: self.clients)
    @rule(pick=picks, known=st.booleans(), reports=st.booleans(), newcomer=st.booleans())
    def reconnect(self, pick: int, known: bool, reports: bool, newcomer: bool) -> None:
        """Lose the connection while a heartbeat waits, and perhaps there is news at once."""
        client = self.one(pick)
        client.wait()
        client.reconnect(known=known)
        if reports:
            client.beat()
        if newcomer:
            self.join(TOPICS, False, False)
        if reports:
            client.beat(silent=True)
            self.knows(client)

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        self.one(pick).finish()

    @precondition(lambda self: self.clients)
    @rule(pick=picks, wanted=topics)
    def resubscribe(self, pick: int, wanted: list[str]) -> None:
        self.one(pick).resubscribe(wanted)

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        client = self.one(pick)
        self.clients.remove(client)
        client.leave()

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        """Without a word; what it read is free when its session is over."""
        self.clients.remove(self.one(pick))

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def leave_for_now(self, pick: int) -> None:
        client = self.one(pick)
        if client.instance is None or not client.epoch:
            return
        self.clients.remove(client)
        answer = self.rig.beat(client.member_id, -2, instance_id=client.instance)
        if not answer.error_code:
            self.away.append(client)

    @precondition(lambda self: self.away)
    @rule()
    def come_back(self) -> None:
        client = self.away.pop(0)
        self.add(client.topics, client.lazy, client.instance, client.assignor)

    # -- the world -------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([10, 100, 1_000, BEAT_MS, 20_000, 50_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.pass_time(ms)

    @rule(topic=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow(self, topic: str, more: int) -> None:
        self.rig.world.set(topic, min(PARTITIONS_MAX, self.rig.world.partitions(topic) + more))

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        if self.rig.world.partitions(topic):
            self.rig.world.set(topic, 0)

    @rule()
    def restart(self) -> None:
        self.restarted()

    def restarted(self) -> None:
        """The broker restarts, and every client loses its connection."""
        self.rig.restart()
        for client in self.clients:
            client.reconnect(known=False)

    @precondition(lambda self: self.clients)
    @rule(pick=picks, size=st.integers(0, 1_500))
    def die_while_writing(self, pick: int, size: int) -> None:
        """The broker is killed in a heartbeat, after `size` bytes on the disk."""
        self.rig.disk.kill_after_bytes = size
        with suppress(Killed):
            self.one(pick).beat(lost=True)
        self.restarted()

    @rule()
    def get_quiet(self) -> None:
        for number in range(ROUNDS_MAX):
            for client in self.clients:
                if number == FORGIVEN_ROUNDS:
                    client.codes.clear()
                client.finish()
                client.beat()
                client.finish()
            self.rig.pass_time(BEAT_MS)
            self.grows()
        assert not [one.member_id for one in self.clients if OUT & set(one.codes)]
        group = self.group
        if group is None:
            return
        alive = {client.member_id: client for client in self.clients if client.epoch}
        assert group.state == ("Stable" if alive else "Empty")
        assert group.member_ids() == tuple(sorted(alive))
        read: dict[TopicPartition, str] = {}
        for member_id, client in alive.items():
            assert client.epoch == group.assignment_epoch == group.epoch
            assert client.owned == {
                TopicPartition(self.rig.world.label(topic), number)
                for topic, number in group.target(member_id)
            }
            assert {topic for topic, _ in group.target(member_id)} <= set(client.topics)
            read.update(dict.fromkeys(client.owned, member_id))
        wanted = {topic for client in alive.values() for topic in client.topics}
        assert read.keys() == {
            TopicPartition(self.rig.world.label(topic), number)
            for topic in wanted
            for number in range(self.rig.world.partitions(topic))
        }
        assignor = self.rig.consumers.describe(GROUP).assignor_name
        if assignor == "uniform" and len({tuple(one.topics) for one in alive.values()}) == 1:
            sizes = [len(client.owned) for client in alive.values()]
            assert max(sizes) - min(sizes) <= 1
        moved_at = self.rig.groups.version
        for client in self.clients:
            client.beat()
        assert self.rig.groups.version == moved_at, "a quiet group moves nothing"
        assert not group.began_at
        assert not report_consumer(group, "").awaited

    # -- laws ------------------------------------------------------------------------------------

    @invariant()
    def one_reader(self) -> None:
        group = self.group
        counted = group.member_ids() if group is not None else ()
        readers: dict[TopicPartition, str] = {}
        for client in self.clients:
            if client.member_id not in counted:
                continue  # out, though it does not know yet
            for partition in client.owned:
                assert partition not in readers, f"{readers[partition]}, {client.member_id}"
                readers[partition] = client.member_id

    @invariant()
    def grows(self) -> None:
        group = self.group
        if group is not None:
            assert group.epoch >= self.epoch_seen
            self.epoch_seen = group.epoch

    @invariant()
    def waits_for_its_limit_only(self) -> None:
        group = self.group
        if group is not None and group.window.due_at is not None:
            since, due_at = group.window.since, group.window.due_at
            assert since is not None
            assert since <= due_at <= since + max(group.window.most_ms, 0)

    @precondition(lambda self: self.clients)
    @rule(pick=picks)
    def beat_after_the_window(self, pick: int) -> None:
        self.rig.pass_time(1_000)
        client = self.one(pick)
        client.beat()
        group = self.group
        if group is not None and client.epoch:
            joined = group.window.since == self.rig.now
            assert joined or group.assignment_epoch == group.epoch

    @invariant()
    def is_whole(self) -> None:
        self.rig.consumers.check()

    def teardown(self) -> None:
        self.get_quiet()


Members.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestMembers = Members.TestCase
