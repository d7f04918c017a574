"""Requests to Apache's brokers that ours do not answer: cleaning on demand, consume modes.

Ours delete expired messages with their index rows by themselves, and know no POP; they answer
BrokerError 3, as brokers do that are too old.
Source: DefaultMQAdminExtImpl.java, RequestCode.java, SetMessageRequestModeRequestBody.java.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from steelyard.checks import Int32
from steelyard.client.administration.asking import Asking
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import Body


class ApacheCode(IntEnum):
    """Request codes that no server of ours answers."""

    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    QUERY_CONSUME_QUEUE = 321
    DELETE_EXPIRED_COMMITLOG = 329
    SET_MESSAGE_REQUEST_MODE = 401


ConsumeMode = Literal["PULL", "POP"]
"""How members of a group get messages of a topic.

They pull from the queues that they hold, or brokers deal out messages of queues that members share.
Source: MessageRequestMode.java.
"""


class ConsumeModeBody(Body, frozen=True):
    """401 SET_MESSAGE_REQUEST_MODE."""

    topic: str
    consumer_group: str
    mode: str
    pop_share_queue_num: int = 0


class ApacheRequests(Asking):
    """Methods for Apache's brokers."""

    async def clean_expired_consume_queues(self, broker: str) -> None:
        """Make a broker delete index rows of messages that it has deleted."""
        await self.ask(broker, ApacheCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_commit_log(self, broker: str) -> None:
        """Make a broker delete files with expired messages now, not at the hour that is set."""
        await self.ask(broker, ApacheCode.DELETE_EXPIRED_COMMITLOG)

    async def set_consume_mode(
        self,
        group: str,
        topic: str,
        mode: ConsumeMode,
        *,
        broker: str,
        pop_share_queues: Int32 = 0,
    ) -> None:
        """Set how a group gets messages of a topic from the broker at this address (5.x).

        `pop_share_queues`: with POP, how many further members may share each queue; 0: all.
        """
        body = ConsumeModeBody(topic, group, mode, pop_share_queues)
        await self.ask(broker, ApacheCode.SET_MESSAGE_REQUEST_MODE, body=fastjson.write(body))
