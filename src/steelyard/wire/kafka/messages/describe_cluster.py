"""60 DescribeCluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class DescribeClusterRequest(Message, frozen=True, gc=False):
    """DescribeCluster request. Source: DescribeClusterRequest.json."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterBroker(Part, frozen=True, gc=False):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None
    is_fenced: Annotated[Bool, Since(2)] = False


class DescribeClusterResponse(Message, frozen=True, gc=False):
    """DescribeCluster response. Source: DescribeClusterResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: Int32 = -2147483648


DESCRIBE_CLUSTER = Api(
    60, DescribeClusterRequest, DescribeClusterResponse, versions=(0, 2), flexible=0
)
