"""71 GetTelemetrySubscriptions and 72 PushTelemetry (version 0): metrics that clients would send.

Nobody receives them here. As Apache Kafka without a receiver, the broker does not announce these
APIs, so that clients do not ask; whoever asks nevertheless gets a subscription to nothing, whose id
follows from the client's, and what is pushed for it is dropped.
Source: server/ClientMetricsManager.java, KIP-714.
"""

from __future__ import annotations

from zlib import crc32

from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.types import Random
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

PUSH_INTERVAL_MS = 300_000
TELEMETRY_BYTES_MAX = 1_048_576
"""Kafka's defaults: how often a client sends, and how much at a time (telemetry.max.bytes)."""
COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)


class Telemetry:
    """Handlers of GetTelemetrySubscriptions and PushTelemetry."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    @serves(GetTelemetrySubscriptionsRequest)
    def subscriptions(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        client = call.read(GetTelemetrySubscriptionsRequest).client_instance_id
        if client == NO_ID:
            client = (1 + self._rng.randrange(2**128 - 1)).to_bytes(16)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client,
            subscription_id=_subscription(client),
            accepted_compression_types=COMPRESSIONS,
            push_interval_ms=PUSH_INTERVAL_MS,
            telemetry_max_bytes=TELEMETRY_BYTES_MAX,
            delta_temporality=True,
        )

    @serves(PushTelemetryRequest)
    def push(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(PushTelemetryRequest)
        code = ErrorCode.NONE
        if message.client_instance_id == NO_ID:
            code = ErrorCode.INVALID_REQUEST
        elif message.subscription_id != _subscription(message.client_instance_id):
            code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif message.compression_type not in (Compression.NONE, *COMPRESSIONS):
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif len(message.metrics) > TELEMETRY_BYTES_MAX:
            code = ErrorCode.TELEMETRY_TOO_LARGE
        return PushTelemetryResponse(error_code=code)


def _subscription(client: bytes) -> int:
    """Return the id of a client's subscription, an int32."""
    return crc32(client) & 0x7FFFFFFF
