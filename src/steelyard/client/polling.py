"""The shared part of the blocking and the asyncio lite pull consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import SystemRandom
from typing import TYPE_CHECKING, Generic, Self

from steelyard.allocate.plan import Strategy
from steelyard.client.application import ConsumerApplication, Functions, check_functions
from steelyard.client.interceptors import Interception, Interceptor
from steelyard.client.kept import kept_file
from steelyard.client.serialization import BodyDeserializer, Deserialize
from steelyard.client.settings import client_config, tls_context
from steelyard.client.subscribing import check_strategy, subscribed, wish
from steelyard.config import LitePullConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.contract import Assign, Poll
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import Body

if TYPE_CHECKING:
    import ssl


class Polling(Generic[Body]):
    """Arguments and calls of a lite pull consumer.

    `config`: the settings in use; `started`: whether `start` was called. `given`: settings passed
    as arguments.
    """

    def __init__(
        self,
        config: LitePullConfig | None,
        given: Mapping[str, object],
        functions: Functions,
        *,
        allocate: Strategy | None,
        interceptors: Sequence[Interceptor] | None,
        deserializer: Deserialize[Body] | None,
        tls: bool | ssl.SSLContext | None,
    ) -> None:
        check_functions(functions)
        check_strategy(allocate)
        hooks = (functions.on_assigned, functions.on_revoked, functions.on_lost)
        self.config = replace(
            client_config(LitePullConfig, config, given),
            hooks=any(hook is not None for hook in hooks),
            queue_changes=functions.on_queues_changed is not None,
        )
        self.started = False
        self.on_keep: Callable[[bytes], None] | None = None
        """For the driver, after `make`: stores a broadcasting consumer's offsets."""
        self._functions = functions
        self._allocate = allocate
        self._interception = Interception(interceptors)
        remedy = "to continue without it, seek to offset {}"
        self._deserializer = BodyDeserializer(deserializer, remedy)
        self._tls = tls_context(tls)
        self._first: list[Assign] = []
        """Queues assigned before the start."""
        self._numbers = count(1)

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Subscribe to a topic, filtered by tags or by an SQL92 condition.

        `expression`: `*`, or tags joined by `||`; `sql`: a condition. The members of the group
        share the queues of `topic`. A second call for a topic replaces the first. All members of a
        group must have the same subscriptions.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        if self._first:
            raise ConfigError("queues were assigned; use either subscribe or assign, not both")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def assign_later(
        self, queues: Iterable[MessageQueue], expression: str, sql: str | None
    ) -> Assign | None:
        """Return the node's call for assigned queues; None before the start, when they are kept."""
        every = tuple(queues)
        for queue in every:
            if not isinstance(queue, MessageQueue):
                raise ConfigError(f"{queue!r} is not a MessageQueue; queues(topic) returns them")
        wanted = wish("assigned queues", expression, sql)
        call = Assign(every, wanted.expression, wanted.expression_type)
        if self.started:
            return call
        if self.config.subscriptions:
            raise ConfigError("topics were subscribed; use either subscribe or assign, not both")
        self._first = [call]
        return None

    def poll_call(self, timeout_ms: int | None, max_messages: int | None) -> Poll:
        """Return the node's call for a poll."""
        return Poll(
            self.config.pull_batch if max_messages is None else max_messages,
            self.config.poll_timeout_ms if timeout_ms is None else timeout_ms,
            next(self._numbers),
        )

    def make(self) -> tuple[ConsumerNode, ConsumerApplication, list[Assign]]:
        """Create the consumer's node, its application, and its first calls, for its only start.

        Raises ClosedError at a second start, ConfigError and StorageError for invalid settings.
        """
        if self.started:
            raise ClosedError("a consumer can be started only once; create a new one")
        file = kept_file(self.config)
        kept = b"" if file is None else file.load()
        self.on_keep = None if file is None else file.write
        node = ConsumerNode(self.config, SystemRandom(), self._allocate, kept)
        self.started = True
        return node, ConsumerApplication(self._functions, orderly=False), self._first
