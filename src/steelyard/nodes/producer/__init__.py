"""A producer: finds the brokers of a topic, sends to them in turn, tries again elsewhere.

`contract` has what a program asks of it, `node` what happens to it. The parts: `sending` is the life of a send,
`waiting` for those without a route, `requests` for those that want a reply, `transactions` for the second half of
transactions, `detection` for brokers that failed, `peers` for everybody at the other end.
"""

from __future__ import annotations

from steelyard.nodes.producer.contract import (
    EndTransaction,
    FetchQueues,
    Half,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
    TransactionCheck,
)
from steelyard.nodes.producer.node import ProducerNode

__all__ = [
    "EndTransaction",
    "FetchQueues",
    "Half",
    "ProducerNode",
    "SendHalf",
    "SendMessages",
    "SendOneway",
    "SendReply",
    "SendRequest",
    "Stop",
    "TransactionCheck",
]
