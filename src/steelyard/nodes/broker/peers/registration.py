"""Registration with the nameservers: all topics, at the start, on changes, and every 30 seconds.

One round is under way at a time and calls every nameserver; changes that come meanwhile share the
next. Operators' requests that change topics are answered when the nameservers know
(`answer_when_known`), so that whoever asks for the route next finds it. If a nameserver does not
answer, the round is repeated after a second, then two, and so on up to the interval. Nameservers of
ours are also sent this broker's users of RocketMQ 5.x, so that they verify their requests, too.
Source: broker/BrokerController.registerBrokerAll, broker/out/BrokerOuterAPI.java.
"""

from __future__ import annotations

import zlib

import msgspec

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.acl_users import AclUserStore
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.broker.topics import TopicConfigs
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.seam import Answer, Call, Effect, Link, SetTimer
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import RegisterBrokerBody, TopicConfigTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

REGISTER_TIMER = "register"

RETRY_MS = 1_000

WAITING_MAX = 10_000
"""Maximum of replies that wait for a round; further ones are not held back."""

REGISTER = "register"
UNREGISTER = "unregister"
ACL_USERS = "users"


class AwaitRegistration(Call[None], frozen=True):
    """Answered with None when a nameserver has registered the broker, and all have been asked."""


class PendingCall(msgspec.Struct, frozen=True):
    """Base of the purposes of calls other than registration."""


Purpose = str | PendingCall
"""The purpose of a call to a nameserver or another broker."""


