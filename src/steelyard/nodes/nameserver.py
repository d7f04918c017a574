"""The nameserver: stores the routes that brokers register and serves them.

| code | request | answer |
|---|---|---|
| 100, 101, 102, 219 | put, get, delete, list settings | 101 and 219: 22 if there is none |
| 103, 104 | a broker registers, unregisters | 103: the master's address, and the order settings |
| 105 | the route of a topic | 17 if there is none |
| 106 | all brokers and clusters | |
| 205, 327 | remove or add the write permission of a broker's topics | the number of topics |
| 206, 224 | all topics, those of a cluster | |
| 216 | delete a topic | |
| 304 | topics named after clusters and brokers | and a broker that knows of more (305) |
| 9106 | a broker's users of RocketMQ 5.x (of ours) | |
| 322 | have the broker's topics changed since it registered? | also counts as a heartbeat |

- A broker's routes are removed when its connection closes, or when it has been silent for too long,
  not counting time in which the nameserver did not run.
- Map keys that are numbers are quoted for peers of 4.9.4 and later and those that request it
  (`acceptStandardJsonOnly`); older ones get fastjson's `{0:"address"}`. The answer to 106 is never
  quoted.
- Not implemented: zones, replicas acting as master, static topics, persistence of settings.
Source: namesrv/processor/DefaultRequestProcessor.java, ClientRequestProcessor.java.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from msgspec.structs import replace

from steelyard.acl.accounts import Accounts
from steelyard.acl.policies import read_users
from steelyard.config import NameserverConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.access.book import AccountBook, AccountsChanged
from steelyard.nodes.access.guard import AccessGuard
from steelyard.nodes.access.needs import NEEDS, check_complete
from steelyard.nodes.pulse import Pulse
from steelyard.nodes.refusals import Refusals
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Closed,
    Due,
    Effect,
    Event,
    HandlerError,
    Hang,
    Link,
    Opened,
    Received,
    Send,
    SetTimer,
)
from steelyard.routes.table import ORDER_TOPIC_CONFIG, BrokerRegistration, Full, RouteTable
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicList
from steelyard.wire.remoting.codes import BROKER_CODES, RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response
from steelyard.wire.remoting.names import FAQ

SCAN_TIMER = "scan"
ACCESS_TIMER = "access"

STANDARD_JSON_VERSION = 401
"""V4_9_4: peers of this version and later are sent standard JSON."""

Handler = Callable[[Command, Link, int], Command]


class NameserverNode:
    """See the module's text. `accounts`: of its clients; None: they need none."""

    def __init__(self, config: NameserverConfig, accounts: Accounts | None = None) -> None:
        self._config = config
        self._pulse = Pulse()
        self._table = RouteTable(self._pulse.clock)
        self._links: dict[Link, str] = {}
        self._refusals = Refusals()
        self._handlers: dict[int, Handler] = {
            RequestCode.PUT_KV_CONFIG: self._put_setting,
            RequestCode.GET_KV_CONFIG: self._get_setting,
            RequestCode.DELETE_KV_CONFIG: self._delete_setting,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_settings,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            SteelyardCode.ACL_USERS: self._take_users,
        }
        check_complete(self._handlers, NEEDS)
        self._accounts = None if accounts is None else AccountBook(accounts)
        self._guard = None if self._accounts is None else AccessGuard(self._accounts, NEEDS)
        self._guard_at: int | None = None

    # -- the seam --------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        effects: list[Effect] = [SetTimer(SCAN_TIMER, now + self._config.scan_interval_ms)]
        self._pulse.beat(now, effects)
        return effects

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        self._pulse.beat(now, effects)
        match event:
            case Received(link, message):
                assert isinstance(message, Command)
                self._received(link, message, now, effects)
            case Opened(link, address):
                self._links[link] = address
            case Closed(link, _):
                self._links.pop(link, None)
                if self._guard is not None:
                    self._guard.closed(link)
                effects += [
                    LogLine(
                        "INFO",
                        f"broker {address} closed its connection and was removed from the routes",
                    )
                    for address in self._table.link_closed(link)
                ]
            case Due(key):
                if key == SCAN_TIMER:
                    self._scan(now, effects)
                elif key == ACCESS_TIMER:
                    assert self._guard is not None
                    self._guard_at = None
                    self._guard.expire(now, effects)
            case Asked(call_id, call):
                assert isinstance(call, AccountsChanged)
                assert self._accounts is not None
                effects.append(Answer(call_id, self._accounts.take(call)))
            case _:
                pass
        if self._guard is not None:
            self._arm(self._guard, effects)
        return effects

    def _arm(self, guard: AccessGuard, effects: list[Effect]) -> None:
        """Set the timer for answers that are sent late."""
        at = guard.next_at
        if at is not None and (self._guard_at is None or at < self._guard_at):
            self._guard_at = at
            effects.append(SetTimer(ACCESS_TIMER, at))

    def check(self) -> None:
        self._table.check()

    def _received(self, link: Link, request: Command, now: int, effects: list[Effect]) -> None:
        if is_response(request):
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            if request.code in BROKER_CODES:
                remark += ": this is a nameserver's port; send it to a broker"
            reply = _reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            try:
                if not self._admits(request, link, now, effects):
                    return
                reply = handler(request, link, now)
            except ProtocolError as error:
                address = self._links.get(link, "")
                self._refusals.tell(address, request.code, str(error), now, effects)
                reply = _reply(ResponseCode.SYSTEM_ERROR, str(error))
            except Exception as error:
                reply = _reply(ResponseCode.SYSTEM_ERROR, "an internal error; see the log")
                self._answer(link, request, reply, effects)
                raise HandlerError(effects) from error
        self._answer(link, request, reply, effects)

    def _admits(self, request: Command, link: Link, now: int, effects: list[Effect]) -> bool:
        """Return whether a request may be handled; otherwise it was answered."""
        if self._guard is None:
            return True
        address = self._links.get(link, "")
        return self._guard.admit(request, link, address, now, effects) is not None

    @staticmethod
    def _answer(link: Link, request: Command, reply: Command, effects: list[Effect]) -> None:
        if not is_oneway(request):
            effects.append(Send(link, replace(reply, opaque=request.opaque)))

    def _scan(self, now: int, effects: list[Effect]) -> None:
        effects.append(SetTimer(SCAN_TIMER, now + self._config.scan_interval_ms))
        for address, link in self._table.expire(now):
            effects.append(
                LogLine(
                    "WARNING",
                    f"broker {address} stopped sending heartbeats and was removed from the routes",
                )
            )
            if link in self._links:
                effects.append(Hang(link, "no registration for too long"))

    # -- brokers ---------------------------------------------------------------------------------

    def _register(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.RegisterBrokerRequestHeader, request.ext)
        if header.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != header.body_crc32:
            return _reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if header.compressed:
            return _reply(
                ResponseCode.SYSTEM_ERROR,
                "compressed registration is not supported: set compressedRegister=false",
            )
        body = fastjson.read(RegisterBrokerBody, request.body)
        topics = body.topic_config_serialize_wrapper
        answer = self._table.register(
            BrokerRegistration(
                cluster=header.cluster_name,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                address=header.broker_addr,
                ha_address=header.ha_server_addr,
                version=topics.data_version,
                topics=topics.topic_config_table,
                expiry_ms=header.heartbeat_timeout_millis or self._config.broker_expiry_ms,
            ),
            link,
            now,
        )
        if isinstance(answer, Full):
            return _reply(ResponseCode.SYSTEM_ERROR, f"register broker failed: {answer.reason}")
        reply = headers.RegisterBrokerResponseHeader(
            ha_server_addr=answer.ha_address or None, master_addr=answer.address or None
        )
        orders = self._table.settings(ORDER_TOPIC_CONFIG)
        body_bytes = b"" if orders is None else fastjson.write(KVTable(orders))
        return _reply(ext=headers.write(reply), body=body_bytes)

    def _take_users(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.BrokerNameHeader, request.ext)
        if self._accounts is not None:
            self._accounts.put_users(header.broker_name, read_users(request.body))
        return _reply()

    def _unregister(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.BrokerIdentityHeader, request.ext)
        self._table.unregister(header.cluster_name, header.broker_name, header.broker_addr)
        return _reply()

    def _query_version(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.BrokerIdentityHeader, request.ext)
        told = fastjson.read(DataVersion, request.body)
        known = self._table.version(header.cluster_name, header.broker_addr)
        self._table.touch(header.cluster_name, header.broker_addr, now)
        reply = headers.QueryDataVersionResponseHeader(changed=known != told)
        body = b"" if known is None else fastjson.write(known)
        return _reply(ext=headers.write(reply), body=body)

    def _wipe_write_permission(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.BrokerNameHeader, request.ext)
        count = self._table.set_write_permission(header.broker_name, allowed=False)
        return _reply(ext={"wipeTopicCount": str(count)})

    def _add_write_permission(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.BrokerNameHeader, request.ext)
        count = self._table.set_write_permission(header.broker_name, allowed=True)
        return _reply(ext={"addTopicCount": str(count)})

    # -- routes ----------------------------------------------------------------------------------

    def _route(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.GetRouteInfoRequestHeader, request.ext)
        route = self._table.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{FAQ}"
            return _reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        order = self._table.setting(ORDER_TOPIC_CONFIG, header.topic)
        if order is not None:
            route = replace(route, order_topic_conf=order)
        standard = request.version >= STANDARD_JSON_VERSION or bool(
            header.accept_standard_json_only
        )
        return _reply(body=fastjson.write(route, int_keys_quoted=standard))

    def _cluster_info(self, request: Command, link: Link, now: int) -> Command:
        return _reply(body=fastjson.write(self._table.cluster_info(), int_keys_quoted=False))

    def _topics(self, request: Command, link: Link, now: int) -> Command:
        return _reply(body=fastjson.write(TopicList(self._table.topics())))

    def _topics_of_cluster(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.ClusterRequestHeader, request.ext)
        return _reply(body=fastjson.write(TopicList(self._table.topics_of(header.cluster))))

    def _system_topics(self, request: Command, link: Link, now: int) -> Command:
        info = self._table.cluster_info()
        names = [
            name
            for cluster, brokers in info.cluster_addr_table.items()
            for name in (cluster, *brokers)
        ]
        addresses = [
            address
            for broker in info.broker_addr_table.values()
            for address in broker.broker_addrs.values()
        ]
        return _reply(body=fastjson.write(TopicList(tuple(names), next(iter(addresses), None))))

    def _delete_topic(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.DeleteTopicFromNamesrvRequestHeader, request.ext)
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return _reply()

    # -- settings --------------------------------------------------------------------------------

    def _put_setting(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.KVConfigHeader, request.ext)
        full = self._table.put_setting(header.namespace, header.key, header.value)
        if full is not None:
            return _reply(ResponseCode.SYSTEM_ERROR, full.reason)
        return _reply()

    def _get_setting(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.KVConfigHeader, request.ext)
        value = self._table.setting(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return _reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return _reply(ext={"value": value})

    def _delete_setting(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.KVConfigHeader, request.ext)
        self._table.delete_setting(header.namespace, header.key)
        return _reply()

    def _list_settings(self, request: Command, link: Link, now: int) -> Command:
        header = headers.read(headers.KVConfigHeader, request.ext)
        table = self._table.settings(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return _reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return _reply(body=fastjson.write(KVTable(table)))


_NO_EXT: dict[str, str] = {}


def _reply(
    code: int = ResponseCode.SUCCESS,
    remark: str = "",
    *,
    ext: dict[str, str] = _NO_EXT,
    body: bytes = b"",
) -> Command:
    return Command(int(code), flag=RESPONSE_FLAG, ext=ext, body=body, remark=remark)
