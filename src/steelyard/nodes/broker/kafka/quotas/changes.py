"""48 DescribeClientQuotas and 49 AlterClientQuotas (versions 0-1): what clients may send and read.

Any broker changes them; the answer waits until the live brokers know. Each entity succeeds or fails
on its own. The quotas that Kafka has besides those in bytes/s are refused: request_percentage,
controller_mutation_rate, and connection_creation_rate of IP addresses.
Source: metadata/controller/ClientQuotaControlManager.java, metadata/image/ClientQuotasImage.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.quotas.spreading import QuotaSpreading
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.quotas import (
    CLIENT_ID,
    QUOTA_KEYS,
    QUOTAS_MAX,
    USER,
    QuotaEntityName,
    QuotaStore,
    QuotaValues,
    name_of,
)
from steelyard.nodes.seam import Effect
from steelyard.printable import printable
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    AlteredQuotaResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaEntry,
    QuotaOperation,
    QuotaValue,
)
from steelyard.wire.kafka.schema import ApiMessage

CHANGES_MAX = 1_000
"""Most entities in one request."""
NAME_CHARACTERS_MAX = 1_000
"""Longest name of a user or a client id."""

EXACT, DEFAULT, ANY = range(3)
"""How a filter matches an entity's name. Source: DescribeClientQuotasRequest.java."""

IP = "ip"
UNSUPPORTED = {
    "request_percentage": "the broker does not measure the time that requests take",
    "controller_mutation_rate": "changes of topics are limited by their number in a request",
    "connection_creation_rate": "connections are limited by their number",
}
"""Kafka's other quotas, and why there are none."""


class QuotaChanges:
    """Handlers of DescribeClientQuotas and AlterClientQuotas."""

    def __init__(
        self, quotas: QuotaStore, spreading: QuotaSpreading, durability: Durability, faults: Faults
    ) -> None:
        self._quotas = quotas
        self._spreading = spreading
        self._durability = durability
        self._faults = faults

    @serves(DescribeClientQuotasRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(DescribeClientQuotasRequest)
        try:
            wanted = _filter(message.components)
        except RequestRefused as error:
            return DescribeClientQuotasResponse(0, error.code, error.text, None)
        return DescribeClientQuotasResponse(
            error_message=None,
            entries=[
                QuotaEntry(
                    [QuotaEntity(*part) for part in quota.entity],
                    [QuotaValue(*value) for value in quota.values.items()],
                )
                for quota in self._quotas.found()
                if _matches(quota.entity, wanted, is_strict=message.strict)
            ],
        )

    @serves(AlterClientQuotasRequest)
    def alter(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        message = call.read(AlterClientQuotasRequest)
        planned: dict[str, QuotaValues] = {}
        results: list[AlteredQuotaResult] = []
        for number, asked in enumerate(message.entries):
            try:
                if number >= CHANGES_MAX:
                    text = f"A request may change {CHANGES_MAX} entities"
                    raise RequestRefused(ErrorCode.POLICY_VIOLATION, text)
                quota = self._altered(asked)
                if quota.name in planned:
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, _duplicate(quota.entity))
                planned[quota.name] = quota
                results.append(AlteredQuotaResult(ErrorCode.NONE, None, asked.entity))
            except RequestRefused as error:
                results.append(AlteredQuotaResult(error.code, error.text, asked.entity))
        if message.validate_only:
            planned = {}
        changed: Sequence[QuotaValues] = ()
        try:
            changed = self._quotas.merge(planned.values())
        except StorageError as error:
            self._faults.tell(f"quotas were not stored: {error}", now, effects)
            code, text = ErrorCode.KAFKA_STORAGE_ERROR, "see the broker's log"
            results = [
                each if each.error_code else AlteredQuotaResult(code, text, each.entity)
                for each in results
            ]
        for quota in changed:
            text = f"{call.peer.address} set the quotas of {printable(quota.name)}: {quota.values}"
            effects.append(LogLine("INFO", text))
        answer = AlterClientQuotasResponse(entries=results)

        def then(now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, answer, effects)

        if changed:
            self._spreading.publish(changed, then, now, effects)
        else:
            then(now, effects)

    def _altered(self, asked: AlteredQuota) -> QuotaValues:
        """Return the entity with its new quotas. Raises RequestRefused, in Kafka's words."""
        entity, is_ip = _entity(asked.entity)
        known = self._quotas.get(name_of(entity))
        values = {} if known is None else dict(known.values)
        if len({operation.key for operation in asked.ops}) < len(asked.ops):
            raise RequestRefused(ErrorCode.INVALID_REQUEST, _duplicate(entity))
        for operation in asked.ops:
            if operation.remove:
                values.pop(operation.key, None)
            else:
                values[operation.key] = _value(operation, is_ip=is_ip)
        if values and not self._quotas.has_room(entity):
            text = f"There are {QUOTAS_MAX} entities with quotas, as many as possible"
            raise RequestRefused(ErrorCode.POLICY_VIOLATION, text)
        return self._quotas.changed(entity, values)


def _duplicate(entity: QuotaEntityName) -> str:
    shown = ", ".join(f"{kind}={name}" for kind, name in entity)
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})"


