"""What the blocking and the asyncio pull consumer share: their arguments, and what they are made into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from steelyard.allocate.plan import Strategy
from steelyard.client.application import ChangeHook, ConsumerApplication, Functions, check_functions
from steelyard.client.settings import client_config, tls_context
from steelyard.client.subscribing import check_strategy, subscribed, wish
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.puller import PullerNode
from steelyard.nodes.consumer.remoting.questions import Pull
from steelyard.types import MessageModel, MessageQueue

if TYPE_CHECKING:
    import ssl


RetryDelayLevel = Annotated[int, Meta(ge=-1, le=18)]
"""When a message that is sent back comes again: 0 by how often it came, -1 never."""


class Pulling:
    """See the module's text. `config`: the settings in use; `started`: whether `start` was called. `given`: settings that were
    arguments."""

    def __init__(
        self,
        config: ConsumerConfig | None,
        given: Mapping[str, object],
        on_queues_changed: ChangeHook | None,
        *,
        allocate: Strategy | None,
        tls: bool | ssl.SSLContext | None,
    ) -> None:
        self._functions = Functions(on_queues_changed=on_queues_changed)
        check_functions(self._functions)
        check_strategy(allocate)
        whole = client_config(ConsumerConfig, config, given)
        self.config = replace(whole, queue_changes=on_queues_changed is not None)
        if self.config.message_model is not MessageModel.CLUSTERING:
            raise ConfigError(
                "a pull consumer stores no offsets of its own;"
                " for broadcasting use a PushConsumer or a LitePullConsumer"
            )
        self.started = False
        self._allocate = allocate
        self._tls = tls_context(tls)

    def register(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Have a share of the queues of `topic`, as the members of the group agree: `balanced(topic)` tells it.

        The expression is what brokers are told of this member; what a pull brings is up to the pull's own.
        """
        if self.started:
            raise ConfigError("register before the consumer starts")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def make(self) -> tuple[PullerNode, ConsumerApplication]:
        """The consumer's node and what it hands things to, for its one start. Raises ClosedError at a second one."""
        if self.started:
            raise ClosedError("a consumer can be started only once; create a new one")
        node = PullerNode(self.config, SystemRandom(), self._allocate)
        self.started = True
        return node, ConsumerApplication(self._functions, orderly=False)


def pull_call(
    queue: MessageQueue,
    offset: int,
    expression: str,
    sql: str | None,
    max_messages: int,
    hold_ms: int,
    timeout_ms: int | None,
) -> Pull:
    """What the node is told for a pull."""
    wanted = wish(queue.topic, expression, sql)
    return Pull(
        queue,
        offset,
        wanted.expression,
        wanted.expression_type,
        max_messages,
        hold_ms,
        timeout_ms,
    )
