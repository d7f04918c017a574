"""What a program asks of a producer, and what a producer asks of a program."""

from __future__ import annotations

import msgspec

from steelyard.types import Message, MessageQueue, SendResult, TransactionState
from steelyard.wire.remoting.message import MessageView


class SendMessages(msgspec.Struct, frozen=True):
    """Call: send one message, or several as one batch to one queue.

    Without `queue` the producer chooses one: by the sharding key, or in turn. Answer: SendResult, None for
    `oneway`, or an exception. `timeout_ms` None: the configured one.
    """

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    oneway: bool = False
    timeout_ms: int | None = None


class SendHalf(msgspec.Struct, frozen=True):
    """Call: send the half message of a transaction; nobody sees it before `EndTransaction`. Answer: Half, or an exception."""

    message: Message
    timeout_ms: int | None = None


class Half(msgspec.Struct, frozen=True):
    """A half message that a broker has. `transaction_id`: the broker's word for it, if it has one."""

    result: SendResult
    transaction_id: str | None = None


class EndTransaction(msgspec.Struct, frozen=True):
    """Call: tell the broker what became of a transaction; `remark` for its log. Answer: None, or an exception.

    The word may be lost; then the broker asks.
    """

    half: Half
    state: TransactionState
    remark: str = ""


class TransactionCheck(msgspec.Struct, frozen=True):
    """Handed to the program: a broker asks what became of the transaction of this half message.

    Answered by `Handled(ticket, TransactionState)`. The transaction's id is `message.message_id`.
    """

    message: MessageView


class SendRequest(msgspec.Struct, frozen=True):
    """Call: send a message and wait for the reply of whoever consumes it. Answer: its MessageView, or an exception.

    `timeout_ms` is for both together.
    """

    message: Message
    queue: MessageQueue | None = None
    timeout_ms: int | None = None


class SendReply(msgspec.Struct, frozen=True):
    """Call: answer a request that was consumed. Answer: SendResult once the requester has it, or an exception.

    `message` goes to `produce.outgoing.reply_topic(request)`.
    """

    message: Message
    request: MessageView
    timeout_ms: int | None = None


class FetchQueues(msgspec.Struct, frozen=True):
    """Call. Answer: tuple[MessageQueue, ...] that the topic can be written to, or an exception."""

    topic: str
    timeout_ms: int | None = None


class Stop(msgspec.Struct, frozen=True):
    """Call: finish. Answer: None."""
