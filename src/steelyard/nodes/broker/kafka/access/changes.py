"""29 DescribeAcls, 30 CreateAcls and 31 DeleteAcls (versions 1-3): the access rules themselves.

Any broker changes them; the answer waits until the live brokers know. Without an authorizer all
three are SECURITY_DISABLED, as in Kafka. A rule that exists already is created without an error.
Source: core/kafka/server/AclApis.scala, metadata/controller/AclControlManager.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from steelyard.acl.bindings import (
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from steelyard.errors import ConfigError, StorageError
from steelyard.nodes.broker.acls import ACLS_MAX, AclEntry, AclStore, name_of
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.access.spreading import AclSpreading
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.seam import Effect
from steelyard.printable import printable
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

CHANGES_MAX = 1_000
"""Most rules or filters in one request."""
DISABLED = "No Authorizer is configured."

_E = TypeVar("_E", bound=IntEnum)


class AclChanges:
    """Handlers of DescribeAcls, CreateAcls and DeleteAcls. `is_enabled`: with an authorizer."""

    def __init__(
        self,
        acls: AclStore,
        spreading: AclSpreading,
        durability: Durability,
        faults: Faults,
        *,
        is_enabled: bool,
    ) -> None:
        self._acls = acls
        self._spreading = spreading
        self._durability = durability
        self._faults = faults
        self._is_enabled = is_enabled

    @serves(DescribeAclsRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        if not self._is_enabled:
            return DescribeAclsResponse(0, ErrorCode.SECURITY_DISABLED, DISABLED)
        wanted = _filter(call.read(DescribeAclsRequest))
        if wanted.is_unknown:
            text = "The filter contains UNKNOWN elements"
            return DescribeAclsResponse(0, ErrorCode.INVALID_REQUEST, text)
        found = [each for each in self._acls.bindings() if wanted.matches(each)]
        resources = [
            DescribeAclsResource(
                kind,
                name,
                pattern,
                [
                    AclDescription(each.principal, each.host, each.operation, each.permission)
                    for each in same
                ],
            )
            for (kind, pattern, name), same in groupby(
                found, lambda each: (each.resource_type, each.pattern_type, each.resource_name)
            )
        ]
        return DescribeAclsResponse(error_message=None, resources=resources)

    @serves(CreateAclsRequest)
    def create(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        creations = call.read(CreateAclsRequest).creations
        if not self._is_enabled:
            refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, DISABLED)
            return CreateAclsResponse(results=[refused] * len(creations))
        planned: dict[str, AclEntry] = {}
        results: list[AclCreationResult] = []
        room = ACLS_MAX - len(self._acls.names())
        for number, creation in enumerate(creations):
            try:
                if number >= CHANGES_MAX:
                    text = f"A request may create {CHANGES_MAX} ACLs"
                    raise RequestRefused(ErrorCode.POLICY_VIOLATION, text)
                entry = self._created(creation)
                if self._acls.get(entry.name) is None:
                    planned[entry.name] = entry
                if len(planned) > room:
                    del planned[entry.name]
                    text = f"There are {ACLS_MAX} ACLs, as many as possible"
                    raise RequestRefused(ErrorCode.POLICY_VIOLATION, text)
                results.append(AclCreationResult(ErrorCode.NONE, None))
            except RequestRefused as error:
                results.append(AclCreationResult(error.code, error.text))
        if not self._stored(list(planned.values()), now, effects):
            fault = AclCreationResult(ErrorCode.KAFKA_STORAGE_ERROR, "see the broker's log")
            return CreateAclsResponse(
                results=[each if each.error_code else fault for each in results]
            )
        answer = CreateAclsResponse(results=results)
        self._publish(call, list(planned.values()), answer, now, effects)
        return None

    def _created(self, creation: AclCreation) -> AclEntry:
        """Return the rule to store. Raises RequestRefused."""
        binding = AclBinding(
            _known(ResourceType, creation.resource_type),
            _known(PatternType, creation.resource_pattern_type),
            creation.resource_name,
            creation.principal,
            creation.host,
            _known(AclOperation, creation.operation),
            _known(Permission, creation.permission_type),
        )
        try:
            check_binding(binding)
        except ConfigError as error:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, str(error)) from None
        return self._acls.changed(binding)

    @serves(DeleteAclsRequest)
    def delete(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        filters = call.read(DeleteAclsRequest).filters
        if not self._is_enabled:
            refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, DISABLED)
            return DeleteAclsResponse(filter_results=[refused] * len(filters))
        existing = self._acls.bindings() if filters else []
        deleted: dict[str, AclEntry] = {}
        results: list[DeleteAclsFilterResult] = []
        for number, asked in enumerate(filters):
            wanted = _filter(asked)
            if number >= CHANGES_MAX:
                text = f"A request may have {CHANGES_MAX} filters"
                results.append(DeleteAclsFilterResult(ErrorCode.POLICY_VIOLATION, text))
            elif wanted.is_unknown:
                text = "Unknown patternFilter or entryFilter."
                results.append(DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, text))
            else:
                found = [each for each in existing if wanted.matches(each)]
                for each in found:
                    deleted[name_of(each)] = self._acls.changed(each, is_deleted=True)
                results.append(DeleteAclsFilterResult(0, None, [_matching(each) for each in found]))
        if not self._stored(list(deleted.values()), now, effects):
            code, text = ErrorCode.KAFKA_STORAGE_ERROR, "see the broker's log"
            fault = DeleteAclsFilterResult(code, text)
            return DeleteAclsResponse(filter_results=[fault] * len(filters))
        answer = DeleteAclsResponse(filter_results=results)
        self._publish(call, list(deleted.values()), answer, now, effects)
        return None

    def _stored(self, entries: Sequence[AclEntry], now: int, effects: list[Effect]) -> bool:
        try:
            self._acls.merge(entries)
        except StorageError as error:
            self._faults.tell(f"access rules were not stored: {error}", now, effects)
            return False
        return True

    def _publish(
        self,
        call: OpenRequest,
        entries: Sequence[AclEntry],
        answer: ApiMessage,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Answer once the other brokers know."""
        for entry in entries:
            verb = "deleted" if entry.is_deleted else "added"
            rule = printable(str(entry.binding))
            effects.append(LogLine("INFO", f"{call.peer.address} {verb} an access rule: {rule}"))

        def then(now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, answer, effects)

        if entries:
            self._spreading.publish(entries, then, now, effects)
        else:
            then(now, effects)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        _known(ResourceType, asked.resource_type_filter),
        _known(PatternType, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _known(AclOperation, asked.operation),
        _known(Permission, asked.permission_type),
    )


def _known(kind: type[_E], code: int) -> _E:
    """Return what a number means; UNKNOWN if this version does not know it."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _matching(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        0,
        None,
        binding.resource_type,
        binding.resource_name,
        binding.pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission,
    )
