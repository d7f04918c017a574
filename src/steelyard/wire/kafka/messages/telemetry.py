"""Metrics that clients send to brokers (KIP-714): APIs 71 and 72."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    ApiMessage,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
)


class GetTelemetrySubscriptionsRequest(ApiMessage, frozen=True, gc=False):
    """GetTelemetrySubscriptions request, API 71. Source: GetTelemetrySubscriptionsRequest.json."""

    client_instance_id: Uuid = NO_ID


class GetTelemetrySubscriptionsResponse(ApiMessage, frozen=True, gc=False):
    """GetTelemetrySubscriptions response. Source: GetTelemetrySubscriptionsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_ID
    subscription_id: Int32 = 0
    accepted_compression_types: Sequence[Int8] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Sequence[String] = ()


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    71,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    versions=(0, 0),
    flexible=0,
)


class PushTelemetryRequest(ApiMessage, frozen=True, gc=False):
    """PushTelemetry request, API 72. Source: PushTelemetryRequest.json."""

    client_instance_id: Uuid = NO_ID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(ApiMessage, frozen=True, gc=False):
    """PushTelemetry response. Source: PushTelemetryResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


PUSH_TELEMETRY = Api(72, PushTelemetryRequest, PushTelemetryResponse, versions=(0, 0), flexible=0)
