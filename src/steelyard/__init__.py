"""Steelyard: a message queue for Python that speaks RocketMQ's protocol.

>>> from steelyard import Producer, PushConsumer
>>> with Producer("orders", "127.0.0.1:9876") as producer:             # doctest: +SKIP
...     producer.send("Orders", b"one apple")

The names below are loaded when they are first used, so that `import steelyard` costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.config import (
        ConsumerConfig,
        KafkaConsumerConfig,
        LitePullConfig,
        ProducerConfig,
    )
    from steelyard.errors import (
        BrokerError,
        CallTimeoutError,
        ClosedError,
        CommitFailedError,
        ConfigError,
        ConnectError,
        DiskFullError,
        InternalError,
        KafkaError,
        MessageError,
        NoOffsetError,
        ProtocolError,
        RemotingError,
        RouteError,
        SteelyardError,
        StorageError,
    )
    from steelyard.live.blocking.admin import Admin
    from steelyard.live.blocking.kafka import KafkaConsumer
    from steelyard.live.blocking.lite_pull import LitePullConsumer
    from steelyard.live.blocking.producer import Producer
    from steelyard.live.blocking.pull import PullConsumer
    from steelyard.live.blocking.push import PushConsumer
    from steelyard.nodes.consumer.questions import PullResult, PullStatus
    from steelyard.nodes.kafka_consumer.contract import (
        ConsumerRecord,
        MemberState,
        OffsetAndMetadata,
        OffsetAndTimestamp,
    )
    from steelyard.types import (
        ConsumeFrom,
        ConsumeOrderlyStatus,
        ConsumeStatus,
        Message,
        MessageModel,
        MessageQueue,
        SendResult,
        SendStatus,
        TopicPartition,
        TransactionResult,
        TransactionState,
    )
    from steelyard.wire.remoting.bodies import SubscriptionGroupConfig
    from steelyard.wire.remoting.message import MessageView

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "BrokerError",
    "CallTimeoutError",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "ConnectError",
    "ConsumeFrom",
    "ConsumeOrderlyStatus",
    "ConsumeStatus",
    "ConsumerConfig",
    "ConsumerRecord",
    "DiskFullError",
    "InternalError",
    "KafkaConsumer",
    "KafkaConsumerConfig",
    "KafkaError",
    "LitePullConfig",
    "LitePullConsumer",
    "MemberState",
    "Message",
    "MessageError",
    "MessageModel",
    "MessageQueue",
    "MessageView",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerConfig",
    "ProtocolError",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "RemotingError",
    "RouteError",
    "SendResult",
    "SendStatus",
    "SteelyardError",
    "StorageError",
    "SubscriptionGroupConfig",
    "TopicPartition",
    "TransactionResult",
    "TransactionState",
]

_HOMES = {
    "ConsumerConfig": "steelyard.config",
    "KafkaConsumerConfig": "steelyard.config",
    "LitePullConfig": "steelyard.config",
    "ProducerConfig": "steelyard.config",
    "KafkaConsumer": "steelyard.live.blocking.kafka",
    "LitePullConsumer": "steelyard.live.blocking.lite_pull",
    "ConsumerRecord": "steelyard.nodes.kafka_consumer.contract",
    "MemberState": "steelyard.nodes.kafka_consumer.contract",
    "OffsetAndMetadata": "steelyard.nodes.kafka_consumer.contract",
    "OffsetAndTimestamp": "steelyard.nodes.kafka_consumer.contract",
    "PullConsumer": "steelyard.live.blocking.pull",
    "PullResult": "steelyard.nodes.consumer.questions",
    "PullStatus": "steelyard.nodes.consumer.questions",
    "Admin": "steelyard.live.blocking.admin",
    "Producer": "steelyard.live.blocking.producer",
    "PushConsumer": "steelyard.live.blocking.push",
    "ConsumeFrom": "steelyard.types",
    "ConsumeOrderlyStatus": "steelyard.types",
    "ConsumeStatus": "steelyard.types",
    "Message": "steelyard.types",
    "MessageModel": "steelyard.types",
    "MessageQueue": "steelyard.types",
    "SendResult": "steelyard.types",
    "SendStatus": "steelyard.types",
    "TopicPartition": "steelyard.types",
    "TransactionResult": "steelyard.types",
    "TransactionState": "steelyard.types",
    "MessageView": "steelyard.wire.remoting.message",
    "SubscriptionGroupConfig": "steelyard.wire.remoting.bodies",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "steelyard.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
