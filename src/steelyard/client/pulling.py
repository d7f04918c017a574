"""The shared part of the blocking and the asyncio pull consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, Generic, Self

from msgspec import Meta, structs

from steelyard.allocate.plan import Strategy
from steelyard.client.application import ChangeHook, ConsumerApplication, Functions, check_functions
from steelyard.client.interceptors import Interception, Interceptor
from steelyard.client.serialization import BodyDeserializer, Deserialize
from steelyard.client.settings import client_config, tls_context
from steelyard.client.subscribing import check_strategy, subscribed, wish
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.nodes.consumer.remoting.puller import PullerNode
from steelyard.nodes.consumer.remoting.questions import Pull, PullResult
from steelyard.types import MessageModel, MessageQueue
from steelyard.wire.remoting.message import Body

if TYPE_CHECKING:
    import ssl


RetryDelayLevel = Annotated[int, Meta(ge=-1, le=18)]
"""Redelivery of a message that is sent back: 0 by the number of attempts, -1 never."""


class Pulling(Generic[Body]):
    """Arguments and calls of a pull consumer.

    `config`: the settings in use; `started`: whether `start` was called. `given`: settings passed
    as arguments.
    """

    _logged_as = "consumer"
    """Its log is the logger of this name below `steelyard`."""

    def __init__(
        self,
        config: ConsumerConfig | None,
        given: Mapping[str, object],
        on_queues_changed: ChangeHook | None,
        *,
        allocate: Strategy | None,
        interceptors: Sequence[Interceptor] | None,
        deserializer: Deserialize[Body] | None,
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
        self._interception = Interception(interceptors)
        remedy = "to continue without it, pull from offset {}"
        self._deserializer = BodyDeserializer(deserializer, remedy)
        self._tls = tls_context(tls)

    def register(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Share the queues of `topic` with the members of the group.

        `balanced(topic)` returns this member's share. The expression is this member's subscription
        at brokers; each pull has its own.
        """
        if self.started:
            raise ConfigError("register before the consumer starts")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def make(self) -> tuple[PullerNode, ConsumerApplication]:
        """Create the consumer's node and its application, for its only start.

        Raises ClosedError at a second one.
        """
        if self.started:
            raise ClosedError("a consumer can be started only once; create a new one")
        node = PullerNode(self.config, SystemRandom(), self._allocate)
        self.started = True
        return node, ConsumerApplication(self._functions, orderly=False)

    def _pulled(self, result: PullResult[Any], began_at_ns: int) -> PullResult[Body]:
        """Return what a pull returns: messages with their values, up to one that fails.

        Raises DeserializationError if that is the first one.
        """
        seen = self._deserializer.seen(result.messages)
        if seen < len(result.messages):
            result = structs.replace(
                result,
                messages=result.messages[:seen],
                next_begin_offset=result.messages[seen].queue_offset,
            )
        if seen and self._interception.is_on:
            config = self.config
            self._interception.received(
                result.messages, config.group, config.client_id, began_at_ns
            )
        return result


def pull_call(
    queue: MessageQueue,
    offset: int,
    expression: str,
    sql: str | None,
    max_messages: int,
    hold_ms: int,
    timeout_ms: int | None,
) -> Pull:
    """Return the node's call for a pull."""
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
