"""Whether this broker may join its cluster: nobody else may use its name, its node id or its addresses (9007).

Apache's nameservers let the last broker that registers under a name have it; the other goes on unheard. Here a
broker looks before it registers, and once more afterwards:

1. It asks every nameserver who is registered (106) and, with a Kafka port, which node ids and Kafka addresses
   they have (219). Whoever is listed with something that is ours is asked itself who it is (9007): a listing may
   be of a broker that was killed. Nobody there: the listing is old. It accepts connections but does not answer,
   or does not know the request (Apache's brokers): it is there.
2. Without a rival it registers. A second later it looks again, until it finds itself listed: then it has joined.
   Where no nameserver answers, it serves, and looks again a second after one has registered it; it has joined
   after an interval of registration then, in which everybody who was there before has registered again.
3. Of two rivals the one that has joined stays. Of two that start together the one that started first does, or,
   of the same millisecond, that with the lower address. The other answers `Asked(AwaitRefusal)` with a ConfigError.
4. One that has joined never stops for a rival, whatever is listed or claimed: clients use it. It looks every
   interval of registration, and two that could not see each other for a time become an ERROR in both logs.

A broker that asks tells who it is; the one that is asked looks by itself at the address that it was told. A
restarted nameserver knows nobody: all have joined already and stay.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.config import BrokerConfig
from steelyard.errors import (
    CallTimeoutError,
    ConfigError,
    ProtocolError,
    RemotingError,
)
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose, Registration
from steelyard.nodes.broker.peers.requests import IDENTIFY, BrokerEntry, read_body
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.seam import Answer, Call, Effect, SetTimer
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ClusterInfo, KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import MASTER_ID

JOINING_TIMER = "joining"

LOOK_AGAIN_MS = 1_000
LIST_TIMEOUT_MS = 2_000
"""How long a nameserver may hold up a start; after it, others or nobody must do."""
IDENTIFY_TIMEOUT_MS = 5_000
"""Longer than a connection may take to be made, so that no connection is told from no answer."""

SUSPECTS_MAX = 16
"""Most brokers that are asked in one look, and most claims that are kept."""


class BrokerIdentity(msgspec.Struct, frozen=True):
    """Who a broker is: body of 9007 and of its answer. `node_id` and `kafka` (its Kafka address): -1 and empty without a Kafka port.

    `started_at`: milliseconds since the epoch by its own clock. `joined`: it stays, whoever else is there.
    """

    name: str
    cluster: str
    address: str
    node_id: int = -1
    kafka: str = ""
    started_at: int = 0
    joined: bool = True

    @property
    def is_kafka(self) -> bool:
        return bool(self.kafka)


class AwaitRefusal(Call[object], frozen=True):
    """Answered with a ConfigError when another broker has what is this one's; otherwise never."""


class _List(PendingCall, frozen=True):
    """A nameserver was asked who is there."""

    serial: int
    is_entries: bool


class _Identify(PendingCall, frozen=True):
    """A suspect was asked who it is. `listed`: as whom the nameservers know it, None where it came to us."""

    serial: int
    address: str
    listed: BrokerIdentity | None


