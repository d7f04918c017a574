"""What a program asks of a producer, and what a producer asks of a program."""

from __future__ import annotations

import msgspec

from steelyard.nodes.seam import Call
from steelyard.types import Message, MessageQueue, SendResult, TransactionState
from steelyard.wire.remoting.message import MessageView


class Half(msgspec.Struct, frozen=True):
    """A half message that a broker has. `transaction_id`: the broker's word for it, if it has one."""

    result: SendResult
    transaction_id: str | None = None


class SendMessages(Call[SendResult], frozen=True):
    """Send one message, or several as one batch to one queue.

    Without `queue` the producer chooses one: by the sharding key, or in turn. `timeout_ms` None: the configured one.
    """

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendOneway(Call[None], frozen=True):
    """Send as `SendMessages`, once, and wait for no broker."""

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendHalf(Call[Half], frozen=True):
    """Send the half message of a transaction; nobody sees it before `EndTransaction`."""

    message: Message
    timeout_ms: int | None = None


class EndTransaction(Call[None], frozen=True):
    """Tell the broker what became of a transaction; `remark` for its log. The word may be lost; then the broker asks."""

    half: Half
    state: TransactionState
    remark: str = ""


class TransactionCheck(msgspec.Struct, frozen=True):
    """Handed to the program: a broker asks what became of the transaction of this half message.

    Answered by `Handled(ticket, TransactionState)`. The transaction's id is `message.message_id`.
    """

    message: MessageView


class SendRequest(Call[MessageView], frozen=True):
    """Send a message and wait for the reply of whoever consumes it.

    `timeout_ms` is for both together.
    """

    message: Message
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendReply(Call[SendResult], frozen=True):
    """Answer a request that was consumed. Answered once the requester has it.

    `message` goes to `produce.outgoing.reply_topic(request)`.
    """

    message: Message
    request: MessageView
    timeout_ms: int | None = None


class FetchQueues(Call[tuple[MessageQueue, ...]], frozen=True):
    """The queues that the topic can be written to."""

    topic: str
    timeout_ms: int | None = None


class Stop(Call[None], frozen=True):
    """Finish what is under way, and end."""
