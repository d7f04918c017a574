"""The calls of an application to a RocketMQ consumer, their results, and what it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from steelyard.consume.statistics import TopicStatistics
from steelyard.nodes.seam import Call
from steelyard.types import ExpressionType, MessageQueue
from steelyard.wire.remoting.message import MessageView


class ConsumeBatch(msgspec.Struct, frozen=True, gc=False):
    """A delivery to the listener: messages of one queue, oldest first, at most `consume_batch`.

    `queue` is where they were read: a message of the group's retry topic has its own topic
    restored. The result of a concurrent listener may be a tuple of statuses, one per message.
    """

    queue: MessageQueue
    messages: tuple[MessageView, ...]


class ConsumeDirectly(msgspec.Struct, frozen=True, gc=False):
    """A delivery to the listener for an operator who wants to see how it handles a message (309).

    The verdict changes nothing in the queue. `Handled` with a text: the exception that the listener
    raised.
    """

    queue: MessageQueue
    message: MessageView


class Assigned(msgspec.Struct, frozen=True):
    """A delivery with `config.hooks`: these queues belong to this member now.

    They are pulled once it has been handled.
    """

    queues: tuple[MessageQueue, ...]


class Revoked(msgspec.Struct, frozen=True):
    """A delivery with `config.hooks`: these queues are given up, and the application has finished.

    Once it has been handled, they are committed and go to other members.
    """

    queues: tuple[MessageQueue, ...]


class Lost(msgspec.Struct, frozen=True):
    """A delivery with `config.hooks`: these queues were lost; others may already read them."""

    queues: tuple[MessageQueue, ...]


class QueuesChanged(msgspec.Struct, frozen=True):
    """A delivery with `config.queue_changes`: a topic's queues or this member's share have changed.

    For clients that pull queues. Source: MessageQueueListener.java.
    """

    topic: str
    all: tuple[MessageQueue, ...]
    mine: tuple[MessageQueue, ...]


class DescribeThreads(msgspec.Struct, frozen=True):
    """A delivery for an operator who wants to see what the client's threads are doing (307).

    Handled with that description as text.
    """


class Poll(Call[tuple[MessageView, ...]], frozen=True):
    """Return messages of one or several queues, those of each queue in order.

    Answered with none after `timeout_ms`. Only one poll at a time.
    """

    messages_max: int
    timeout_ms: int
    number: int = 0
    """Identifies the poll to `GiveBack`; unique for each poll."""


class GiveBack(Call[None], frozen=True):
    """Abandon the poll of this number: it ends, or its messages, which nobody saw, come again.

    The first `seen` of them were seen.
    """

    number: int
    seen: int = 0


class Commit(Call[None], frozen=True):
    """Commit what was polled, or these offsets of held queues.

    Answered once all brokers have accepted it, otherwise with the first error.
    """

    offsets: Mapping[MessageQueue, int] | None = None


class Bound(Enum):
    BEGIN = "BEGIN"
    END = "END"


class Seek(Call[None], frozen=True):
    """Continue polling this held queue from there.

    Answered with a ConfigError if the queue does not have that offset.
    """

    queue: MessageQueue
    to: int | Bound


class PauseQueues(Call[None], frozen=True):
    """Neither pull nor return messages of these queues until `ResumeQueues`, or until given up."""

    queues: tuple[MessageQueue, ...]


class ResumeQueues(Call[None], frozen=True):
    queues: tuple[MessageQueue, ...]


class Assign(Call[None], frozen=True):
    """Hold these queues and no others, and pull the messages that the expression selects.

    For a consumer without subscriptions. Answered once the nameserver was asked for their routes.
    """

    queues: tuple[MessageQueue, ...]
    expression: str = "*"
    expression_type: ExpressionType = ExpressionType.TAG


class Assignment(Call[tuple[MessageQueue, ...]], frozen=True):
    """Return the held queues that are not being given up, sorted."""


Polling = Poll | GiveBack | Commit | Seek | PauseQueues | ResumeQueues | Assign | Assignment


class Pause(Call[None], frozen=True):
    """Stop pulling until `Resume`. Messages already in the client are still consumed."""


class Resume(Call[None], frozen=True):
    """Pull again."""


class Resize(Call[None], frozen=True):
    """Change the number of listener threads, and of batches that may be with them."""

    consume_threads: int
    handed_max: int


class Stop(Call[None], frozen=True):
    """Let the listener finish its batches (bounded), commit, and leave the group.

    Without `wait` the batches with the listener count as not consumed: the group's next owner of
    the queue reads them again.
    """

    wait: bool = True


class ConsumerState(msgspec.Struct, frozen=True):
    """A member's view of its group.

    `offsets`: what would be committed now, for each queue that is being read.
    """

    client_id: str
    members: Mapping[str, tuple[str, ...]]
    """By topic, as the last rebalance saw them."""
    held: tuple[MessageQueue, ...]
    offsets: Mapping[MessageQueue, int]
    paused: bool = False
    statistics: Mapping[str, TopicStatistics] = {}
    """By topic: recent pull and consume rates."""


class Describe(Call[ConsumerState], frozen=True):
    """Return the present state of this member."""
