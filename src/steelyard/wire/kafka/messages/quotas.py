"""How much clients may send and read: APIs 48 and 49."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
)


class QuotaComponent(Part, frozen=True, gc=False):
    entity_type: String = ""
    match_type: Int8 = 0
    match: NullableString = ""


class DescribeClientQuotasRequest(ApiMessage, frozen=True, gc=False):
    """DescribeClientQuotas request, API 48. Source: DescribeClientQuotasRequest.json."""

    components: Sequence[QuotaComponent] = ()
    strict: Bool = False


class QuotaEntity(Part, frozen=True, gc=False):
    entity_type: String = ""
    entity_name: NullableString = ""


class QuotaValue(Part, frozen=True, gc=False):
    key: String = ""
    value: Float64 = 0.0


class QuotaEntry(Part, frozen=True, gc=False):
    entity: Sequence[QuotaEntity] = ()
    values: Sequence[QuotaValue] = ()


class DescribeClientQuotasResponse(ApiMessage, frozen=True, gc=False):
    """DescribeClientQuotas response. Source: DescribeClientQuotasResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    entries: Sequence[QuotaEntry] | None = ()


DESCRIBE_CLIENT_QUOTAS = Api(
    48, DescribeClientQuotasRequest, DescribeClientQuotasResponse, versions=(0, 1), flexible=1
)


class QuotaOperation(Part, frozen=True, gc=False):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class AlteredQuota(Part, frozen=True, gc=False):
    entity: Sequence[QuotaEntity] = ()
    ops: Sequence[QuotaOperation] = ()


class AlterClientQuotasRequest(ApiMessage, frozen=True, gc=False):
    """AlterClientQuotas request, API 49. Source: AlterClientQuotasRequest.json."""

    entries: Sequence[AlteredQuota] = ()
    validate_only: Bool = False


class AlteredQuotaResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    entity: Sequence[QuotaEntity] = ()


class AlterClientQuotasResponse(ApiMessage, frozen=True, gc=False):
    """AlterClientQuotas response. Source: AlterClientQuotasResponse.json."""

    throttle_time_ms: Int32 = 0
    entries: Sequence[AlteredQuotaResult] = ()


ALTER_CLIENT_QUOTAS = Api(
    49, AlterClientQuotasRequest, AlterClientQuotasResponse, versions=(0, 1), flexible=1
)
