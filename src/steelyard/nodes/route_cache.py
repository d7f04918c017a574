"""The routes known to a client: requests them from a nameserver, keeps them, reports changes.

- One nameserver is asked for everything until it fails; then the next one, each once per request.
- On the response 17 (TOPIC_NOT_EXIST) a producer requests its default topic instead, from whose
  brokers the new topic borrows queues until it exists.
- A warning is logged when a nameserver begins to fail, every COMPLAINT_MS while it does, and when
  it responds again; not for every request, because a client may send thousands per second.
- A known route is kept when a later request fails: a client with an old route still works.
  Source: client/impl/factory/MQClientInstance.java `updateTopicRouteInfoFromNameServer`,
  `topicRouteData2TopicPublishInfo`, `topicRouteData2TopicSubscribeInfo`,
  `findBrokerAddressInSubscribe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec

from steelyard.errors import ConnectError, ProtocolError, RemotingError, RouteError, SteelyardError
from steelyard.nodes.seam import Address, Effect
from steelyard.nodes.starting import Troubles
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import QueueData, TopicRouteData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import MASTER_ID, PERM_READ, PERM_WRITE
from steelyard.wire.strangers import not_a_nameserver

QUEUES_MAX = 65_536
"""Most queues of a topic that a client accepts."""

POLL_SOON_MS = 500
"""Delay before an urgent refresh of the routes.

