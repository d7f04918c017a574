"""Joining the cluster: no other broker may use this one's name, node id or addresses (9007).

Apache's nameservers replace a broker by the last one that registers under its name; the first goes
on without clients. Here a broker looks before it registers, and again afterwards:

1. It asks every nameserver which brokers are registered (106) and, if it has a Kafka port, which
   node ids and Kafka addresses they have (219). A listed broker that clashes with this one is
   asked itself who it is (9007), because it may have been killed since. If nobody is there, the
   listing is outdated. If it accepts connections but does not answer, or does not know the request
   (Apache's brokers), it is there.
2. Without a rival the broker registers. It looks again a second later, and then at growing
   intervals, until it finds itself listed: then it has joined. If no nameserver answers, it serves
   its clients, and looks again a second after one has registered it; it joins after an interval of
   registration, in which everybody who was there before has registered again.
3. Of two rivals, the one that has joined stays. Of two that have not, the one that started first
   stays or, if both started in the same millisecond, the one with the lower address. The other
   answers `Asked(AwaitRefusal)` with a ConfigError.
4. A broker that has joined never stops for a rival, whatever is listed or claimed, because clients
   use it. It looks in every interval of registration; two that could not see each other for a time
   both log an ERROR.

The request 9007 says who asks. A broker that is asked by a rival looks for itself at the address
that it was told. A restarted nameserver lists nobody: all have joined already, and stay.
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
from steelyard.nodes.broker.peers.requests import IDENTIFY, read_body
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.seam import Answer, Call, Effect, SetTimer
from steelyard.routes.brokers import BrokerEntry, brokers_namespace
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ClusterInfo, KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import MASTER_ID

JOINING_TIMER = "joining"

LOOK_AGAIN_MS = 1_000
LIST_TIMEOUT_MS = 2_000
"""How long one nameserver may delay the start; then the others, or none, must suffice."""
IDENTIFY_TIMEOUT_MS = 5_000
"""Longer than connecting may take, so that a refused connection differs from no answer."""

SUSPECTS_MAX = 16
"""Maximum of brokers asked in one look, and of claims kept."""


class BrokerIdentity(msgspec.Struct, frozen=True):
    """Who a broker is: the body of request 9007 and of its answer.

    `node_id` and `kafka` (its Kafka address): -1 and empty without a Kafka port. `started_at`: in
    ms since the epoch, by its own clock. `joined`: it stays, whoever else is there.
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
    """Answered with a ConfigError if another broker clashes with this one; otherwise never."""


class _List(PendingCall, frozen=True):
    """A nameserver was asked which brokers are registered."""

    serial: int
    is_entries: bool


class _Identify(PendingCall, frozen=True):
    """A suspect was asked who it is.

    `listed`: as whom the nameservers know it, None if it asked this broker.
    """

    serial: int
    address: str
    listed: BrokerIdentity | None


class ClusterJoining:
    """Decides whether the broker may join; see the module docstring.

    `calls` belongs to the node, which passes the outcomes to `ended`.
    """

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
        """The first look is done and found no rival, or there are no nameservers."""
        self._refusal: ConfigError | None = None
        self._waiting: list[int] = []
        self._serial = 0
        self._pending = 0
        self._heard = False
        """A nameserver answered in the current look."""
        self._listed: dict[tuple[str, str], BrokerIdentity] = {}
        """All masters found in the current look, by (name, address)."""
        self._entries: dict[str, BrokerEntry] = {}
        self._rivals: list[BrokerIdentity] = []
        self._is_identifying = False
        self._claims: set[str] = set()
        """Addresses of brokers that asked this one who it is, and clash with it."""
        self._pause_ms = LOOK_AGAIN_MS
        self._join_at = now
        self._is_deaf = False
        """No nameserver answered in the last look, and no further one is planned."""
        self._told: set[str] = set()

    # -- a look ----------------------------------------------------------------------------------

    def look(self, now: int, effects: list[Effect]) -> None:
        """Ask all nameservers which brokers are registered, unless a look is under way."""
        if self._pending or self._refusal is not None or not self._config.nameservers:
            return
        self._serial += 1
        self._heard = self._is_identifying = False
        self._listed, self._entries, self._rivals = {}, {}, []
        namespace = brokers_namespace(self._config.cluster)
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
            return  # too many calls are pending: treated like a missing answer
        self._pending += 1

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the end of a call; return False if it is none of this part's."""
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
        """Return the brokers to ask who they are: (address, as whom it is listed)."""
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
            rival = None  # nobody is there, or it is stopping
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
        """Look again soon after a registration, if no nameserver answered in the last look."""
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
        """Answer the call when this broker is refused, or now if it was already."""
        if self._refusal is not None:
            effects.append(Answer(call_id, self._refusal))
        else:
            self._waiting.append(call_id)

    @serves(IDENTIFY)
    def identify(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9007: say who this broker is, and look if the asker is a rival.

        Raises ProtocolError.
        """
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
    """Return what two brokers both use and what to do about it; empty if there is nothing."""
    who = f"{other.name} at {other.address}"
    if me.name == other.name:
        return (
            f"the broker name {me.name} is in use by the broker at {other.address}"
            f" (cluster {other.cluster}): give this one another --name, or stop the other"
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
    """Return whether the rival stays; if both have joined, both do."""
    if rival.joined or me.joined:
        return rival.joined
    return (rival.started_at, rival.address) < (me.started_at, me.address)
