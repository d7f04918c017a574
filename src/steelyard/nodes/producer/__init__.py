"""A producer: finds the brokers of a topic, sends to them in turn, retries elsewhere.

`contract` has the requests of a program, `node` handles the events. The parts: `sending` is the
life of a send, `waiting` has those without a route, `requests` those that want a reply,
`transactions` the second half of transactions, `recalls` delayed messages that are taken back,
`detection` the brokers that failed, `peers` the
communication with servers.
"""

from __future__ import annotations

from steelyard.nodes.producer.contract import (
    EndTransaction,
    FetchQueues,
    Half,
    RecallMessage,
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
    "RecallMessage",
    "SendHalf",
    "SendMessages",
    "SendOneway",
    "SendReply",
    "SendRequest",
    "Stop",
    "TransactionCheck",
]
