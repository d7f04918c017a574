"""What a push consumer's driver and application say to it and get from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from steelyard.consume.statistics import TopicStatistics
from steelyard.nodes.seam import Call
from steelyard.types import ExpressionType, MessageQueue
from steelyard.wire.remoting.message import MessageView


class ConsumeBatch(msgspec.Struct, frozen=True, gc=False):
    """What `Deliver` gives to the listener: messages of one queue, oldest first, at most `consume_batch`.

    `queue` is where they were read: a message of the group's retry topic has its own topic back.
    """

    queue: MessageQueue
    messages: tuple[MessageView, ...]


class ConsumeDirectly(msgspec.Struct, frozen=True, gc=False):
    """What `Deliver` gives to the listener because an operator wants to see what it does with this message (309).

    The verdict changes nothing in the queue. Handled with a text: what the listener raised.
    """

    queue: MessageQueue
    message: MessageView


class Assigned(msgspec.Struct, frozen=True):
    """What `Deliver` tells with `config.hooks`: these queues are this member's; they are pulled once it is handled."""

    queues: tuple[MessageQueue, ...]


class Revoked(msgspec.Struct, frozen=True):
    """What `Deliver` tells with `config.hooks`: these queues are given up, the application has nothing of them
    any more. They are committed and go to others once it is handled."""

    queues: tuple[MessageQueue, ...]


class Lost(msgspec.Struct, frozen=True):
    """What `Deliver` tells with `config.hooks`: these queues were taken away; others may read them already."""

    queues: tuple[MessageQueue, ...]


class QueuesChanged(msgspec.Struct, frozen=True):
    """What `Deliver` tells with `config.hooks`: a topic has other queues, or this member another share of them
    (MessageQueueListener.java). Clients of queues that are pulled get it."""

    topic: str
    all: tuple[MessageQueue, ...]
    mine: tuple[MessageQueue, ...]


class DescribeThreads(msgspec.Struct, frozen=True):
    """What `Deliver` asks for when an operator wants to see where the client's threads are (307).

    Handled with that text.
    """


class Poll(Call[tuple[MessageView, ...]], frozen=True):
    """Of an application that polls. Answered with messages of one or several queues, those of a queue
    in order; none when the time is over. One at a time."""

    messages_max: int
    timeout_ms: int
    number: int = 0
    """For `GiveBack`: another one for each poll."""


class GiveBack(Call[None], frozen=True):
    """The poll of this number was given up by the application. It ends, or what it returned and nobody saw
    is returned again."""

    number: int


class Commit(Call[None], frozen=True):
    """Commit what was polled, or these offsets of queues that are held. Answered once all brokers
    have taken it, or with the first error."""

    offsets: Mapping[MessageQueue, int] | None = None


class Bound(Enum):
    BEGIN = "BEGIN"
    END = "END"


class Seek(Call[None], frozen=True):
    """Poll this queue, which is held, from there on. Answered with a ConfigError where it has no such offset."""

    queue: MessageQueue
    to: int | Bound


class PauseQueues(Call[None], frozen=True):
    """Neither pull nor return messages of these queues until `ResumeQueues`, or until they are given up."""

    queues: tuple[MessageQueue, ...]


class ResumeQueues(Call[None], frozen=True):
    queues: tuple[MessageQueue, ...]


class Assign(Call[None], frozen=True):
    """Hold these queues and no others, of a consumer without subscriptions, and pull what the expression
    wants of them. Answered once the nameserver was asked where they are."""

    queues: tuple[MessageQueue, ...]
    expression: str = "*"
    expression_type: ExpressionType = ExpressionType.TAG


class Assignment(Call[tuple[MessageQueue, ...]], frozen=True):
    """The queues that are held and not being given up, sorted."""


Polling = Poll | GiveBack | Commit | Seek | PauseQueues | ResumeQueues | Assign | Assignment


class Pause(Call[None], frozen=True):
    """Pull no more until `Resume`. What is in the client is consumed."""


class Resume(Call[None], frozen=True):
    """Pull again."""


class Resize(Call[None], frozen=True):
    """So many listeners run from now on, and so many batches may be with them."""

    consume_threads: int
    handed_max: int


class Stop(Call[None], frozen=True):
    """Let the listener finish what it has (bounded), commit, leave the group.

    Without `wait` what the listener has counts as not consumed: the group's next owner of the queue reads it again.
    """

    wait: bool = True


class ConsumerState(msgspec.Struct, frozen=True):
    """A member's view of its group. `offsets`: what would be committed now, per queue that is being read."""

    client_id: str
    members: Mapping[str, tuple[str, ...]]
    """By topic, as the last rebalance saw them."""
    held: tuple[MessageQueue, ...]
    offsets: Mapping[MessageQueue, int]
    paused: bool = False
    statistics: Mapping[str, TopicStatistics] = {}
    """By topic: what was pulled and consumed lately."""


class Describe(Call[ConsumerState], frozen=True):
    """How this member is, at this moment."""
