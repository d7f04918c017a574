"""18 ApiVersions: the APIs that this broker serves, their versions, and the cluster's features.

A request in an unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the
supported versions of ApiVersions, so that the client can ask again (KIP-511). Illegal characters in
the name or version of the client's software are INVALID_REQUEST. Produce is announced from version
0 although it begins at 3: librdkafka concludes from a higher first version that a broker lacks
features (KAFKA-18659). UNANNOUNCED APIs are served, but clients are not to know.

From version 3 on FEATURES says which protocols are in use; they never change.
Source: clients/common/requests/ApiVersionsRequest.java, ApiVersionsResponse.java.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Request
from steelyard.wire.kafka.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from steelyard.wire.kafka.messages.data import PRODUCE
from steelyard.wire.kafka.messages.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY

FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 1}
"""Levels of features: the consumer groups of KIP-848; share groups; transactions without KIP-890.

Source: server-common/server/common/GroupVersion.java, ShareVersion.java, TransactionVersion.java.
"""
UNANNOUNCED = (GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key)
"""A client that is offered these asks for a subscription whenever it starts (KIP-714)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def versions_reply(request: Request, served: Collection[int]) -> tuple[int, ApiVersionsResponse]:
    """Return the version to answer in, and the answer. `served`: the keys of all APIs."""
    message = request.message
    if message is None:
        ours = (ApiVersion(request.api.key, *request.api.versions),)
        return 0, ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, ours)
    assert isinstance(message, ApiVersionsRequest)
    if request.version >= 3:
        named = (message.client_software_name, message.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, named)):
            return request.version, ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    return request.version, ApiVersionsResponse(
        ErrorCode.NONE,
        [
            ApiVersion(key, 0 if key == PRODUCE.key else api.versions[0], api.versions[1])
            for key, api in APIS.items()
            if key in served and key not in UNANNOUNCED
        ],
        supported_features=[SupportedFeatureKey(name, at, at) for name, at in FEATURES.items()],
        finalized_features_epoch=0,
        finalized_features=[FinalizedFeatureKey(name, at, at) for name, at in FEATURES.items()],
    )
