"""The meaning of a broker's response to a send: stored, retriable, or final.

Source: client/impl/MQClientAPIImpl.java `processSendResponse` and DefaultMQProducer.java
`retryResponseCodes` of 4.9.8 and 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from steelyard.types import SendStatus
from steelyard.wire.remoting.codes import ResponseCode

STORED: Mapping[int, SendStatus] = MappingProxyType(
    {
        ResponseCode.SUCCESS: SendStatus.SEND_OK,
        ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""Codes with a SendResult."""

_NO_BUYER_ID = 204
_NOT_IN_CURRENT_UNIT = 205

_RETRIED_4 = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        _NO_BUYER_ID,
        _NOT_IN_CURRENT_UNIT,
    }
)

RETRIED: Mapping[str, frozenset[int]] = MappingProxyType(
    {
        "4.x": _RETRIED_4,
        "5.x": _RETRIED_4 | {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY},
    }
)
"""Codes retried on another broker, by the values of `ProducerConfig.retry_codes`."""