def _entity(parts: Sequence[QuotaEntity]) -> tuple[QuotaEntityName, bool]:
    """Return whom quotas are for, and whether it is an IP address. Raises RequestRefused."""
    named = {part.entity_type: part.entity_name for part in parts}
    text = ""
    if not named:
        text = "Invalid empty client quota entity"
    elif IP in named and len(named) > 1:
        text = (
            "Invalid quota entity combination, IP entity shouldnot be combined with User or"
            " ClientId"
        )
    for kind, name in named.items():
        if kind not in (USER, CLIENT_ID, IP):
            text = f"Unhandled client quota entity type: {kind[:100]}"
        elif name == "":
            text = f"Empty {kind} not supported"
        elif name is not None and len(name) > NAME_CHARACTERS_MAX:
            text = f"A {kind} has at most {NAME_CHARACTERS_MAX} characters"
    if text:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    return tuple(sorted(named.items(), key=lambda part: part[0])), IP in named


def _value(operation: QuotaOperation, *, is_ip: bool) -> float:
    """Return the value of a quota. Raises RequestRefused, in Kafka's words."""
    key, value = operation.key, operation.value
    text = ""
    if key not in UNSUPPORTED and (is_ip or key not in QUOTA_KEYS):
        text = f"Invalid configuration key {key[:100]}"
    elif is_ip != (key == "connection_creation_rate"):
        text = f"Invalid configuration key {key}"
    elif key in UNSUPPORTED:
        text = f"{key} is not supported: {UNSUPPORTED[key]}"
    elif not value > 0:
        text = f"Quota {key} must be greater than 0"
    elif value >= 2**63:
        text = f"Proposed value for {key} is too large for a LONG."
    elif value != int(value):
        text = f"{key} cannot be a fractional value."
    if text:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    return value


def _filter(components: Sequence[QuotaComponent]) -> Mapping[str, QuotaComponent]:
    """Return what is asked for, by type. Raises RequestRefused, in Kafka's words."""
    found: dict[str, QuotaComponent] = {}
    for each in components:
        kind, text, code = each.entity_type, "", ErrorCode.INVALID_REQUEST
        if kind in found:
            text = f"Entity type {kind} cannot appear more than once in the filter."
        elif not kind:
            text = "Invalid empty entity type."
        elif kind not in (USER, CLIENT_ID, IP):
            code, text = ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind[:100]}"
        elif each.match_type not in (EXACT, DEFAULT, ANY):
            text = f"Unknown match type {each.match_type}"
        elif each.match_type == EXACT and each.match is None:
            text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        elif each.match_type != EXACT and each.match is not None:
            name = "DEFAULT" if each.match_type == DEFAULT else "SPECIFIED"
            text = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        if text:
            raise RequestRefused(code, text)
        found[kind] = each
    if IP in found and len(found) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
        raise RequestRefused(ErrorCode.INVALID_REQUEST, text)
    return found


def _matches(
    entity: QuotaEntityName, wanted: Mapping[str, QuotaComponent], *, is_strict: bool
) -> bool:
    """Return whether an entity has all wanted parts; `is_strict`: and no others."""
    parts = dict(entity)
    if not wanted.keys() <= parts.keys() or (is_strict and len(parts) > len(wanted)):
        return False
    for kind, component in wanted.items():
        if component.match_type == EXACT and parts[kind] != component.match:
            return False
        if component.match_type == DEFAULT and parts[kind] is not None:
            return False
    return True
