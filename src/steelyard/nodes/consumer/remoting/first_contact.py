"""When a consumer has begun: its topics are known, a broker knows it, and nobody rejects what it subscribed to.

`Begin` asks for it (see `nodes.starting`). A topic that no nameserver knows is waited for where brokers make topics by
themselves. That shows in the route of DEFAULT_TOPIC: Apache's brokers have it where autoCreateTopicEnable is on; ours always, and
let topics inherit from it only then (TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC).

Elsewhere the start fails, but not at the first answer: a broker may be registering at this moment, and one nameserver may know
less than another. Each is asked, and LOOKS times in all at the least.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import RemotingError, RouteError, SteelyardError
from steelyard.nodes.consumer.remoting.membership import Membership
from steelyard.nodes.consumer.remoting.peers import Peers
from steelyard.nodes.route_cache import Route, RouteNews
from steelyard.nodes.seam import Effect
from steelyard.nodes.starting import Begin, Starting, Troubles
from steelyard.types import LogLine
from steelyard.wire.remoting.names import DEFAULT_TOPIC

SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
"""Apache's brokers always have it: where neither topic is known no broker has registered yet."""

LOOKS = 3
"""How often a topic must be missing at the least, AGAIN_MS apart."""


class FirstContact:
    """See the module's text. `topics`: those that were subscribed to."""

    def __init__(self, peers: Peers, membership: Membership, topics: Sequence[str]) -> None:
        self._peers = peers
        self._membership = membership
        self._topics = tuple(topics)
        self._starting = Starting(f"nameserver {', '.join(peers.config.nameservers)}")
        self._troubles = Troubles("nameserver")
        self._failing = False
        self._probed: dict[str, Route | None] = {}
        self._rejection: SteelyardError | None = None
        self._looks = max(LOOKS, len(peers.config.nameservers))
        """How often the topics are still looked for."""

    def asked(self, call_id: int, call: Begin, now: int, effects: list[Effect]) -> None:
        self._starting.asked(call_id, call, now, effects)
        self._ask(now, effects)

    def _ask(self, now: int, effects: list[Effect]) -> None:
        routes = self._peers.routes
        self._probed.clear()
        probes = [*routes.probe(DEFAULT_TOPIC), *routes.probe(SELF_TEST_TOPIC)]
        asked = [*probes, *routes.missing()]
        client = self._peers.client
        client.ask_routes(asked, now, effects)
        client.register_at_strangers(client.brokers(), now, effects)

    def routed(self, news: RouteNews, now: int, effects: list[Effect]) -> None:
        """A nameserver was asked, and that has ended."""
        if not self._starting.open or not news.done:
            return
        self._failing = news.trouble is not None
        if news.trouble is not None:
            self._starting.failed(news.trouble, effects)
            return
        if news.done in (DEFAULT_TOPIC, SELF_TEST_TOPIC):
            self._probed[news.done] = news.found
        self._look(now, effects)

    def registered(self, reply: object, now: int, effects: list[Effect]) -> None:
        """A broker was told of this member."""
        if not self._starting.open:
            return
        if isinstance(reply, RemotingError) and not self._peers.client.is_known():
            self._starting.failed(reply, effects)
        else:
            self._look(now, effects)

    def checked(self, error: SteelyardError | None, now: int, effects: list[Effect]) -> None:
        """A broker said whether it can filter as subscribed."""
        self._rejection = self._rejection or error
        if self._starting.open:
            self._look(now, effects)

    def due(self, now: int, effects: list[Effect]) -> None:
        self._starting.due(now, effects)
        if self._starting.open:
            self._ask(now, effects)

    def _look(self, now: int, effects: list[Effect]) -> None:
        """Whether the start is over."""
        routes, client = self._peers.routes, self._peers.client
        if self._rejection is not None:
            self._starting.rejected(self._rejection, effects)
            return
        if self._failing or len(self._probed) < 2:
            return
        if routes.asking or client.pending or self._membership.checking:
            return
        default = self._probed[DEFAULT_TOPIC]
        unknown = [topic for topic in self._topics if routes.route(topic) is None]
        if not routes.readers() and not any(self._probed.values()):
            self._nobody(now, effects)
            return
        if unknown and (default is None or not default.inheritable):
            self._missing(unknown, now, effects)
            return
        if client.brokers() and not client.is_known():
            return
        self._starting.reached(effects)

    def _missing(self, topics: Sequence[str], now: int, effects: list[Effect]) -> None:
        """A nameserver knows neither the topics nor a broker that makes topics by itself; another may, or this one soon."""
        error = RouteError(
            f"no topic {', '.join(topics)}: no nameserver knows it, and the brokers do not create"
            " topics automatically; create it first"
        )
        self._looks -= 1
        if self._looks == 0:
            if not self._starting.rejected(error, effects):
                effects.append(LogLine("WARNING", str(error)))
            return
        self._probed.clear()
        self._peers.routes.turn()
        self._starting.doubted(error, now, effects)

    def _nobody(self, now: int, effects: list[Effect]) -> None:
        """A nameserver answers, and knows no broker: they may come."""
        where = ", ".join(self._peers.config.nameservers)
        text = f"no broker has registered with nameserver {where} yet"
        self._troubles.ill(where, f"{text}; waiting for one", now, effects)
        self._starting.failed(RouteError(text), effects)
