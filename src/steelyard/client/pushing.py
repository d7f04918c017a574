"""The shared part of the blocking and the asyncio push consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Generic, Self

from msgspec import Meta

from steelyard.allocate.plan import Strategy
from steelyard.client.application import ConsumerApplication, Functions, check_functions
from steelyard.client.interceptors import InterceptedApplication, Interception, Interceptor
from steelyard.client.kept import kept_file
from steelyard.client.serialization import BodyDeserializer, Deserialize
from steelyard.client.settings import client_config, tls_context
from steelyard.client.subscribing import check_strategy, subscribed, wish
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.contract import Resize
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.wire.remoting.message import Body

if TYPE_CHECKING:
    import ssl

HANDED_PER_LISTENER = 4
"""Batches delivered per listener: one in progress and some to continue with.

So a quick listener does not wait for the event loop after each message. Waiting batches are
consumed even if their queue is given up.
"""

LISTENERS_MAX = 32_767
"""Maximum concurrent listeners: updateCorePoolSize allows Java's Short.MAX_VALUE."""

Listeners = Annotated[int, Meta(ge=1, le=LISTENERS_MAX)]


class Pushing(Generic[Body]):
    """Arguments and calls of a push consumer.

    `config`: the settings in use; `started`: whether `start` was called. `given`: settings passed
    as arguments.
    """

    def __init__(
        self,
        config: ConsumerConfig | None,
        given: Mapping[str, object],
        functions: Functions,
        *,
        allocate: Strategy | None,
        interceptors: Sequence[Interceptor] | None,
        deserializer: Deserialize[Body] | None,
        tls: bool | ssl.SSLContext | None,
    ) -> None:
        whole = client_config(ConsumerConfig, config, given)
        _check_functions(functions, whole)
        check_strategy(allocate)
        hooks = (functions.on_assigned, functions.on_revoked, functions.on_lost)
        self.config = replace(
            whole,
            handed_max=HANDED_PER_LISTENER * whole.consume_threads,
            hooks=any(hook is not None for hook in hooks),
        )
        self.started = False
        self._functions = functions
        self._interception = Interception(interceptors)
        reader = BodyDeserializer(deserializer, "it will be delivered again")
        self._deserializer = reader if reader.is_on else None
        self._allocate = allocate
        self._tls = tls_context(tls)
        self.on_keep: Callable[[bytes], None] | None = None
        """For the driver, after `make`: stores a broadcasting consumer's offsets."""

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Subscribe to a topic, filtered by tags or by an SQL92 condition.

        `expression`: `*`, or tags joined by `||`; `sql`: a condition, such as
        `price > 10 AND TAGS = 'a'`. A second call for a topic replaces the first. All members of a
        group must have the same subscriptions.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def make(self) -> tuple[ConsumerNode, ConsumerApplication]:
        """Create the consumer's node and its application, for its only start.

        Raises ClosedError at a second start, ConfigError if something is missing.
        """
        if self.started:
            raise ClosedError("a consumer can be started only once; create a new one")
        if self._functions.listener is None and self._functions.batch_listener is None:
            raise ConfigError("no listener; give listener=... or batch_listener=...")
        if not self.config.subscriptions:
            raise ConfigError("no subscription; call subscribe(topic) before the start")
        file = kept_file(self.config)
        kept = b"" if file is None else file.load()
        self.on_keep = None if file is None else file.write
        node = ConsumerNode(self.config, SystemRandom(), self._allocate, kept)
        self.started = True
        if self._interception.is_on:
            return node, InterceptedApplication(
                self._functions, self._interception, self.config, self._deserializer
            )
        return node, ConsumerApplication(
            self._functions, orderly=self.config.orderly, deserializer=self._deserializer
        )


def resize(listeners: int) -> Resize:
    """Return the node's call for a number of concurrent listeners."""
    return Resize(listeners, HANDED_PER_LISTENER * listeners)


def _check_functions(functions: Functions, config: ConsumerConfig) -> None:
    """Raise ConfigError unless the functions are valid: one listener that fits `consume_batch`."""
    check_functions(functions)
    if functions.listener is not None and functions.batch_listener is not None:
        raise ConfigError("give either listener or batch_listener, not both")
    if functions.listener is not None and config.consume_batch != 1:
        raise ConfigError("consume_batch needs a batch_listener")
