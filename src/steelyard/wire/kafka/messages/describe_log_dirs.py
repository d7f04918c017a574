"""35 DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import Api, Bool, Int16, Int32, Int64, Message, Part, Since, String


class DescribableLogDirTopic(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class DescribeLogDirsRequest(Message, frozen=True, gc=False):
    """DescribeLogDirs request. Source: DescribeLogDirsRequest.json."""

    topics: Sequence[DescribableLogDirTopic] | None = ()


class DescribeLogDirsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Bool, Since(5)] = False


class DescribeLogDirsResponse(Message, frozen=True, gc=False):
    """DescribeLogDirs response. Source: DescribeLogDirsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: Sequence[DescribeLogDirsResult] = ()


DESCRIBE_LOG_DIRS = Api(
    35, DescribeLogDirsRequest, DescribeLogDirsResponse, versions=(1, 5), flexible=2
)
