"""Verdicts about requests of Kafka clients, and needs of the common kinds.

Those are needs of a request for its group, for the cluster, or for each of its topics or items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from steelyard.acl.bindings import AclOperation, ResourceType
from steelyard.nodes.broker.kafka.access.guard import AccessVerdict, Check, Need
from steelyard.nodes.broker.kafka.requests.completing import Complete
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.schema import NO_ID, ApiMessage, has_field

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

TEXT = "Authorization failed."

Items = Sequence[Any]


def refused(answer: ApiMessage) -> AccessVerdict:
    """Refuse the whole request."""
    return AccessVerdict(None, lambda empty: answer)


def failed(check: Check, code: ErrorCode, text: str | None = TEXT) -> AccessVerdict:
    """Refuse the whole request, if its answer has an error code at the top."""
    fields: dict[str, object] = {"error_code": code}
    if has_field(type(check.empty()), "error_message", check.version):
        fields["error_message"] = text
    return refused(replace(check.empty(), **fields))


def added(array: str, more: Items) -> Complete:
    """Append items to an array of the answer."""
    return lambda answer: replace(answer, **{array: [*getattr(answer, array), *more]})


def serve_some(
    check: Check,
    array: str,
    allowed: Callable[[Any], bool],
    answers: str,
    refuse: Callable[[Any], Any],
) -> AccessVerdict:
    """Serve the items of the request's `array` that are allowed, and refuse the others."""
    message = check.message
    items = getattr(message, array) or ()
    kept: list[Any] = []
    denied: list[Any] = []
    for item in items:
        (kept if allowed(item) else denied).append(item)
    if not denied:
        return AccessVerdict(message)
    complete = added(answers, [refuse(item) for item in denied])
    return AccessVerdict(replace(message, **{array: kept}) if kept else None, complete)


def before_refusals(verdict: AccessVerdict, complete: Complete) -> AccessVerdict:
    """Change the answer about what is served, before refused items are added to it."""
    add = verdict.complete
    if add is None:
        return AccessVerdict(verdict.served, complete)
    return AccessVerdict(verdict.served, lambda answer: add(complete(answer)))


def refuse_all(
    check: Check, array: str, answers: str, refuse: Callable[[Any], Any]
) -> AccessVerdict:
    """Refuse every item of the request's `array`."""
    denied = [refuse(item) for item in getattr(check.message, array) or ()]
    return refused(replace(check.empty(), **{answers: denied}))


def needs_group(operation: AclOperation) -> Need:
    """The request needs this for its group."""

    def need(check: Check) -> AccessVerdict:
        if check.needs(operation, GROUP, check.message.group_id):  # type: ignore[attr-defined]
            return AccessVerdict(check.message)
        return failed(check, GROUP_DENIED)

    return need


def needs_cluster(*operations: AclOperation) -> Need:
    """The request needs one of these for the cluster."""

    def need(check: Check) -> AccessVerdict:
        if any(check.may_cluster(each) for each in operations):
            return AccessVerdict(check.message)
        check.needs_cluster(operations[0])
        return failed(check, CLUSTER_DENIED)

    return need


def needs_cluster_for_each(
    operation: AclOperation, array: str, answers: str, refuse: Callable[[Any], Any]
) -> Need:
    """The request needs this for the cluster; every item is refused otherwise."""

    def need(check: Check) -> AccessVerdict:
        if check.needs_cluster(operation):
            return AccessVerdict(check.message)
        return refuse_all(check, array, answers, refuse)

    return need


def needs_topics(
    operation: AclOperation, refuse: Callable[[Any], Any], answers: str = "topics"
) -> Need:
    """Each of the request's `topics`, which have a name, needs this."""

    def need(check: Check) -> AccessVerdict:
        return serve_some(
            check,
            "topics",
            lambda item: check.needs(operation, TOPIC, item.name),
            answers,
            refuse,
        )

    return need


def may_topic(check: Check, operation: AclOperation, item: Any) -> bool:
    """Check a topic that has a name or an id; unknown ids are left to the handler."""
    name = check.topic_name(item.name, getattr(item, "topic_id", NO_ID))
    return name is None or check.needs(operation, TOPIC, name)


def filtered(array: str, may: Callable[[Check, Any], bool]) -> Need:
    """The answer lists only what may be described."""

    def need(check: Check) -> AccessVerdict:
        return AccessVerdict(
            check.message,
            lambda answer: replace(
                answer, **{array: [each for each in getattr(answer, array) if may(check, each)]}
            ),
        )

    return need
