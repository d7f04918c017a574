"""Gathers single sends into batches (`ProducerConfig.auto_batch`).

A message waits with others of its topic, queue, sharding key, `wait_store_ok` and time-out, until
they have `batch_max_bytes`, the first one has waited for `batch_max_delay_ms`, or the producer
stops. Then they are sent in one request, to one queue; each caller gets the result of its own
message, or the error of the request.

Sent alone, as without this: batches, one-way sends, requests and transactions; messages with a
delay, to a retry topic, that would be compressed, or larger than a batch; and all messages while
`total_batch_max_bytes` wait. What waits for their topic is sent before them, so that they overtake
nothing.
Source: client/producer/ProduceAccumulator.java, DefaultMQProducer.java `canBatch`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from steelyard.config import ProducerConfig
from steelyard.errors import MessageError, RemotingError
from steelyard.nodes.producer.contract import SendMessages, SendOneway
from steelyard.nodes.producer.sending import SendCall, Sending
from steelyard.nodes.seam import Answer, Effect, SetTimer
from steelyard.produce import rules
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting.names import RETRY_PREFIX

GATHERING_TIMER = "gathering"

GATHERED_MAX = 1_024
"""Maximum messages of a gathered batch."""


class _Kind(NamedTuple):
    """What messages of one batch have in common."""

    topic: str
    queue: MessageQueue | None
    sharding_key: str
    wait_store_ok: bool
    timeout_ms: int


class _Gathered(msgspec.Struct):
    """Messages that wait, with their calls. `due`: when they are sent at the latest."""

    due: int
    began: int
    messages: list[Message] = []
    call_ids: list[int] = []
    size_bytes: int = 0


class Gathering:
    """The messages of a producer that wait for others."""

    def __init__(self, config: ProducerConfig, sending: Sending) -> None:
        self._config = config
        self._sending = sending
        self._waiting: dict[_Kind, _Gathered] = {}
        self._count = 0
        self._size_bytes = 0

    @property
    def idle(self) -> bool:
        """Return whether no message waits."""
        return not self._waiting

    def send(self, call_id: int, call: SendCall, now: int, effects: list[Effect]) -> None:
        """Take a send: to wait for others, or alone."""
        size_bytes = self._gathered_bytes(call)
        if not isinstance(call, SendMessages) or not size_bytes:
            topics = {message.topic for message in _messages(call)}
            self._flush([kind for kind in self._waiting if kind.topic in topics], now, effects)
            self._sending.send(call_id, call, now, effects)
            return
        config = self._config
        if self._count >= config.in_flight_max:
            text = f"more than {config.in_flight_max} sends in flight (in_flight_max)"
            effects.append(Answer(call_id, RemotingError(text)))
            return
        (message,) = call.messages
        timeout_ms = config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        kind = _Kind(
            message.topic, call.queue, message.sharding_key, message.wait_store_ok, timeout_ms
        )
        group = self._waiting.get(kind)
        if group is not None and group.size_bytes + size_bytes > config.batch_max_bytes:
            self._flush([kind], now, effects)
            group = None
        if group is None:
            due = now + min(config.batch_max_delay_ms, timeout_ms)
            group = self._waiting[kind] = _Gathered(due, now)
            if due <= min(each.due for each in self._waiting.values()):
                effects.append(SetTimer(GATHERING_TIMER, due))
        group.messages.append(message)
        group.call_ids.append(call_id)
        group.size_bytes += size_bytes
        self._count += 1
        self._size_bytes += size_bytes
        if group.size_bytes >= config.batch_max_bytes or len(group.messages) >= GATHERED_MAX:
            self._flush([kind], now, effects)

    def _gathered_bytes(self, call: SendCall) -> int:
        """Return the size of a message that may wait for others, 0 for a send that goes alone."""
        config = self._config
        if not config.auto_batch or not isinstance(call, SendMessages) or len(call.messages) != 1:
            return 0
        (message,) = call.messages
        if (
            rules.is_delayed(message)
            or message.topic.startswith(RETRY_PREFIX)
            or 0 < config.compress_above_bytes < len(message.body)
            or (call.queue is not None and call.queue.topic != message.topic)
        ):
            return 0
        try:
            rules.check_message(message, config.message_bytes_max)
        except MessageError:  # it fails alone
            return 0
        names_bytes = sum([len(name) + len(text) for name, text in message.properties.items()])
        size_bytes = len(message.body) + names_bytes
        fits = self._size_bytes + size_bytes <= config.total_batch_max_bytes
        return size_bytes if fits and size_bytes <= config.batch_max_bytes else 0

    def due(self, now: int, effects: list[Effect]) -> None:
        """Send what has waited long enough."""
        late = [kind for kind, group in self._waiting.items() if group.due <= now]
        self._flush(late, now, effects)
        if self._waiting:
            at = min(group.due for group in self._waiting.values())
            effects.append(SetTimer(GATHERING_TIMER, at))

    def flush(self, now: int, effects: list[Effect]) -> None:
        """Send everything that waits."""
        self._flush(list(self._waiting), now, effects)

    def _flush(self, kinds: list[_Kind], now: int, effects: list[Effect]) -> None:
        for kind in kinds:
            group = self._waiting.pop(kind)
            self._count -= len(group.messages)
            self._size_bytes -= group.size_bytes
            left_ms = max(0, group.began + kind.timeout_ms - now)
            call = SendMessages(tuple(group.messages), kind.queue, left_ms)
            self._sending.send(group.call_ids[0], call, now, effects, tuple(group.call_ids[1:]))

    def check(self) -> None:
        """Assert that the sums are right and the limits kept."""
        groups = self._waiting.values()
        assert all(len(each.messages) == len(each.call_ids) > 0 for each in groups)
        assert self._count == sum(len(each.messages) for each in groups)
        assert self._size_bytes == sum(each.size_bytes for each in groups)
        assert self._size_bytes <= self._config.total_batch_max_bytes


def _messages(call: SendCall) -> tuple[Message, ...]:
    return call.messages if isinstance(call, SendMessages | SendOneway) else (call.message,)
