"""What the blocking and the asyncio push consumer share: their arguments, and what they are made into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from steelyard.allocate.plan import Strategy
from steelyard.client.application import Application, Functions, check_functions
from steelyard.client.kept import kept_file
from steelyard.client.settings import tls_context
from steelyard.client.subscribing import HANDED_PER_LISTENER, Subscriptions, check_strategy
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.contract import Resize
from steelyard.nodes.consumer.remoting.node import ConsumerNode

if TYPE_CHECKING:
    import ssl

LISTENERS_MAX = 32_767
"""Most listeners at once: updateCorePoolSize allows Java's Short.MAX_VALUE."""

Listeners = Annotated[int, Meta(ge=1, le=LISTENERS_MAX)]


class Pushing(Subscriptions):
    """See the module's text."""

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None,
        functions: Functions,
        *,
        listeners: int,
        orderly: bool,
        allocate: Strategy | None,
        client_id: str | None,
        config: ConsumerConfig | None,
        tls: bool | ssl.SSLContext | None,
    ) -> None:
        super().__init__(group, nameservers, client_id, config, listeners)
        _check_functions(functions, self.config)
        check_strategy(allocate)
        hooks = (functions.on_assigned, functions.on_revoked, functions.on_lost)
        self.config = replace(
            self.config,
            orderly=orderly or self.config.orderly,
            hooks=any(hook is not None for hook in hooks),
        )
        self._functions = functions
        self._allocate = allocate
        self._tls = tls_context(tls)
        self.on_keep: Callable[[bytes], None] | None = None
        """For the driver, once `make` was called: where a broadcasting consumer's offsets go."""

    def make(self) -> tuple[ConsumerNode, Application]:
        """The consumer's node and what it hands things to, for its one start.

        Raises ClosedError at a second start, ConfigError where something is missing.
        """
        if self.started:
            raise ClosedError("a consumer starts once; make a new one")
        self.ready(self._functions.listener or self._functions.batch_listener)
        file = kept_file(self.config)
        kept = b"" if file is None else file.load()
        self.on_keep = None if file is None else file.write
        node = ConsumerNode(self.config, SystemRandom(), self._allocate, kept)
        self.started = True
        return node, Application(self._functions, orderly=self.config.orderly)


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
