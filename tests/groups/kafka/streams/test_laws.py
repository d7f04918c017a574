"""Laws of streams groups, whatever threads, topics and the broker do.

A task is active at one thread at a time, by what the threads themselves run; a process has a task once; and when
everybody is heard for a while, every task runs, each thread has what its coordinator says, and the group is stable.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.groups.kafka.consumer.conftest import World
from tests.groups.kafka.streams.conftest import INTERNAL, Rig, Thread

from steelyard.groups.kafka.streams.group import StreamsGroup, StreamsGroupState

NAMES = tuple(f"{process}.{thread}" for process in "abc" for thread in "12")
picks = st.integers(0, 100)


class Applications(RuleBasedStateMachine):
    @initialize(
        replicas=st.integers(0, 2),
        delay_ms=st.sampled_from((0, 3_000)),
        interval_ms=st.sampled_from((0, 1_000)),
    )
    def begin(self, replicas: int, delay_ms: int, interval_ms: int) -> None:
        self.rig = Rig(
            World(**{"in": 3, **dict.fromkeys(INTERNAL, 3)}),
            group_streams_num_standby_replicas=replicas,
            group_streams_initial_rebalance_delay_ms=delay_ms,
            group_streams_assignment_interval_ms=interval_ms,
        )
        self.replicas = replicas

    def one(self, pick: int) -> Thread:
        threads = [self.rig.threads[name] for name in sorted(self.rig.threads)]
        return threads[pick % len(threads)]

    @rule(name=st.sampled_from(NAMES), lost=st.booleans())
    def join(self, name: str, lost: bool) -> None:
        if name not in self.rig.threads:
            self.rig.thread(name).beat(lost=lost)

    @precondition(lambda self: self.rig.threads)
    @rule(pick=picks, lost=st.booleans())
    def beat(self, pick: int, lost: bool) -> None:
        self.one(pick).beat(lost=lost)

    @precondition(lambda self: self.rig.threads)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        thread = self.one(pick)
        thread.leave()
        del self.rig.threads[thread.member_id]

    @precondition(lambda self: self.rig.threads)
    @rule(pick=picks)
    def die(self, pick: int) -> None:
        """Nobody is told; its session ends, which is checked by what is left of it."""
        thread = self.one(pick)
        del self.rig.threads[thread.member_id]

    @rule(time_ms=st.sampled_from((100, 1_000, 5_000)))
    def wait(self, time_ms: int) -> None:
        """All others are heard in the meantime, so that only who died expires."""
        self.rig.wait(time_ms)
        for thread in list(self.rig.threads.values()):
            thread.beat()

    @rule(topic=st.sampled_from(("in", *INTERNAL)))
    def delete(self, topic: str) -> None:
        self.rig.world.set(topic, 0)

    @rule()
    def make(self) -> None:
        for topic in ("in", *INTERNAL):
            if not self.rig.world.partitions(topic):
                self.rig.world.set(topic, 3)

    @rule()
    def restart(self) -> None:
        self.rig.restart()

    @rule()
    def calm(self) -> None:
        """Everything is there, everybody is heard, and whoever died has expired."""
        self.make()
        for _ in range(30):
            self.rig.wait(2_500)
            for thread in self.rig.threads.values():
                thread.beat()
        group = self.rig.groups.get("app")
        if not self.rig.threads:
            assert group is None or group.is_empty
            return
        assert isinstance(group, StreamsGroup)
        assert group.state is StreamsGroupState.STABLE
        every = {(name, number) for name in "01" for number in range(3)}
        active = Counter(task for one in self.rig.threads.values() for task in one.active)
        assert active == Counter(every)
        processes = {one.process for one in self.rig.threads.values()}
        standbys = Counter(task for one in self.rig.threads.values() for task in one.standby)
        wanted = min(self.replicas, len(processes) - 1)
        assert standbys == Counter({("1", number): wanted for number in range(3) if wanted})
        for thread in self.rig.threads.values():
            member = group.member(thread.member_id)
            assert member is not None
            assert (thread.epoch, sorted(thread.active)) == (member.epoch, [*member.active])

    @invariant()
    def a_task_runs_once(self) -> None:
        if not hasattr(self, "rig"):
            return
        threads = self.rig.threads.values()
        active = Counter(task for one in threads for task in one.active)
        assert all(count == 1 for count in active.values()), active
        copies = Counter(
            (one.process, task) for one in threads for task in (*one.active, *one.standby)
        )
        assert all(count == 1 for count in copies.values()), copies

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.calm()


TestApplications = Applications.TestCase
