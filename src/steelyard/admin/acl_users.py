"""mqadmin's commands for the users of RocketMQ 5.x and their policies, createUser to listAcl.

mqadmin also shows passwords, and takes them from the command line only; here they come from
standard input, unless -p gives one.
Source: tools/command/auth/*SubCommand.java of 5.3.3, for flags and columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from steelyard.admin.answers import CommandOutcome
from steelyard.admin.asking import add_asking_command, add_where_options, given, read_password
from steelyard.admin.printing import shown
from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.acl.policies import AclUser
    from steelyard.client.aio.admin import Admin

USER_ROW = "{:<16}  {:<22}  {:<22}\n"
ENTRY_ROW = "{:<16}  {:<10}  {:<20}  {:<20}  {:<24}  {:<10}\n"

_DECISIONS = ("Allow", "Deny")
_TYPES = ("Super", "Normal")
_STATUSES = ("enable", "disable")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    create = add_asking_command(
        commands, "createUser", create_user, "Create a user of RocketMQ 5.x"
    )
    update = add_asking_command(
        commands,
        "updateUser",
        update_user,
        "Change password, type or status of a user of RocketMQ 5.x",
    )
    delete = add_asking_command(
        commands, "deleteUser", delete_user, "Delete a user of RocketMQ 5.x, and its policies"
    )
    one = add_asking_command(commands, "getUser", list_users, "Show a user of RocketMQ 5.x")
    listing = add_asking_command(commands, "listUser", list_users, "List users of RocketMQ 5.x")
    for parser, what in (
        (create, "create it on"),
        (update, "change it on"),
        (delete, "delete it from"),
        (one, "ask"),
        (listing, "ask"),
    ):
        add_where_options(parser, what)
        if parser is listing:
            parser.add_argument("-f", "--filter", default="", help="part of their names")
        else:
            parser.add_argument("-u", "--username", required=True, help="the user's name")
    create.add_argument(
        "-p",
        "--password",
        help="its password; default: a line of standard input, so that ps does not show it",
    )
    create.add_argument("-t", "--userType", choices=_TYPES, default="Normal")
    update.add_argument("-p", "--password", help="- reads it from standard input")
    update.add_argument("-t", "--userType", choices=_TYPES)
    update.add_argument("-s", "--userStatus", choices=_STATUSES)

    for name, text in (
        ("createAcl", "Allow or deny a user of RocketMQ 5.x actions on resources"),
        ("updateAcl", "The same as createAcl"),
    ):
        parser = add_asking_command(commands, name, update_acl, text)
        add_where_options(parser, "change")
        _add_subject(parser)
        parser.add_argument(
            "-r",
            "--resources",
            required=True,
            help="*, Topic:NAME, Group:NAME or Cluster:NAME, separated by commas; a name may be *,"
            " or end with it",
        )
        parser.add_argument(
            "-a",
            "--actions",
            required=True,
            help="All, Pub, Sub, Create, Update, Delete, Get, List, separated by commas",
        )
        parser.add_argument(
            "-i", "--sourceIp", default="", help="addresses or networks, separated by commas"
        )
        parser.add_argument("-d", "--decision", required=True, choices=_DECISIONS)
    forget = add_asking_command(
        commands, "deleteAcl", delete_acl, "Delete policies of a user of RocketMQ 5.x"
    )
    add_where_options(forget, "change")
    _add_subject(forget)
    forget.add_argument("-r", "--resources", help="only the entry about this resource")
    shown_acl = add_asking_command(
        commands, "getAcl", list_acls, "Show the policies of a user of RocketMQ 5.x"
    )
    add_where_options(shown_acl, "ask")
    _add_subject(shown_acl)
    acls = add_asking_command(
        commands, "listAcl", list_acls, "List the policies of users of RocketMQ 5.x"
    )
    add_where_options(acls, "ask")
    acls.add_argument("-s", "--subjectFilter", default="", help="part of User:NAME")
    acls.add_argument("-r", "--resourceFilter", default="", help="part of the resource")


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--subject", required=True, type=_user_of, help="User:NAME")


def _user_of(subject: str) -> str:
    from steelyard.acl.policies import SUBJECT

    name = subject.strip().removeprefix(SUBJECT)
    if not subject.strip().startswith(SUBJECT) or not name:
        raise argparse.ArgumentTypeError(f"{subject!r} is not a subject; expected {SUBJECT}NAME")
    return name


def _where(options: argparse.Namespace) -> dict[str, str | None]:
    return {"cluster": given(options.clusterName), "broker": given(options.brokerAddr)}


def _told(what: str, addresses: list[str]) -> CommandOutcome:
    """Format as mqadmin does: a line for each broker."""
    text = "".join(f"{what} to {address} success.\n" for address in addresses)
    return CommandOutcome(text, {"brokers": addresses})


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# -- users -----------------------------------------------------------------------------------------


async def create_user(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    name = options.username.strip()
    password = options.password or read_password(name)
    addresses = await admin.create_user(
        name, password, user_type=options.userType, **_where(options)
    )
    return _told("create user", addresses)


async def update_user(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    name = options.username.strip()
    if not (options.password or options.userType or options.userStatus):
        raise ConfigError("nothing to change: give -p, -t or -s")
    password = read_password(name) if options.password == "-" else options.password
    addresses = await admin.update_user(
        name,
        password=password,
        user_type=options.userType,
        user_status=options.userStatus,
        **_where(options),
    )
    return _told("update user", addresses)


async def delete_user(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    return _told(
        "delete user", await admin.delete_user(options.username.strip(), **_where(options))
    )


async def list_users(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    part: str = getattr(options, "filter", "")
    users = await admin.users(part, **_where(options))
    name = getattr(options, "username", None)
    if name is not None:
        users = tuple(user for user in users if user.name == name.strip())
        if not users:
            raise ConfigError(f"there is no user {name.strip()}")
    text = USER_ROW.format("#UserName", "#UserType", "#UserStatus")
    for user in users:
        text += USER_ROW.format(shown(user.name), user.type.value, user.status.value)
    rows = [
        {"user_name": user.name, "user_type": user.type, "user_status": user.status}
        for user in users
    ]
    return CommandOutcome(text, {"users": rows})


# -- policies --------------------------------------------------------------------------------------


async def update_acl(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    addresses = await admin.update_acl(
        options.subject,
        _items(options.resources),
        _items(options.actions),
        decision=options.decision,
        source_ips=_items(options.sourceIp),
        **_where(options),
    )
    return _told("update acl", addresses)


async def delete_acl(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    addresses = await admin.delete_acl(options.subject, given(options.resources), **_where(options))
    return _told("delete acl", addresses)


async def list_acls(admin: Admin, options: argparse.Namespace) -> CommandOutcome:
    from steelyard.acl.policies import SUBJECT

    users: Iterable[AclUser] = await admin.users("", **_where(options))
    if hasattr(options, "subject"):
        users = [user for user in users if user.name == options.subject]
        if not users:
            raise ConfigError(f"there is no user {options.subject}")
    part = getattr(options, "resourceFilter", "")
    text = ENTRY_ROW.format(
        "#Subject", "#Policy", "#Resource", "#Actions", "#SourceIp", "#Decision"
    )
    rows = []
    for user in users:
        subject = SUBJECT + user.name
        if getattr(options, "subjectFilter", "") not in subject:
            continue
        for entry in user.entries:
            if part not in entry.resource:
                continue
            text += ENTRY_ROW.format(
                shown(subject),
                entry.policy_type.value,
                shown(entry.resource),
                ",".join(entry.actions),
                ",".join(entry.source_ips) or "*",
                entry.decision.value,
            )
            rows.append({"subject": subject, "entry": entry})
    return CommandOutcome(text, {"entries": rows})
