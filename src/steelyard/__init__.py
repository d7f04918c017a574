"""Steelyard: a message queue for Python that speaks the protocols of RocketMQ and Kafka.

>>> from steelyard import Producer, PushConsumer
>>> with Producer("orders", "127.0.0.1:9876") as producer:             # doctest: +SKIP
...     producer.send("Orders", b"one apple")

The names below are loaded when they are first used, so that `import steelyard` costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steelyard.version import __version__ as __version__

if TYPE_CHECKING:
    from steelyard.client.blocking.admin import Admin
    from steelyard.client.blocking.kafka import KafkaConsumer
    from steelyard.client.blocking.lite_pull import LitePullConsumer
    from steelyard.client.blocking.producer import Producer
    from steelyard.client.blocking.pull import PullConsumer
    from steelyard.client.blocking.push import PushConsumer
    from steelyard.client.interceptors import (
        ConsumeContext,
        Interceptor,
        ReceiveContext,
        SendContext,
        SendKind,
    )
    from steelyard.config import (
        ConsumerConfig,
        KafkaConsumerConfig,
        LitePullConfig,
        ProducerConfig,
    )
    from steelyard.embedded.server import Server
    from steelyard.errors import (
        ArgumentError,
        BrokerError,
        CallTimeoutError,
        ClosedError,
        CommitFailedError,
        ConfigError,
        ConnectError,
        DeserializationError,
        DiskFullError,
        InternalError,
        KafkaError,
        MessageError,
        NoOffsetError,
        ProtocolError,
        RemotingError,
        RouteError,
        SerializationError,
        SteelyardError,
        StorageError,
    )
    from steelyard.nodes.consumer.kafka.contract import (
        ConsumerRecord,
        MemberState,
        OffsetAndMetadata,
        OffsetAndTimestamp,
    )
    from steelyard.nodes.consumer.remoting.questions import PullResult, PullStatus
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
    from steelyard.wire.remoting.bodies import SubscriptionGroupConfig, TopicConfig
    from steelyard.wire.remoting.message import MessageView


__all__ = [
    "Admin",
    "ArgumentError",
    "BrokerError",
    "CallTimeoutError",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "ConnectError",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOrderlyStatus",
    "ConsumeStatus",
    "ConsumerConfig",
    "ConsumerRecord",
    "DeserializationError",
    "DiskFullError",
    "Interceptor",
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
    "ReceiveContext",
    "RemotingError",
    "RouteError",
    "SendContext",
    "SendKind",
    "SendResult",
    "SendStatus",
    "SerializationError",
    "Server",
    "SteelyardError",
    "StorageError",
    "SubscriptionGroupConfig",
    "TopicConfig",
    "TopicPartition",
    "TransactionResult",
    "TransactionState",
]

_HOMES = {
    "ConsumeContext": "steelyard.client.interceptors",
    "Interceptor": "steelyard.client.interceptors",
    "ReceiveContext": "steelyard.client.interceptors",
    "SendContext": "steelyard.client.interceptors",
    "SendKind": "steelyard.client.interceptors",
    "ConsumerConfig": "steelyard.config",
    "KafkaConsumerConfig": "steelyard.config",
    "LitePullConfig": "steelyard.config",
    "ProducerConfig": "steelyard.config",
    "KafkaConsumer": "steelyard.client.blocking.kafka",
    "LitePullConsumer": "steelyard.client.blocking.lite_pull",
    "ConsumerRecord": "steelyard.nodes.consumer.kafka.contract",
    "MemberState": "steelyard.nodes.consumer.kafka.contract",
    "OffsetAndMetadata": "steelyard.nodes.consumer.kafka.contract",
    "OffsetAndTimestamp": "steelyard.nodes.consumer.kafka.contract",
    "PullConsumer": "steelyard.client.blocking.pull",
    "PullResult": "steelyard.nodes.consumer.remoting.questions",
    "PullStatus": "steelyard.nodes.consumer.remoting.questions",
    "Admin": "steelyard.client.blocking.admin",
    "Producer": "steelyard.client.blocking.producer",
    "PushConsumer": "steelyard.client.blocking.push",
    "Server": "steelyard.embedded.server",
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
    "TopicConfig": "steelyard.wire.remoting.bodies",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "steelyard.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