class Registration:
    """Registers the broker; see the module docstring.

    `calls` belongs to the node, which passes the outcomes to `ended`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        users: AclUserStore,
        calls: Calls[Purpose],
        durability: Durability,
    ) -> None:
        self._config = config
        self._durability = durability
        self._topics = topics
        self._users = users
        self._calls = calls
        self._pending = 0
        self._again = False
        self._failed = False
        self._retry_ms = RETRY_MS
        self._silent: set[str] = set()
        self._without_users: set[str] = set()
        """Apache's nameservers, which verify no requests."""
        self._covered: list[tuple[Link, Command]] = []
        self._waiting: list[tuple[Link, Command]] = []
        self._is_registered = False
        """At least one nameserver has registered this broker."""
        self._awaiting: list[int] = []
        """Calls that wait for that."""
        self._stopping = False
        self._is_open = False
        """This broker may register; see `joining`."""

    # -- rounds ----------------------------------------------------------------------------------

    def open(self, now: int, effects: list[Effect]) -> None:
        """Register for the first time, when `joining` has found no rival."""
        self._is_open = True
        self.begin(now, effects)

    def begin(self, now: int, effects: list[Effect]) -> None:
        """Register with all nameservers, or do so once more after the round under way."""
        if self._stopping or not self._is_open or not self._config.nameservers:
            return
        if self._pending:
            self._again = True
            return
        self._again = self._failed = False
        self._covered, self._waiting = self._waiting, []
        requests = [(REGISTER, self._request())]
        if self._users.were_any:
            requests.append((ACL_USERS, self._users_request()))
        timeout_ms = self._config.nameserver_timeout_ms
        for address in self._config.nameservers:
            for purpose, request in requests:
                if purpose == ACL_USERS and address in self._without_users:
                    continue
                self._pending += 1
                self._calls.call(address, request, purpose, now, timeout_ms, effects)

    def changed(self, now: int, effects: list[Effect]) -> None:
        """Register changed topics."""
        self.begin(now, effects)

    def answer_when_known(
        self, request: RemotingRequest, answer: Command, effects: list[Effect]
    ) -> Command | None:
        """Return the reply to a request after `changed` if it can be sent now, else None.

        It waits for the nameservers and, with flush=sync, for the disk.
        """
        if not self._pending or request.is_oneway or len(self._waiting) >= WAITING_MAX:
            return self._durability.acknowledge(request, answer, effects)
        if self._again:
            self._waiting.append((request.peer.link, answer))
        else:
            self._covered.append((request.peer.link, answer))
        return None

    def _request(self) -> Command:
        table = TopicConfigTable(self._topics.all(), self._topics.version)
        body = fastjson.write(RegisterBrokerBody(table))
        header = headers.RegisterBrokerRequestHeader(
            broker_name=self._config.name,
            broker_addr=self._config.address,
            cluster_name=self._config.cluster,
            ha_server_addr=self._config.address,
            broker_id=0,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return Command(int(RequestCode.REGISTER_BROKER), ext=headers.write(header), body=body)

    def _users_request(self) -> Command:
        header = headers.BrokerNameHeader(broker_name=self._config.name)
        body = msgspec.json.encode(self._users.all())
        return Command(int(SteelyardCode.ACL_USERS), ext=headers.write(header), body=body)

    def await_registration(self, call_id: int, effects: list[Effect]) -> None:
        """Answer the call after a round in which a nameserver has registered this broker."""
        self._awaiting.append(call_id)
        if not self._pending:
            self._answer_awaiting(effects)

    def _answer_awaiting(self, effects: list[Effect]) -> None:
        if self._is_registered:
            effects.extend(Answer(call_id, None) for call_id in self._awaiting)
            self._awaiting.clear()

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        """Handle the end of a call to a nameserver."""
        self._pending -= 1
        if outcome.purpose == UNREGISTER:
            return
        reply = outcome.reply
        fault = ""
        if not isinstance(reply, Command):
            fault = str(reply)
        elif outcome.purpose == ACL_USERS and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._without_users.add(outcome.address)
        elif reply.code != ResponseCode.SUCCESS:
            fault = f"code {reply.code}: {reply.remark}"
        if fault:
            self._failed = True
            if outcome.address not in self._silent:
                self._silent.add(outcome.address)
                text = f"nameserver {outcome.address} did not register {self._config.name}: {fault}"
                effects.append(LogLine("WARNING", text))
        else:
            self._is_registered = True
            if outcome.address in self._silent:
                self._silent.discard(outcome.address)
                effects.append(LogLine("INFO", f"nameserver {outcome.address} registers us again"))
        if not self._pending:
            self._round_over(now, effects)

    def _round_over(self, now: int, effects: list[Effect]) -> None:
        for link, answer in self._covered:
            self._durability.send(link, answer, effects)
        self._covered = []
        self._answer_awaiting(effects)
        if self._stopping:
            return
        interval_ms = self._config.register_interval_ms
        if self._failed:
            effects.append(SetTimer(REGISTER_TIMER, now + min(self._retry_ms, interval_ms)))
            self._retry_ms = min(self._retry_ms * 2, max(interval_ms, RETRY_MS))
        else:
            self._retry_ms = RETRY_MS
            effects.append(SetTimer(REGISTER_TIMER, now + interval_ms))
        if self._again:
            self.begin(now, effects)

    def link_lost(self, address: str, now: int, effects: list[Effect]) -> None:
        """Register again soon if the link was a nameserver's, which then dropped the routes."""
        self._without_users.discard(address)
        if address in self._config.nameservers and not self._stopping:
            effects.append(SetTimer(REGISTER_TIMER, now + RETRY_MS))

    # -- stopping --------------------------------------------------------------------------------

    def stop(self, now: int, effects: list[Effect]) -> None:
        """Unregister from all connected nameservers; `idle` is True when they have answered."""
        self._stopping = True
        self._again = False
        for link, answer in (*self._covered, *self._waiting):
            self._durability.send(link, answer, effects)
        self._covered, self._waiting = [], []
        header = headers.BrokerIdentityHeader(
            broker_name=self._config.name,
            broker_addr=self._config.address,
            cluster_name=self._config.cluster,
            broker_id=0,
        )
        request = Command(int(RequestCode.UNREGISTER_BROKER), ext=headers.write(header))
        for address in self._calls.linked():
            if address not in self._config.nameservers or not self._is_open:
                continue
            self._pending += 1
            self._calls.call(address, request, UNREGISTER, now, STOP_TIMEOUT_MS, effects)

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._pending

    def check(self) -> None:
        assert self._pending >= 0
        if not self._pending:
            assert not self._covered
            assert not self._waiting
            assert not self._again


STOP_TIMEOUT_MS = 2_000
"""How long a clean stop waits for the nameservers."""
