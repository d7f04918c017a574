"""Makes the faults of a scenario happen, and heals them.

A fault begins at `at_ms` and is undone `for_ms` later. One that is no longer possible (the target
is down already, the last member would leave) is left out. From `healed_at` on nothing is wrong:
networks are whole, and every nameserver, broker and wanted member runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from steelyard.errors import DamageError
from steelyard.nodes.broker.node import Stop as StopBroker
from steelyard.sim.clock import EPOCH
from steelyard.sim.cluster import SimCluster
from steelyard.sim.configs import GROUP
from steelyard.sim.network import NetworkPartition
from steelyard.sim.rot import flip_in_logs, repair
from steelyard.sim.rot_tables import flip_in_table, has_offsets
from steelyard.sim.scenario import Fault, FaultKind, Scenario
from steelyard.sim.seats import Seat
from steelyard.sim.world import Violation
from steelyard.store.segment_names import INDEX_SUFFIX, RUNS_SUFFIX
from steelyard.wire.remoting.names import retry_topic

AGAIN_MS = 2_000
"""Time after which a broker that is to be killed again is killed at the latest."""

STOP_MS_MAX = 15_000
"""Time after which a clean stop without an answer becomes a kill, as with an init system."""

OPERATOR_MS = 2_000
"""Interval in which an operator repeats what could not be done."""


class Fates:
    """The faults of one run; see the module docstring."""

    def __init__(self, cluster: SimCluster, scenario: Scenario) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng("fates")
        self._flapping: set[str] = set()
        """Members that are stopped and started again and again."""
        self.happened: Counter[str] = Counter()
        hit = self._hit
        self._do: dict[FaultKind, Callable[[Fault], bool]] = {
            "kill_broker": hit(lambda: cluster.brokers, self._kill_broker),
            "restart_broker": hit(lambda: cluster.brokers, self._restart_broker),
            "set_clock_back": hit(lambda: cluster.brokers, self._set_clock_back),
            "power_broker": hit(lambda: cluster.brokers, self._power_broker),
            "kill_nameserver": hit(lambda: cluster.nameservers, self._kill_nameserver),
            "kill_member": hit(lambda: self._mortals, self._kill_member),
            "lose_member": hit(lambda: self._mortals, self._lose_member),
            "leave": hit(lambda: self._members, self._leave),
            "join": self._join,
            "flap": hit(lambda: self._members, self._flap),
            "grow_topics": self._grow_topics,
            "stall": hit(lambda: cluster.seats, self._stall),
            "partition": self._partition,
            "deafen": self._partition,
            "break_links": self._break_links,
            "drop_oneway": self._drop_oneway,
            "slow": self._slow,
            "disk_full": hit(lambda: cluster.brokers, self._disk_full),
            "suspend": hit(lambda: [*cluster.nameservers, *cluster.brokers], self._suspend),
            "freeze": hit(lambda: cluster.kafka_members, self._freeze),
            "restart_cluster": self._restart_cluster,
            "descriptors": hit(lambda: cluster.brokers, self._descriptors),
            "rot_index": self._rot_index,
            "rot_log": self._rot_log,
            "rot_table": self._rot_table,
        }
        cluster.on_refusal = self._refused
        for fault in scenario.faults:
            self._world.at(EPOCH + fault.at_ms, partial(self._happen, fault))
        self.healed_at = EPOCH + max((f.at_ms + f.for_ms for f in scenario.faults), default=0)

    def _happen(self, fault: Fault) -> None:
        if self._do[fault.kind](fault):
            self.happened[fault.kind] += 1
            self._world.trace.note(self._world.now, "fates", repr(fault))

    def _later(self, fault: Fault, undo: Callable[[], None]) -> None:
        self._world.after(fault.for_ms, undo)

    def _hit(
        self, seats: Callable[[], Sequence[Seat]], strike: Callable[[Fault, Seat], bool]
    ) -> Callable[[Fault], bool]:
        """Return a function that strikes the seat a fault names, or a random running one.

        It returns whether the fault happened.
        """

        def happens(fault: Fault) -> bool:
            alive = [seat for seat in seats() if seat.process.alive]
            if fault.target:
                alive = [seat for seat in alive if seat.name == fault.target]
            return bool(alive) and strike(fault, self._rng.choice(alive))

        return happens

    # -- servers -----------------------------------------------------------------------------------

    def _kill_broker(self, fault: Fault, seat: Seat) -> bool:
        process = seat.process
        if fault.count:
            seat.host.disk.cut_write(fault.count)
            # Where nothing is written the kill comes between two events.
            self._world.after(fault.for_ms // 2, lambda: process.die("killed"))
        else:
            process.die("killed")
        self._later(fault, lambda: self._start_again(fault, seat))
        return True

    def _start_again(self, fault: Fault, seat: Seat) -> None:
        """Start the broker.

        With `again` kill it inside a write once more, often in its recovery.
        """
        if seat.process.alive:
            return
        self._cluster.start(seat, kill_in_write=fault.again)
        if fault.again:
            process = seat.process
            self.healed_at = max(self.healed_at, self._world.now + 2 * AGAIN_MS)
            self._world.after(AGAIN_MS, lambda: process.die("killed"))
            self._world.after(2 * AGAIN_MS, lambda: self._cluster.start(seat))

    def _restart_broker(self, fault: Fault, seat: Seat) -> bool:
        self._stop(
            seat,
            lambda then: seat.process.ask(StopBroker(), then),
            lambda: self._later(fault, lambda: self._cluster.start(seat)),
        )
        self.healed_at = max(self.healed_at, self._world.now + STOP_MS_MAX + fault.for_ms)
        return True

    def _stop(
        self,
        seat: Seat,
        ask: Callable[[Callable[[object], None]], None],
        then: Callable[[], None],
    ) -> None:
        """Ask the node to stop, and end its process when it answers, or after STOP_MS_MAX."""
        process = seat.process
        ended = False

        def end(reason: str) -> None:
            nonlocal ended
            if not ended:
                ended = True
                process.die(reason)
                then()

        ask(lambda result: end("stopped"))
        self._world.after(STOP_MS_MAX, lambda: end("did not stop in time"))

    def _power_broker(self, fault: Fault, seat: Seat) -> bool:
        self._power_off(seat)
        seat.host.disk.lose_power()
        self._cluster.power_lost.add(seat.name)
        self._cluster.power_cuts.add(seat.name)
        self._later(fault, lambda: self._power_on(seat))
        return True

    def _set_clock_back(self, fault: Fault, seat: Seat) -> bool:
        seat.process.die("killed")
        seat.host.set_clock_back(fault.count)
        self._later(fault, lambda: self._cluster.start(seat))
        return True

    def _power_off(self, seat: Seat) -> None:
        seat.host.up = False
        seat.process.die("its machine lost power", silently=True)

    def _power_on(self, seat: Seat) -> None:
        seat.host.up = True
        self._cluster.start(seat)
        self._cluster.network.retry()

    def _kill_nameserver(self, fault: Fault, seat: Seat) -> bool:
        seat.process.die("killed")
        self._later(fault, lambda: self._cluster.start(seat))
        return True

    def _restart_cluster(self, fault: Fault) -> bool:
        """Stop all servers in the first third of the time, and restart them in the last third."""
        cluster, rng = self._cluster, self._rng
        seats = [seat for seat in [*cluster.nameservers, *cluster.brokers] if seat.process.alive]
        rng.shuffle(seats)
        at_once = rng.random() < 0.5
        for seat in seats:
            down_ms = 0 if at_once else rng.randrange(fault.for_ms // 3 + 1)
            up_ms = 2 * fault.for_ms // 3 + rng.randrange(fault.for_ms // 3 + 1)
            back = partial(self._world.at, self._world.now + up_ms, partial(cluster.start, seat))
            self._world.after(down_ms, partial(self._take_down, seat, back, clean=fault.count == 1))
        self.healed_at = max(self.healed_at, self._world.now + STOP_MS_MAX + fault.for_ms)
        return bool(seats)

    def _take_down(self, seat: Seat, then: Callable[[], None], *, clean: bool) -> None:
        """End a server, a broker cleanly if `clean`; a nameserver has nothing to close."""
        if clean and seat in self._cluster.brokers and seat.process.alive:
            self._stop(seat, lambda done: seat.process.ask(StopBroker(), done), then)
        else:
            seat.process.die("killed")
            then()

    def _rot_index(self, fault: Fault) -> bool:
        seats = [s for s in self._cluster.brokers if fault.target in ("", s.name)]
        disk = self._rng.choice(seats).host.disk
        flips = [
            disk.flip_bit(suffix)
            for _ in range(max(1, fault.count))
            for suffix in (INDEX_SUFFIX, RUNS_SUFFIX)
        ]
        return any(flips)

    def _rot_log(self, fault: Fault) -> bool:
        cluster = self._cluster
        seat = self._rng.choice([s for s in cluster.brokers if fault.target in ("", s.name)])
        topics = (*cluster.topics, retry_topic(GROUP))
        disk, count = seat.host.disk, max(1, fault.count)
        if not flip_in_logs(disk, seat.name, topics, cluster.witness, self._rng, count):
            return False
        self._operate_later(fault.for_ms, seat)
        return True

    def _rot_table(self, fault: Fault) -> bool:
        cluster = self._cluster
        seat = self._rng.choice([s for s in cluster.brokers if fault.target in ("", s.name)])
        if not has_offsets(seat.host.disk):
            return False
        self._take_down(seat, lambda: self._rot_while_down(fault, seat), clean=fault.count == 1)
        self.healed_at = max(self.healed_at, self._world.now + STOP_MS_MAX + fault.for_ms)
        return True

    def _rot_while_down(self, fault: Fault, seat: Seat) -> None:
        # A stop takes time: another fault may have ended it, and started the broker.
        if not seat.process.alive:
            flip_in_table(seat.host.disk, seat.name, self._cluster.witness.damage, self._rng)
        self._later(fault, lambda: self._cluster.start(seat))

    def _refused(self, seat: Seat, error: DamageError) -> None:
        """Handle the refusal of a broker to start: an operator repairs its data.

        Raises Violation unless the error names what is damaged, and only that.
        """
        record = self._cluster.witness.damage.records.get(seat.name)
        known = () if record is None else (record.path,)
        if error.paths != known:
            raise Violation(f"{seat.name} refuses to start: {error}; damaged is {known}")
        self._world.after(OPERATOR_MS, lambda: self._repair_refused(seat))
        self.healed_at = max(self.healed_at, self._world.now + OPERATOR_MS)

    def _repair_refused(self, seat: Seat) -> None:
        if not seat.process.alive:  # else another start was refused, too, and the data is repaired
            self._operate(seat)

    def _operate_later(self, after_ms: int, seat: Seat) -> None:
        self._world.after(after_ms, partial(self._operate, seat))
        upto = self._world.now + after_ms + STOP_MS_MAX + OPERATOR_MS
        self.healed_at = max(self.healed_at, upto)

    def _operate(self, seat: Seat) -> None:
        """Act as an operator on damaged data: stop the broker, repair its data, start it."""
        process = seat.process
        if process.alive:
            self._stop(
                seat,
                lambda then: process.ask(StopBroker(), then),
                lambda: self._operate_later(0, seat),
            )
            return
        now = seat.host.clock.read(self._world.now)
        damage = self._cluster.witness.damage
        if seat.host.up and repair(seat.host.disk, seat.name, damage, now):
            self._cluster.start(seat)
        else:
            self._operate_later(OPERATOR_MS, seat)

    def _descriptors(self, fault: Fault, seat: Seat) -> bool:
        seat.host.exhaust(exhausted=True)
        self._later(fault, lambda: seat.host.exhaust(exhausted=False))
        return True

    def _disk_full(self, fault: Fault, seat: Seat) -> bool:
        seat.host.disk.room = fault.count

        def free() -> None:
            seat.host.disk.room = None

        self._later(fault, free)
        return True

    # -- members -----------------------------------------------------------------------------------

    @property
    def _members(self) -> list[Seat]:
        """Return the members of groups that may leave."""
        cluster = self._cluster
        return [*cluster.members, *cluster.kafka_members, *cluster.share_members.seats]

    @property
    def _mortals(self) -> list[Seat]:
        """Return the members of all groups, and Kafka producers: they may be killed."""
        cluster = self._cluster
        return [*self._members, *cluster.streams_threads.seats, *cluster.kafka_producing.seats]

    def _kill_member(self, fault: Fault, seat: Seat) -> bool:
        if not self._may_go(fault, seat):
            return False
        seat.process.die("killed")
        self._come_back(fault, seat)
        return True

    def _lose_member(self, fault: Fault, seat: Seat) -> bool:
        if not self._may_go(fault, seat):
            return False
        self._power_off(seat)
        self._come_back(fault, seat)
        return True

    def _come_back(self, fault: Fault, seat: Seat) -> None:
        if not fault.for_ms:
            seat.wanted = False
            return
        if fault.count:
            seat.identity -= 1  # its next run has the client id of this one
        self._later(fault, lambda: self._power_on(seat))

    def _leave(self, fault: Fault, seat: Seat) -> bool:
        if not self._may_go(fault, seat):
            return False
        seat.wanted = False
        self._stop(seat, partial(self._cluster.stop_member, seat), lambda: None)
        self.healed_at = max(self.healed_at, self._world.now + STOP_MS_MAX)
        return True

    def _may_go(self, fault: Fault, seat: Seat) -> bool:
        """Return whether a member may go.

        A wanted member of its group must be left in the end, and nobody leaves twice.
        """
        if seat.name in self._flapping:
            return False
        cluster = self._cluster
        groups = (
            cluster.members,
            cluster.kafka_members,
            cluster.streams_threads.seats,
            cluster.kafka_producing.seats,
            cluster.share_members.seats,
        )
        (group,) = (group for group in groups if seat in group)
        stays = [s for s in group if s.wanted and s is not seat]
        return seat.wanted and (bool(stays) or (fault.kind != "leave" and fault.for_ms > 0))

    def _join(self, fault: Fault) -> bool:
        if fault.target == "kafka":
            self._cluster.add_kafka_member()
        elif fault.target == "share":
            self._cluster.share_members.add()
        else:
            self._cluster.add_member()
        return True

    def _flap(self, fault: Fault, seat: Seat) -> bool:
        if not self._may_go(fault, seat):
            return False
        self._flapping.add(seat.name)
        self._go(fault, seat, max(1, fault.count))
        return True

    def _go(self, fault: Fault, seat: Seat, times: int) -> None:
        """End a member that flaps, and let it come back for a while, `times` times."""
        step_ms = fault.for_ms // (2 * max(1, fault.count))
        self.healed_at = max(self.healed_at, self._world.now + times * (STOP_MS_MAX + 2 * step_ms))

        def back() -> None:
            self._cluster.start(seat)
            if times > 1:
                self._world.after(step_ms, lambda: self._go(fault, seat, times - 1))
            else:
                self._flapping.discard(seat.name)

        def gone() -> None:
            seat.identity -= 1  # its next run has the client id of this one
            self._world.after(step_ms, back)

        if fault.again:
            seat.process.die("killed")
            gone()
        else:
            self._stop(seat, partial(self._cluster.stop_member, seat), gone)

    def _freeze(self, fault: Fault, seat: Seat) -> bool:
        self._cluster.application(seat).freeze(fault.for_ms)
        return True

    def _grow_topics(self, fault: Fault) -> bool:
        return self._cluster.grow_topics(fault.count)

    # -- processes and the network -----------------------------------------------------------------

    def _stall(self, fault: Fault, seat: Seat) -> bool:
        seat.process.pause(fault.for_ms)
        return True

    def _suspend(self, fault: Fault, seat: Seat) -> bool:
        seat.process.pause(fault.for_ms, timers_first=True)
        self.healed_at = max(self.healed_at, self._world.now + fault.for_ms)
        return True

    def _partition(self, fault: Fault) -> bool:
        cluster = self._cluster
        seats = cluster.seats
        if fault.target:
            names = [seat.name for seat in seats if seat.name == fault.target]
        else:
            names = [s.name for s in self._rng.sample(seats, min(max(1, fault.count), len(seats)))]
        partition = NetworkPartition(frozenset(names), deaf=fault.kind == "deafen")
        cluster.network.cut(partition)
        self._later(fault, lambda: cluster.network.mend(partition))
        return True

    def _break_links(self, fault: Fault) -> bool:
        return self._cluster.network.break_links(max(1, fault.count)) > 0

    def _drop_oneway(self, fault: Fault) -> bool:
        network = self._cluster.network
        network.oneway_dropped_of_100 = fault.count or 100

        def stop() -> None:
            network.oneway_dropped_of_100 = 0

        self._later(fault, stop)
        return True

    def _slow(self, fault: Fault) -> bool:
        network = self._cluster.network
        network.slow_ms = fault.count

        def stop() -> None:
            network.slow_ms = 0

        self._later(fault, stop)
        return True

    # -- healing -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo all faults. Called once, at `healed_at` or later."""
        cluster = self._cluster
        cluster.network.slow_ms = 0
        cluster.network.oneway_dropped_of_100 = 0
        for seat in cluster.seats:
            seat.host.disk.room = None
            seat.host.exhaust(exhausted=False)
            if seat.wanted:
                seat.host.up = True
                cluster.start(seat)
        cluster.network.mend()
