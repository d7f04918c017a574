"""The requests of a program to a producer, and of a producer to a program."""

from __future__ import annotations

import msgspec

from steelyard.nodes.seam import Call
from steelyard.types import Message, MessageQueue, SendResult, TransactionState
from steelyard.wire.remoting.message import MessageView


class Half(msgspec.Struct, frozen=True):
    """A stored half message. `transaction_id`: the broker's id for it, if it has one."""

    result: SendResult
    transaction_id: str | None = None


class SendMessages(Call[SendResult], frozen=True):
    """Send one message, or several as one batch to one queue.

    Without `queue` the producer chooses one: by the sharding key, or in turn. `timeout_ms` None:
    the configured one.
    """

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendOneway(Call[None], frozen=True):
    """Send as `SendMessages`, once, without waiting for a broker."""

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendHalf(Call[Half], frozen=True):
    """Send the half message of a transaction; it is not delivered before `EndTransaction`."""

    message: Message
    timeout_ms: int | None = None


class EndTransaction(Call[None], frozen=True):
    """Tell the broker the outcome of a transaction; `remark` is for its log.

    The request may be lost; the broker then asks.
    """

    half: Half
    state: TransactionState
    remark: str = ""


class TransactionCheck(msgspec.Struct, frozen=True):
    """Passed to the program: a broker asks for the outcome of this half message's transaction.

    Answered by `Handled(ticket, TransactionState)`. The transaction's id is `message.message_id`.
    """

    message: MessageView


class SendRequest(Call[MessageView], frozen=True):
    """Send a message and wait for its consumer's reply.

    `timeout_ms` is for both together.
    """

    message: Message
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendReply(Call[SendResult], frozen=True):
    """Reply to a request that was consumed. Answered once the requester has received the reply.

    `message` goes to `produce.outgoing.reply_topic(request)`.
    """

    message: Message
    request: MessageView
    timeout_ms: int | None = None


class RecallMessage(Call[str], frozen=True):
    """Take back a delayed message that is not due yet; answered with its UNIQ_KEY.

    `handle`: `SendResult.recall_handle`.
    """

    handle: str
    timeout_ms: int | None = None


class FetchQueues(Call[tuple[MessageQueue, ...]], frozen=True):
    """Return the queues of the topic that can be written."""

    topic: str
    timeout_ms: int | None = None


class Stop(Call[None], frozen=True):
    """Finish what is in progress, and stop."""
