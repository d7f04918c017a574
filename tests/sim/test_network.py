"""The simulated network, with nodes that only write down what they hear."""

from collections.abc import Callable

import pytest

from steelyard.nodes.seam import (
    KAFKA,
    Asked,
    Closed,
    Dial,
    Effect,
    Event,
    Hang,
    Link,
    Mute,
    Opened,
    Received,
    Refused,
    Send,
)
from steelyard.sim.clock import EPOCH, Clock
from steelyard.sim.disk import SimDisk
from steelyard.sim.network import (
    CONNECT_TIMEOUT_MS,
    IDLE_MS,
    NetworkPartition,
    TcpNetwork,
    Weather,
)
from steelyard.sim.world import Host, Process, World
from steelyard.wire.kafka.frame import RawReply, Reply, Request, read_reply
from steelyard.wire.kafka.messages.groups import (
    HEARTBEAT,
    HeartbeatRequest,
    HeartbeatResponse,
)
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command, Serialize

CALM = Weather()
SERVER_ALONE = NetworkPartition(frozenset({"server"}))
CLIENT_ALONE = NetworkPartition(frozenset({"client"}))
STORMY = Weather(delay_ms_max=300, spike_every=4, spike_ms_max=900, cut_every=2)


class Ear:
    """A node that does what it is asked (effects) and remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def start(self, now: int) -> list[Effect]:
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Asked):
            assert isinstance(event.call, list)
            return event.call
        self.heard.append(event)
        return []

    def check(self) -> None:
        pass

    def codes(self) -> list[int]:
        return [
            e.message.code
            for e in self.heard
            if isinstance(e, Received) and isinstance(e.message, Command)
        ]

    def link(self) -> Link:
        return next(event.link for event in self.heard if isinstance(event, Opened))

    def closed(self) -> list[str]:
        return [event.reason for event in self.heard if isinstance(event, Closed)]


class Rig:
    """Two machines, a server at 10.0.0.1:1 and a client, connected unless told otherwise."""

    def __init__(self, seed: int = 0, weather: Weather = CALM, *, connect: bool = True) -> None:
        self.world = World(seed)
        self.network = TcpNetwork(self.world, weather)
        self.server, self.server_process = self._machine("server", "10.0.0.1", 1)
        self.client, self.client_process = self._machine("client", "10.0.0.2", 0)
        if connect:
            self.dial()

    def _machine(self, name: str, ip: str, port: int) -> tuple[Ear, Process]:
        host = Host(name, ip, Clock(), SimDisk(self.world.rng(name)))
        self.network.attach(host)
        process = Process(self.world, self.network, host, name, port=port)
        ear = Ear()
        if port:
            self.network.listen(process)
        process.start(lambda now: ear)
        return ear, process

    def dial(self, address: str = "10.0.0.1:1") -> None:
        self.do(self.client_process, Dial(address))
        self.run(5_000)

    def do(self, process: Process, *effects: Effect) -> None:
        process.ask(list(effects), lambda result: None)

    def send(self, *codes: int, oneway: bool = False, body: bytes = b"") -> None:
        """From the client, each code in a Send of its own."""
        flag = ONEWAY_FLAG if oneway else 0
        link = self.client.link()
        self.do(self.client_process, *(Send(link, Command(c, flag=flag, body=body)) for c in codes))

    def run(self, for_ms: int) -> None:
        self.world.run(self.world.now + for_ms)


def test_a_connection_is_opened_at_both_ends() -> None:
    rig = Rig()
    (near,), (far,) = rig.client.heard, rig.server.heard
    assert isinstance(near, Opened)
    assert isinstance(far, Opened)
    assert (near.address, near.dialed) == ("10.0.0.1:1", True)
    assert far.address.startswith("10.0.0.2:")
    assert not far.dialed


@pytest.mark.parametrize("seed", range(20))
def test_one_link_keeps_the_order_and_every_byte_in_any_weather(seed: int) -> None:
    rig = Rig(seed, STORMY)
    rig.network.serialize["client"] = Serialize.ROCKETMQ
    for code in range(1, 60, 2):
        rig.send(code, code + 1, body=b"x" * code)
        rig.run(rig.world.rng(f"gap {code}").randrange(200))
        if code % 20 == 9:
            rig.network.cut(SERVER_ALONE)
        else:
            rig.network.mend()
    rig.network.mend()
    rig.run(20_000)
    assert rig.server.codes() == list(range(1, 61))


def test_a_muted_link_delivers_later_and_in_order() -> None:
    rig = Rig()
    link = rig.server.link()
    rig.do(rig.server_process, Mute(link, rig.world.now + 60_000))
    rig.run(10)
    rig.send(1, 2, 3)
    rig.run(50_000)
    assert rig.server.codes() == []
    rig.run(20_000)
    assert rig.server.codes() == [1, 2, 3]


def test_different_links_overtake_each_other() -> None:
    orders = set()
    for seed in range(10):
        rig = Rig(seed, STORMY)
        rig.dial()
        first, second = (e.link for e in rig.client.heard if isinstance(e, Opened))
        rig.do(rig.client_process, Send(first, Command(1)), Send(second, Command(2)))
        rig.run(5_000)
        orders.add(tuple(rig.server.codes()))
    assert orders == {(1, 2), (2, 1)}


def test_nobody_listens_there() -> None:
    rig = Rig(connect=False)
    rig.dial("10.0.0.1:2")
    rig.dial("10.9.9.9:1")
    assert [type(e) for e in rig.client.heard] == [Refused, Refused]


def test_a_dial_across_a_partition_times_out() -> None:
    rig = Rig(connect=False)
    rig.network.cut(CLIENT_ALONE)
    began = rig.world.now
    rig.do(rig.client_process, Dial("10.0.0.1:1"))
    rig.run(CONNECT_TIMEOUT_MS - 1)
    assert rig.client.heard == []
    rig.run(500)
    assert rig.client.heard == [Refused("10.0.0.1:1", "timed out")]
    assert rig.world.now - began > CONNECT_TIMEOUT_MS


def test_a_short_partition_only_delays() -> None:
    rig = Rig()
    rig.network.cut(SERVER_ALONE)
    rig.send(7)
    rig.run(3_000)
    assert rig.server.codes() == []
    rig.network.mend()
    rig.run(1_000)
    assert rig.server.codes() == [7]
    assert rig.client.closed() == rig.server.closed() == []


def test_a_long_partition_leaves_a_half_open_link_that_is_reset_when_used() -> None:
    rig = Rig()
    rig.network.cut(SERVER_ALONE)
    rig.send(7)
    rig.run(60_000)
    assert rig.client.closed() == ["timed out"]
    assert rig.server.closed() == []
    rig.network.mend()
    rig.run(1_000)
    assert rig.server.codes() == []
    rig.do(rig.server_process, Send(rig.server.link(), Command(8)))
    rig.run(1_000)
    assert rig.server.closed() == ["reset by peer"]
    assert rig.client.codes() == []


def test_a_deaf_host_is_heard_but_hears_nothing() -> None:
    rig = Rig()
    rig.network.cut(NetworkPartition(frozenset({"client"}), deaf=True))
    rig.send(1)
    rig.do(rig.server_process, Send(rig.server.link(), Command(2)))
    rig.run(1_000)
    assert (rig.server.codes(), rig.client.codes()) == ([1], [])
    rig.dial()
    assert isinstance(rig.client.heard[-1], Refused)
    rig.network.mend()
    rig.run(1_000)
    assert rig.client.codes() == [2]


def test_partitions_add_up() -> None:
    rig = Rig()
    rig.network.cut(SERVER_ALONE)
    rig.network.cut(CLIENT_ALONE)
    rig.send(1)
    rig.network.mend(SERVER_ALONE)
    rig.run(1_000)
    assert rig.server.codes() == []
    rig.network.mend(CLIENT_ALONE)
    rig.run(1_000)
    assert rig.server.codes() == [1]


def test_hanging_up_delivers_what_was_sent_before() -> None:
    rig = Rig()
    link = rig.client.link()
    rig.do(rig.client_process, Send(link, Command(1)), Hang(link, "done"), Send(link, Command(2)))
    rig.run(2_000)
    assert rig.server.codes() == [1]
    assert rig.server.closed() == ["closed by peer"]
    assert rig.client.closed() == ["hung up: done"]


def test_a_killed_process_closes_its_links_a_dead_machine_does_not() -> None:
    killed, dark = Rig(), Rig()
    killed.client_process.die("killed")
    killed.run(2_000)
    assert killed.server.closed() == ["closed by peer"]
    dark.client_process.host.up = False
    dark.client_process.die("power", silently=True)
    dark.run(2_000)
    assert dark.server.closed() == []
    dark.do(dark.server_process, Send(dark.server.link(), Command(1)))
    dark.run(60_000)
    assert dark.server.closed() == ["timed out"]


def test_a_broken_link_loses_what_was_under_way_and_both_ends_learn_it() -> None:
    rig = Rig(weather=Weather(delay_ms_min=5))
    rig.send(1)
    rig.world.run(rig.world.now)
    assert rig.network.break_links(5) == 1
    rig.run(30_000)
    assert rig.server.codes() == []
    assert rig.client.closed() == rig.server.closed() == ["reset by peer"]


def test_one_way_requests_vanish_others_do_not() -> None:
    rig = Rig()
    rig.network.oneway_dropped_of_100 = 100
    rig.send(1, oneway=True)
    rig.send(2)
    rig.run(2_000)
    assert rig.server.codes() == [2]
    assert rig.network.dropped == 1


def test_a_silent_link_is_closed_after_a_while() -> None:
    rig = Rig()
    rig.run(IDLE_MS - 20_000)
    rig.send(1)
    rig.run(IDLE_MS - 1_000)
    assert rig.client.closed() == []
    rig.run(3_000)
    assert len(rig.client.closed()) == len(rig.server.closed()) == 1


def test_a_stalled_process_hears_everything_later_in_order() -> None:
    rig = Rig()
    rig.server_process.pause(10_000)
    rig.send(1, 2)
    rig.run(5_000)
    rig.send(3)
    assert rig.server.codes() == []
    rig.run(6_000)
    assert rig.server.codes() == [1, 2, 3]


@pytest.mark.parametrize(
    "act",
    [
        lambda rig: rig.client_process.die("killed"),
        lambda rig: rig.server_process.die("killed"),
        lambda rig: rig.network.break_links(1),
        lambda rig: rig.network.cut(CLIENT_ALONE),
    ],
)
@pytest.mark.parametrize("at_ms", range(8))
def test_dialing_ends_in_opened_or_refused_whatever_happens(
    act: Callable[[Rig], None], at_ms: int
) -> None:
    rig = Rig(at_ms, connect=False)
    rig.do(rig.client_process, Dial("10.0.0.1:1"))
    rig.run(at_ms)
    act(rig)
    rig.run(400_000)
    kinds = [type(event) for event in rig.client.heard]
    if rig.client_process.alive:
        assert kinds in ([Refused], [Opened, Closed])
    assert rig.server.closed() == [] or len(rig.server.closed()) == 1
    assert rig.world.now > EPOCH


# -- dialects --------------------------------------------------------------------------------------


class KafkaRig(Rig):
    """The server has a second address, where it speaks Kafka."""

    def __init__(self, seed: int = 0, weather: Weather = CALM) -> None:
        super().__init__(seed, weather)
        self.network.listen(self.server_process, "10.0.0.1:2", KAFKA)
        self.do(self.client_process, Dial("10.0.0.1:2", KAFKA))
        self.run(5_000)

    def ends(self) -> tuple[Opened, Opened]:
        """Of the Kafka connection: the client's, the server's."""
        client, server = (
            [e for e in ear.heard if isinstance(e, Opened)][-1]
            for ear in (self.client, self.server)
        )
        return client, server


@pytest.mark.parametrize("seed", range(10))
def test_an_address_speaks_its_dialect_in_bytes(seed: int) -> None:
    rig = KafkaRig(seed, STORMY)
    near, far = rig.ends()
    assert (near.dialect, far.dialect) == (KAFKA, KAFKA)
    assert (near.address, near.dialed, far.dialed) == ("10.0.0.1:2", True, False)
    asked = [Request(HEARTBEAT, 4, n, "c", HeartbeatRequest("g" * n, n)) for n in range(1, 9)]
    rig.do(rig.client_process, *(Send(near.link, request) for request in asked))
    rig.run(10_000)
    assert [e.message for e in rig.server.heard if isinstance(e, Received)] == asked
    answers = [Reply(HEARTBEAT, 4, n, HeartbeatResponse(0, n)) for n in range(1, 9)]
    rig.do(rig.server_process, *(Send(far.link, answer) for answer in answers))
    rig.run(10_000)
    heard = [e.message for e in rig.client.heard if isinstance(e, Received)]
    got = [reply for reply in heard if isinstance(reply, RawReply)]
    assert got == heard
    assert [read_reply(HEARTBEAT, 4, reply) for reply in got] == [a.message for a in answers]


def test_who_speaks_another_dialect_than_the_address_is_wrong() -> None:
    rig = KafkaRig()
    rig.do(rig.client_process, Dial("10.0.0.1:1", KAFKA))
    with pytest.raises(AssertionError, match="client speaks kafka"):
        rig.run(5_000)


def test_a_dead_process_listens_at_none_of_its_addresses() -> None:
    rig = KafkaRig()
    rig.server_process.die("killed")
    rig.do(rig.client_process, Dial("10.0.0.1:2", KAFKA))
    rig.run(5_000)
    assert Refused("10.0.0.1:2", "connection refused") in rig.client.heard
