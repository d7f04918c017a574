"""The start of a consumer: its topics are known, and a broker knows it and accepts it.

`Begin` is answered when that is so (see `nodes.starting`), and no broker rejects a subscription. A
topic that no nameserver knows is waited for if brokers create topics automatically: those that do
have DEFAULT_TOPIC (TopicConfigManager, autoCreateTopicEnable). The permission to inherit is not
looked at: a nameserver drops it when writes are allowed again (RouteInfoManager,
operateWritePermOfBroker), and brokers go by their own.

Otherwise the start fails, but not at the first reply: a broker may be registering at that moment,
and one nameserver may know less than another. Each of them is asked, and at least LOOKS times in
all.
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
from steelyard.wire.remoting.names import DEFAULT_TOPIC, SELF_TEST_TOPIC

LOOKS = 3
"""How many lookups, AGAIN_MS apart, must miss a topic at least before the start fails."""


class FirstContact:
    """The start of one consumer. `topics`: those subscribed to."""

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
        """Lookups of missing topics that remain."""

    def asked(self, call_id: int, call: Begin, now: int, effects: list[Effect]) -> None:
        self._starting.asked(call_id, call, now, effects)
        self._ask(now, effects)

    def _ask(self, now: int, effects: list[Effect]) -> None:
        # Brokers always have the latter: if neither is known, no broker has registered yet.
        routes = self._peers.routes
        self._probed.clear()
        probes = [*routes.probe(DEFAULT_TOPIC), *routes.probe(SELF_TEST_TOPIC)]
        asked = [*probes, *routes.missing()]
        client = self._peers.client
        client.ask_routes(asked, now, effects)
        client.register_at_strangers(client.brokers(), now, effects)

    def routed(self, news: RouteNews, now: int, effects: list[Effect]) -> None:
        """Handle the outcome of a route request."""
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
        """Handle the outcome of a heartbeat."""
        if not self._starting.open:
            return
        if isinstance(reply, RemotingError) and not self._peers.client.is_known():
            self._starting.failed(reply, effects)
        else:
            self._look(now, effects)

    def checked(self, error: SteelyardError | None, now: int, effects: list[Effect]) -> None:
        """Note whether a broker can filter as subscribed."""
        self._rejection = self._rejection or error
        if self._starting.open:
            self._look(now, effects)

    def due(self, now: int, effects: list[Effect]) -> None:
        self._starting.due(now, effects)
        if self._starting.open:
            self._ask(now, effects)

    def _look(self, now: int, effects: list[Effect]) -> None:
        """End the start if it has succeeded or failed."""
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
        if unknown and default is None:
            self._missing(unknown, now, effects)
            return
        if client.brokers() and not client.is_known():
            return
        self._starting.reached(effects)

    def _missing(self, topics: Sequence[str], now: int, effects: list[Effect]) -> None:
        """Count a lookup that missed topics; fail once there were enough.

        The nameserver knows neither the topics nor a broker that creates topics automatically.
        Another nameserver may know them, or this one soon.
        """
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
        """Wait for brokers: a nameserver answers, but none has registered."""
        where = ", ".join(self._peers.config.nameservers)
        text = f"no broker has registered with nameserver {where} yet"
        self._troubles.ill(where, f"{text}; waiting for one", now, effects)
        self._starting.failed(RouteError(text), effects)