class ClusterJoining:
    """See the module's text. `calls` is the node's: its outcomes come back through `ended`."""

    def __init__(
        self, config: BrokerConfig, calls: Calls[Purpose], registration: Registration, now: int
    ) -> None:
        self._config = config
        self._calls = calls
        self._registration = registration
        kafka = config.kafka
        self._me = BrokerIdentity(
            config.name,
            config.cluster,
            config.address,
            -1 if kafka is None else kafka.node_id,
            "" if kafka is None else kafka.address,
            now,
            joined=False,
        )
        self.may_serve = not config.nameservers
        """The first look is done: nobody was found to have what is ours."""
        self._refusal: ConfigError | None = None
        self._waiting: list[int] = []
        self._serial = 0
        self._pending = 0
        self._heard = False
        """A nameserver answered in the look under way."""
        self._listed: dict[tuple[str, str], BrokerIdentity] = {}
        """(name, address) of all masters, of the look under way."""
        self._entries: dict[str, BrokerEntry] = {}
        self._rivals: list[BrokerIdentity] = []
        self._is_identifying = False
        self._claims: set[str] = set()
        """Addresses of brokers that asked us and have something that is ours."""
        self._pause_ms = LOOK_AGAIN_MS
        self._join_at = now
        self._is_deaf = False
        """No nameserver answered to the last look, and no further one is planned."""
        self._told: set[str] = set()

    # -- a look ----------------------------------------------------------------------------------

    def look(self, now: int, effects: list[Effect]) -> None:
        """Ask all nameservers who is there, unless a look is under way."""
        if self._pending or self._refusal is not None or not self._config.nameservers:
            return
        self._serial += 1
        self._heard = self._is_identifying = False
        self._listed, self._entries, self._rivals = {}, {}, []
        namespace = f"STEELYARD_KAFKA_BROKERS@{self._config.cluster}"
        for address in self._config.nameservers:
            request = Command(int(RequestCode.GET_BROKER_CLUSTER_INFO))
            self._ask(address, request, _List(self._serial, False), LIST_TIMEOUT_MS, now, effects)
            if self._me.is_kafka:
                ext = headers.write(headers.KVConfigHeader(namespace=namespace))
                request = Command(int(RequestCode.GET_KVLIST_BY_NAMESPACE), ext=ext)
                pending = _List(self._serial, True)
                self._ask(address, request, pending, LIST_TIMEOUT_MS, now, effects)
        self._go_on(now, effects)

    def _ask(
        self,
        address: str,
        request: Command,
        pending: PendingCall,
        timeout_ms: int,
        now: int,
        effects: list[Effect],
    ) -> None:
        try:
            self._calls.call(address, request, pending, now, timeout_ms, effects)
        except RemotingError:
            return  # too much is under way: as if there were no answer
        self._pending += 1

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """A call ended; False where it was none of ours."""
        pending = outcome.purpose
        if not isinstance(pending, _List | _Identify):
            return False
        self._pending -= 1
        assert pending.serial == self._serial
        if isinstance(pending, _Identify):
            self._identified(pending, outcome.reply)
        elif isinstance(outcome.reply, Command):
            try:
                self._take_list(pending, outcome.reply)
            except ProtocolError as error:
                text = f"nameserver {outcome.address} did not list the registered brokers: {error}"
                effects.append(LogLine("WARNING", text))
        self._go_on(now, effects)
        return True

    def _take_list(self, pending: _List, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return  # it knows no such settings, or is another kind of server
        if pending.is_entries:
            for name, text in fastjson.read(KVTable, answer.body).table.items():
                try:
                    self._entries[name] = read_body(text.encode(), BrokerEntry)
                except ProtocolError:
                    continue
            return
        for name, data in fastjson.read(ClusterInfo, answer.body).broker_addr_table.items():
            address = data.broker_addrs.get(MASTER_ID)
            if address is not None:
                self._listed[name, address] = BrokerIdentity(name, data.cluster, address)
        self._heard = True

    def _go_on(self, now: int, effects: list[Effect]) -> None:
        if self._pending:
            return
        if not self._is_identifying:
            self._is_identifying = True
            for address, listed in self._suspects()[:SUSPECTS_MAX]:
                self._claims.discard(address)
                request = Command(IDENTIFY, body=msgspec.json.encode(self._me))
                pending = _Identify(self._serial, address, listed)
                self._ask(address, request, pending, IDENTIFY_TIMEOUT_MS, now, effects)
            if self._pending:
                return
        self._conclude(now, effects)

    def _suspects(self) -> list[tuple[str, BrokerIdentity | None]]:
        """Whom to ask who they are: (address, as whom they are listed)."""
        me = self._me
        found: dict[str, BrokerIdentity | None] = {}
        for (name, address), listed in sorted(self._listed.items()):
            entry = self._entries.get(name)
            if entry is not None and listed.cluster == me.cluster:
                listed = msgspec.structs.replace(listed, node_id=entry.node_id, kafka=entry.address)
            if (name, address) != (me.name, me.address) and clash(me, listed):
                found[address] = listed
        for address in sorted(self._claims):
            found.setdefault(address, None)
        return list(found.items())

    def _identified(self, pending: _Identify, answer: Command | RemotingError) -> None:
        me, rival = self._me, pending.listed
        if isinstance(answer, CallTimeoutError):
            pass  # it accepts connections, and does not answer
        elif isinstance(answer, RemotingError) or answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            rival = None  # nobody is there, or it stops
        elif answer.code == ResponseCode.SUCCESS:
            try:
                rival = read_body(answer.body, BrokerIdentity)
            except ProtocolError:
                rival = pending.listed  # somebody is there, and does not say who
            else:
                if (rival.address, rival.started_at) == (me.address, me.started_at):
                    rival = None  # we are listed under an old name
        if rival is not None and clash(me, rival):
            self._rivals.append(rival)

    # -- what follows ----------------------------------------------------------------------------

    def _conclude(self, now: int, effects: list[Effect]) -> None:
        me = self._me
        stronger = [rival for rival in self._rivals if _is_stronger(rival, me)]
        if me.joined:
            self._tell_rivals(stronger, effects)
        elif stronger:
            self._refuse(ConfigError(clash(me, stronger[0])), effects)
            return
        if not self.may_serve:
            self.may_serve = True
            self._registration.open(now, effects)
        elif (me.name, me.address) in self._listed and now >= self._join_at:
            self._me = msgspec.structs.replace(me, joined=True)
            self._claims.clear()
        elif self._heard and any(rival.name == me.name for rival in self._rivals):
            self._registration.begin(now, effects)  # it registered after us
        interval_ms = self._config.register_interval_ms
        if self._claims:
            effects.append(SetTimer(JOINING_TIMER, now))  # somebody asked meanwhile
        elif self._me.joined:
            effects.append(SetTimer(JOINING_TIMER, now + interval_ms))
        elif self._heard:
            effects.append(SetTimer(JOINING_TIMER, now + min(self._pause_ms, interval_ms)))
            self._pause_ms = min(self._pause_ms * 2, interval_ms)
        self._is_deaf = not self._heard and not self._me.joined

    def registered(self, now: int, effects: list[Effect]) -> None:
        """A nameserver answered to a registration: if none had answered to us, one will now."""
        if self._is_deaf:
            self._is_deaf = False
            self._join_at = now + self._config.register_interval_ms + LOOK_AGAIN_MS
            effects.append(SetTimer(JOINING_TIMER, now + LOOK_AGAIN_MS))

    def _tell_rivals(self, rivals: Iterable[BrokerIdentity], effects: list[Effect]) -> None:
        texts = [clash(self._me, rival) for rival in rivals]
        effects.extend(
            LogLine("ERROR", f"{text} (both are running, and clients confuse them)")
            for text in texts
            if text not in self._told
        )
        self._told = set(texts)

    def _refuse(self, error: ConfigError, effects: list[Effect]) -> None:
        self._refusal = error
        if not self._waiting:
            effects.append(LogLine("ERROR", str(error)))
        effects.extend(Answer(call_id, error) for call_id in self._waiting)
        self._waiting.clear()

    def await_refusal(self, call_id: int, effects: list[Effect]) -> None:
        """Answer an `Asked` when this broker is refused."""
        if self._refusal is not None:
            effects.append(Answer(call_id, self._refusal))
        else:
            self._waiting.append(call_id)

    @serves(IDENTIFY)
    def identify(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """9007. Raises ProtocolError."""
        other = read_body(request.body, BrokerIdentity)
        if (
            not self._me.joined
            and self._config.nameservers
            and clash(self._me, other)
            and len(self._claims) < SUSPECTS_MAX
        ):
            self._claims.add(other.address)
            effects.append(SetTimer(JOINING_TIMER, now))
        return request.reply(body=msgspec.json.encode(self._me))

    def check(self) -> None:
        assert self._pending >= 0
        assert len(self._claims) <= SUSPECTS_MAX
        assert not (self._me.joined and self._refusal is not None)


def clash(me: BrokerIdentity, other: BrokerIdentity) -> str:
    """What is wrong where two brokers have the same, and what to do about it; empty where nothing is."""
    who = f"{other.name} at {other.address}"
    if me.name == other.name:
        return (
            f"the broker name {me.name} is in use by the broker at {other.address} (cluster {other.cluster}):"
            " give this one another --name, or stop the other"
        )
    if me.address == other.address:
        return (
            f"the address {me.address} is in use by the broker {other.name}: give this one another"
            " --port or --advertise, or stop the other"
        )
    if not (me.is_kafka and other.is_kafka and me.cluster == other.cluster):
        return ""
    if me.node_id == other.node_id:
        return (
            f"the Kafka node id {me.node_id} is in use by the broker {who}: give this one another"
            " --node-id, or stop the other"
        )
    if me.kafka == other.kafka:
        return (
            f"the Kafka address {me.kafka} is in use by the broker {who}: give this one another"
            " --kafka-port or --kafka-advertise, or stop the other"
        )
    return ""


def _is_stronger(rival: BrokerIdentity, me: BrokerIdentity) -> bool:
    """The rival stays; of two that have joined both do."""
    if rival.joined or me.joined:
        return rival.joined
    return (rival.started_at, rival.address) < (me.started_at, me.address)
