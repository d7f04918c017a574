"""The client for asyncio: the same names as in `steelyard`, with coroutines.

>>> from steelyard import aio
>>> async def main():                                                  # doctest: +SKIP
...     async with aio.Producer("orders", "127.0.0.1:9876") as producer:
...         await producer.send("Orders", b"one apple")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.kafka import KafkaConsumer
from steelyard.client.aio.lite_pull import LitePullConsumer
from steelyard.client.aio.producer import Producer
from steelyard.client.aio.pull import PullConsumer
from steelyard.client.aio.push import PushConsumer

if TYPE_CHECKING:
    from steelyard.embedded.aio import Server

__all__ = [
    "Admin",
    "KafkaConsumer",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Server",
]


def __getattr__(name: str) -> object:
    """Load what starts servers when it is first used: clients do not need it."""
    if name != "Server":
        raise AttributeError(f"module 'steelyard.aio' has no attribute {name!r}")
    from steelyard.embedded.aio import Server

    globals()[name] = Server
    return Server