The nameserver also needs a moment to notice a change.
"""

POLL_EAGER_MS = 2_000
POLL_EAGER_FOR_MS = 60_000


class RoutePace:
    """When to request routes: every `poll_ms`, sooner after a broker failed or for a new topic.

    After `hurry` the delay begins at POLL_SOON_MS and doubles up to POLL_EAGER_MS for
    POLL_EAGER_FOR_MS, then up to `poll_ms`: a restarted broker returns within a minute, and its
    queues should not wait long.
    """

    def __init__(self, poll_ms: int) -> None:
        self._poll_ms = poll_ms
        self._wait_ms = poll_ms
        self._due = 0
        self._eager_until = 0

    def next(self, now: int) -> int:
        """Note that the routes are requested now. Returns when to request them next."""
        self._due = now + self._wait_ms
        longest = POLL_EAGER_MS if now < self._eager_until else self._poll_ms
        self._wait_ms = min(2 * self._wait_ms, longest, self._poll_ms)
        return self._due

    def hurry(self, now: int) -> int | None:
        """Note that the routes will change soon.

        Returns when to request them, None if that is planned already.
        """
        soon = now + POLL_SOON_MS
        if soon >= self._due:
            return None
        self._wait_ms = min(2 * POLL_SOON_MS, self._poll_ms)
        self._eager_until = now + POLL_EAGER_FOR_MS
        self._due = soon
        return soon


class Route(msgspec.Struct, frozen=True):
    """The location of a topic. Queues are ordered by broker name and number."""

    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    masters: MappingProxyType[str, Address]
    """By broker name, without brokers that have no master."""
    readers: MappingProxyType[str, Address]
    """The address to read from, by broker name: the master, or the replica with the smallest id."""


class RouteAsked(msgspec.Struct, frozen=True):
    """Purpose of a GET_ROUTEINFO_BY_TOPIC.

    `tried`: nameservers that have already failed this request.
    """

    topic: str
    asked_topic: str
    nameserver: Address
    tried: int = 0


class RouteNews(msgspec.Struct, frozen=True):
    """The result of a response: further requests, or the end of one.

    `done`: the topic whose request has ended, "" until then. `changed`: its route is new. `error`:
    why there is none, if there is none.
    """

    done: str = ""
    changed: bool = False
    again: tuple[RouteAsked, ...] = ()
    error: SteelyardError | None = None
    found: Route | None = None
    """The route in the response, also for a topic that was only probed."""
    trouble: SteelyardError | None = None
    """The error if no nameserver responded; None if one did, even if it does not know the topic."""


def question(asked: RouteAsked) -> Command:
    """Return the request of a purpose."""
    header = headers.GetRouteInfoRequestHeader(topic=asked.asked_topic)
    return Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=headers.write(header))


class RouteCache:
    """Routes of a client's topics. `default_topic`: "" for consumers."""

    def __init__(
        self,
        nameservers: Sequence[Address],
        rng: Random,
        *,
        default_topic: str = "",
        default_topic_queues: int = 0,
    ) -> None:
        self._nameservers = tuple(nameservers)
        self._current = rng.randrange(len(nameservers)) if nameservers else 0
        self._default_topic = default_topic
        self._default_topic_queues = default_topic_queues
        self._routes: dict[str, Route | None] = {}
        self._asking: set[str] = set()
        self._troubles = Troubles("nameserver")

    def want(self, topic: str) -> list[RouteAsked]:
        """Follow this topic from now on.

        Returns requests if there is no route and none is pending.
        """
        self._routes.setdefault(topic, None)
        return [] if self._routes[topic] is not None else self._ask([topic])

    def renew(self, topic: str) -> list[RouteAsked]:
        """Follow this topic from now on, and request its route even if it is known."""
        self._routes.setdefault(topic, None)
        return self._ask([topic])

    def probe(self, topic: str) -> list[RouteAsked]:
        """Request a topic's route once, without following it.

        See `RouteNews.error` and `trouble`.
        """
        return self._ask([topic])

    def forget(self, topic: str) -> None:
        """Stop following this topic."""
        self._routes.pop(topic, None)

    def refresh(self) -> list[RouteAsked]:
        """Return requests for all topics followed that have none pending."""
        return self._ask(list(self._routes))

    def missing(self) -> list[RouteAsked]:
        """Return requests for the topics without a route."""
        return self._ask([topic for topic, route in self._routes.items() if route is None])

    def turn(self) -> None:
        """Switch to the next nameserver: this one has failed, or may know less than another."""
        self._current = (self._current + 1) % len(self._nameservers)

    def _ask(self, topics: Sequence[str]) -> list[RouteAsked]:
        if not self._nameservers:
            return []
        fresh = [topic for topic in topics if topic not in self._asking]
        self._asking.update(fresh)
        nameserver = self._nameservers[self._current]
        return [RouteAsked(topic, topic, nameserver) for topic in fresh]

    def answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> RouteNews:
        """Take the outcome of a request. Logs when a nameserver fails or responds again."""
        if isinstance(reply, RemotingError):
            return self._failed(asked, reply, str(reply), now, effects)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            self._troubles.well(asked.nameserver, effects)
            if self._default_topic and asked.asked_topic != self._default_topic:
                again = msgspec.structs.replace(asked, asked_topic=self._default_topic)
                return RouteNews(again=(again,))
            return self._end(asked.topic, None, RouteError(f"no route for topic {asked.topic}"))
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            text = not_a_nameserver(asked.nameserver)
            return self._failed(asked, ConnectError(text), text, now, effects)
        if reply.code != ResponseCode.SUCCESS:
            text = f"code {reply.code} from nameserver {asked.nameserver}: {reply.remark}"
            return self._failed(asked, RouteError(text), text, now, effects)
        try:
            data = fastjson.read(TopicRouteData, reply.body)
            # the topic does not exist (RouteInfoManager.pickupTopicRouteData)
            if not data.broker_datas:
                raise ProtocolError(f"route of {asked.topic} without brokers")
            borrowed = None if asked.asked_topic == asked.topic else self._default_topic_queues
            route = read_route(asked.topic, data, borrowed)
        except ProtocolError as error:
            text = f"{asked.nameserver}: {error}"
            return self._failed(asked, RouteError(str(error)), text, now, effects)
        self._troubles.well(asked.nameserver, effects)
        return self._end(asked.topic, route)

    def _failed(
        self,
        asked: RouteAsked,
        error: SteelyardError,
        complaint: str,
        now: int,
        effects: list[Effect],
    ) -> RouteNews:
        self._troubles.ill(asked.nameserver, complaint, now, effects)
        if asked.nameserver == self._nameservers[self._current]:
            self.turn()
        tried = asked.tried + 1
        if tried >= len(self._nameservers):
            return msgspec.structs.replace(self._end(asked.topic, None, error), trouble=error)
        position = (self._nameservers.index(asked.nameserver) + 1) % len(self._nameservers)
        again = RouteAsked(asked.topic, asked.topic, self._nameservers[position], tried)
        return RouteNews(again=(again,))

    def _end(
        self, topic: str, route: Route | None, error: SteelyardError | None = None
    ) -> RouteNews:
        self._asking.discard(topic)
        if topic not in self._routes:
            return RouteNews(done=topic, error=error, found=route)
        known = self._routes[topic]
        if route is None:
            return RouteNews(done=topic, error=None if known is not None else error)
        self._routes[topic] = route
        return RouteNews(done=topic, changed=route != known)

    def route(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    @property
    def asking(self) -> bool:
        """Return whether a request is pending."""
        return bool(self._asking)

    def masters(self) -> list[Address]:
        """Return the addresses of all masters in the routes, sorted."""
        return sorted({a for r in self._routes.values() if r for a in r.masters.values()})

    def broker_name(self, address: Address) -> str:
        """Return the broker whose master listens at the address, "" if no route has it."""
        for route in self._routes.values():
            for name, master in route.masters.items() if route else ():
                if master == address:
                    return name
        return ""

    def readers(self) -> list[Address]:
        """Return the addresses to read from in the routes, sorted."""
        return sorted({a for r in self._routes.values() if r for a in r.readers.values()})

    def check(self) -> None:
        """Assert that a nameserver is chosen, if there is any."""
        assert not self._nameservers or 0 <= self._current < len(self._nameservers)


def read_route(topic: str, data: TopicRouteData, borrowed: int | None = None) -> Route:
    """Return the route in a nameserver's response.

    `borrowed`: most queues of this route that a topic yet to be created takes. Raises ProtocolError
    if a number of queues is out of range.
    """
    masters: dict[str, Address] = {}
    readers: dict[str, Address] = {}
    for broker in data.broker_datas:
        if broker.broker_addrs:
            readers[broker.broker_name] = broker.broker_addrs[min(broker.broker_addrs)]
        if MASTER_ID in broker.broker_addrs:
            masters[broker.broker_name] = broker.broker_addrs[MASTER_ID]
    _check_numbers(topic, data.queue_datas)
    publish: list[MessageQueue] = []
    subscribe: list[MessageQueue] = []
    for queues in sorted(data.queue_datas, key=lambda item: item.broker_name):
        name = queues.broker_name
        if queues.perm & PERM_WRITE and name in masters:
            count = queues.write_queue_nums
            if borrowed is not None:  # of the default topic Java uses the readable queues
                count = min(borrowed, queues.read_queue_nums)
            publish += [MessageQueue(topic, name, number) for number in range(count)]
        if queues.perm & PERM_READ and name in readers:
            numbers = range(queues.read_queue_nums)
            subscribe += [MessageQueue(topic, name, number) for number in numbers]
    if data.order_topic_conf:
        publish = _ordered_queues(topic, data.order_topic_conf)
    return Route(
        tuple(publish),
        tuple(subscribe),
        MappingProxyType(masters),
        MappingProxyType(readers),
    )


def _check_numbers(topic: str, parts: Sequence[QueueData]) -> None:
    lowest = min((min(q.read_queue_nums, q.write_queue_nums) for q in parts), default=0)
    total = sum(max(q.read_queue_nums, q.write_queue_nums) for q in parts)
    if lowest < 0 or total > QUEUES_MAX:
        raise ProtocolError(f"route of {topic}: numbers of queues from {lowest}, {total} in all")


def _ordered_queues(topic: str, text: str) -> list[MessageQueue]:
    """Return the queues of `broker:count;broker:count`; those of a dead broker remain."""
    queues: list[MessageQueue] = []
    for part in text.split(";"):
        name, _, count = part.partition(":")
        if not name or not count.isdecimal() or len(queues) + int(count) > QUEUES_MAX:
            raise ProtocolError(f"route of {topic}: order configuration {text[:100]!r}")
        queues += [MessageQueue(topic, name, number) for number in range(int(count))]
    return queues
