"""18 ApiVersions: the APIs that this broker serves, and their versions.

A request in an unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the
supported versions of ApiVersions, so that the client can ask again (KIP-511). Illegal characters in
the name or version of the client's software are INVALID_REQUEST. Produce is announced from version
0 although it begins at 3: librdkafka concludes from a higher first version that a broker lacks
features (KAFKA-18659).
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
)
from steelyard.wire.kafka.messages.data import PRODUCE

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
            if key in served
        ],
    )
