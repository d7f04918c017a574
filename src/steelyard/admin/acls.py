"""Our command for the access rules of Kafka listeners: acl add, acl list, acl delete.

It speaks Kafka's protocol (APIs 29 to 31), so that it changes the rules of Apache's clusters as
well.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.kafka_commands import AdministeredBrokers, add_kafka_command, refusal
from steelyard.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from steelyard.acl.bindings import AclBinding, AclFilter, AclOperation, ResourceType
    from steelyard.wire.kafka.messages.acls import (
        AclDescription,
        DeleteAclsMatchingAcl,
        DescribeAclsResource,
    )

_KINDS = {"topic": "TOPIC", "group": "GROUP", "transactional_id": "TRANSACTIONAL_ID"}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "Add, list and delete the rules of who may do what at Kafka listeners (ACLs)"
    acl = commands.add_parser("acl", help=text, description=text)
    actions = acl.add_subparsers(metavar="ACTION", required=True)
    add = add_kafka_command(actions, "add", _add, "Add rules, one for each operation")
    _add_selection(add, is_required=True)
    found = add_kafka_command(actions, "list", _list, "List all rules, or those selected")
    _add_selection(found, is_required=False)
    text = "Delete all rules that are selected"
    _add_selection(add_kafka_command(actions, "delete", _delete, text), is_required=False)


def _add_selection(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    who = parser.add_mutually_exclusive_group(required=is_required)
    who.add_argument(
        "--allow", metavar="PRINCIPAL", help="whom it allows something: User:NAME, User:* for all"
    )
    who.add_argument("--deny", metavar="PRINCIPAL", help="whom it denies something")
    parser.add_argument(
        "--operation",
        metavar="NAME[,NAME]",
        required=is_required,
        help="all, read, write, create, delete, alter, describe, cluster_action, describe_configs,"
        " alter_configs, idempotent_write or two_phase_commit",
    )
    what = parser.add_mutually_exclusive_group(required=is_required)
    for kind in ("topic", "group", "transactional-id"):
        what.add_argument(f"--{kind}", metavar="NAME", help=f"a {kind}; * for all")
    what.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--prefixed", action="store_true", help="all whose names begin with the given one"
    )
    default = "; default: all" if is_required else ""
    parser.add_argument("--host", metavar="IP", help=f"at this address only{default}")


def _bindings(options: argparse.Namespace) -> list[AclBinding]:
    """Return the rules to add. Raises ConfigError."""
    from steelyard.acl.bindings import AclBinding, PatternType, Permission, check_binding

    kind, name = _resource(options)
    if kind is None or name is None:
        raise ConfigError("give a --topic, --group, --transactional-id or --cluster")
    found = [
        AclBinding(
            kind,
            PatternType.PREFIXED if options.prefixed else PatternType.LITERAL,
            name,
            options.allow or options.deny or "",
            options.host or "*",
            operation,
            Permission.ALLOW if options.allow else Permission.DENY,
        )
        for operation in _operations(options.operation)
    ]
    for each in found:
        check_binding(each)
        _check_effect(each)
    return found


def _check_effect(binding: AclBinding) -> None:
    """Raise ConfigError for a rule that brokers would store, and that would never apply.

    Operations: as kafka-acls.sh (AclCommand.java). Hosts are compared as text, and so are names.
    """
    import ipaddress

    from steelyard.acl.bindings import ANY_NAME, OPERATIONS, AclOperation, ResourceType

    kind, name, host = binding.resource_type, binding.resource_name, binding.host
    possible = (AclOperation.ALL, *OPERATIONS[kind])
    if binding.operation not in possible:
        known = ", ".join(each.name.lower() for each in possible)
        raise ConfigError(
            f"there is no operation {binding.operation.name.lower()} of a {kind.name.lower()};"
            f" expected one of: {known}"
        )
    if kind is ResourceType.TOPIC and name != ANY_NAME and ANY_NAME in name:
        raise ConfigError(
            f"no topic is called {name[:50]!r}; --prefixed selects all whose names begin with the"
            " given one"
        )
    try:
        if host != ANY_NAME:
            ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(
            f"--host is {host[:50]!r}; expected one IP address: rules know no networks and no names"
        ) from None


def _resource(options: argparse.Namespace) -> tuple[ResourceType | None, str | None]:
    from steelyard.acl.bindings import CLUSTER_NAME, ResourceType

    if options.cluster:
        if options.prefixed:
            raise ConfigError("--prefixed does not go with --cluster: there is one cluster only")
        return ResourceType.CLUSTER, CLUSTER_NAME
    for option, kind in _KINDS.items():
        name = getattr(options, option)
        if name is not None:
            return ResourceType[kind], name
    if options.prefixed:
        raise ConfigError("--prefixed needs a --topic, --group or --transactional-id")
    return None, None


def _operations(text: str) -> list[AclOperation]:
    from steelyard.acl.bindings import AclOperation

    found = []
    for name in text.split(","):
        operation = AclOperation.__members__.get(name.strip().upper().replace("-", "_"))
        if operation is None or operation < AclOperation.ALL:
            known = ", ".join(
                each.name.lower() for each in AclOperation if each >= AclOperation.ALL
            )
            raise ConfigError(f"unknown operation {name[:50]!r}; expected one of: {known}")
        found.append(operation)
    return list(dict.fromkeys(found))


def _filters(options: argparse.Namespace) -> list[AclFilter]:
    """Return what the options select, one filter for each operation. Raises ConfigError."""
    from steelyard.acl.bindings import (
        AclFilter,
        AclOperation,
        PatternType,
        Permission,
        ResourceType,
    )

    kind, name = _resource(options)
    pattern = PatternType.ANY
    if name is not None:
        pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.ANY
    if options.allow or options.deny:
        permission = Permission.ALLOW if options.allow else Permission.DENY
    operations = _operations(options.operation) if options.operation else [AclOperation.ANY]
    return [
        AclFilter(
            kind or ResourceType.ANY,
            pattern,
            name,
            options.allow or options.deny,
            options.host,
            operation,
            permission,
        )
        for operation in operations
    ]


def _outcome(bindings: list[AclBinding], key: str, verb: str = "") -> CommandOutcome:
    row = "{:<16}  {:<32}  {:<8}  {:<10}  {:<16}  {:<32}  {}\n"
    titles = ("#Type", "#Name", "#Pattern", "#Permission", "#Operation", "#Principal", "#Host")
    text = row.format(*titles)
    document = []
    for each in bindings:
        found = {
            "resource_type": each.resource_type.name,
            "resource_name": each.resource_name,
            "pattern_type": each.pattern_type.name,
            "permission": each.permission.name,
            "operation": each.operation.name,
            "principal": each.principal,
            "host": each.host,
        }
        document.append(found)
        text += row.format(*found.values())
    if verb:
        text = "".join(f"{verb}: {each}\n" for each in bindings) or f"{verb}: nothing\n"
    return CommandOutcome(text, {key: document})


async def _add(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.kafka.messages.acls import (
        CREATE_ACLS,
        AclCreation,
        CreateAclsRequest,
        CreateAclsResponse,
    )

    bindings = _bindings(options)
    creations = [AclCreation(*_fields(each)) for each in bindings]
    _, answer = await brokers.ask(CREATE_ACLS, CreateAclsRequest(creations), CreateAclsResponse)
    for binding, result in zip(bindings, answer.results, strict=False):
        if result.error_code:
            doing = f"the rule {binding} was not added"
            raise refusal(result.error_code, doing, result.error_message, "ALTER")
    return _outcome(bindings, "added", "added")


async def _list(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.wire.kafka.messages.acls import (
        DESCRIBE_ACLS,
        DescribeAclsRequest,
        DescribeAclsResponse,
    )

    found: list[AclBinding] = []
    for each in _filters(options):
        request = DescribeAclsRequest(*_fields(each))
        _, answer = await brokers.ask(DESCRIBE_ACLS, request, DescribeAclsResponse)
        if answer.error_code:
            doing = "access rules cannot be listed"
            raise refusal(answer.error_code, doing, answer.error_message, "DESCRIBE")
        found += [_binding(of, acl) for of in answer.resources for acl in of.acls]
    return _outcome(sorted(found), "acls")


async def _delete(brokers: AdministeredBrokers, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.acl.bindings import AclFilter
    from steelyard.wire.kafka.messages.acls import (
        DELETE_ACLS,
        DeleteAclsFilter,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )

    filters = _filters(options)
    if filters == [AclFilter()]:
        raise ConfigError("this would delete all rules; say which ones, as for 'acl add'")
    asked = [DeleteAclsFilter(*_fields(each)) for each in filters]
    _, answer = await brokers.ask(DELETE_ACLS, DeleteAclsRequest(asked), DeleteAclsResponse)
    found: list[AclBinding] = []
    for result in answer.filter_results:
        failures = [(result.error_code, result.error_message)]
        failures += [(acl.error_code, acl.error_message) for acl in result.matching_acls]
        for code, text in failures:
            if code:
                raise refusal(code, "access rules were not deleted", text, "ALTER")
        found += [_binding(acl, acl) for acl in result.matching_acls]
    return _outcome(sorted(found), "deleted", "deleted")


def _fields(each: AclBinding | AclFilter) -> tuple[Any, ...]:
    """Return the fields in the order in which Kafka's requests have them."""
    resource = each.resource_type, each.resource_name, each.pattern_type
    return *resource, each.principal, each.host, each.operation, each.permission


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    acl: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    """Return a rule of an answer. Raises KafkaError for what this version does not know."""
    from steelyard.acl.bindings import (
        AclBinding,
        AclOperation,
        PatternType,
        Permission,
        ResourceType,
    )
    from steelyard.wire.kafka.errors import ErrorCode

    try:
        return AclBinding(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            Permission(acl.permission_type),
        )
    except ValueError as error:
        name = resource.resource_name
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"a rule for {name!r} is unknown here: {error}"
        ) from None
