"""What the blocking and the asyncio push consumer share: their arguments, and what they are made into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from steelyard.allocate.plan import Strategy
from steelyard.client.application import ConsumerApplication, Functions, check_functions
from steelyard.client.kept import kept_file
from steelyard.client.settings import client_config, tls_context
from steelyard.client.subscribing import check_strategy, subscribed, wish
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.contract import Resize
from steelyard.nodes.consumer.remoting.node import ConsumerNode

if TYPE_CHECKING:
    import ssl

HANDED_PER_LISTENER = 4
"""Batches handed over per listener: one to work on and some to go on with, so that a quick listener does
not wait for the event loop after each message. What waits is consumed even if its queue is given up."""

LISTENERS_MAX = 32_767
"""Most listeners at once: updateCorePoolSize allows Java's Short.MAX_VALUE."""

Listeners = Annotated[int, Meta(ge=1, le=LISTENERS_MAX)]


class Pushing:
    """See the module's text. `config`: the settings in use; `started`: whether `start` was called. `given`: settings that were
    arguments."""

    def __init__(
        self,
        config: ConsumerConfig | None,
        given: Mapping[str, object],
        functions: Functions,
        *,
        allocate: Strategy | None,
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
        self._allocate = allocate
        self._tls = tls_context(tls)
        self.on_keep: Callable[[bytes], None] | None = None
        """For the driver, once `make` was called: where a broadcasting consumer's offsets go."""

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Receive messages of `topic` whose tag is in `expression`: `*`, or tags joined by `||`.

        `sql` instead: those whose properties fulfil an SQL92 condition, such as `price > 10 AND TAGS = 'a'`.

        A second call for a topic replaces the first. All members of a group must subscribe to the same.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def make(self) -> tuple[ConsumerNode, ConsumerApplication]:
        """The consumer's node and what it hands things to, for its one start.

        Raises ClosedError at a second start, ConfigError where something is missing.
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
        return node, ConsumerApplication(self._functions, orderly=self.config.orderly)


def resize(listeners: int) -> Resize:
    """What the node is told when so many listeners run from now on."""
    return Resize(listeners, HANDED_PER_LISTENER * listeners)


def _check_functions(functions: Functions, config: ConsumerConfig) -> None:
    """Raise ConfigError unless each is a function, at most one listens, and that one fits `consume_batch`."""
    check_functions(functions)
    if functions.listener is not None and functions.batch_listener is not None:
        raise ConfigError("give either listener or batch_listener, not both")
    if functions.listener is not None and config.consume_batch != 1:
        raise ConfigError("consume_batch needs a batch_listener")
