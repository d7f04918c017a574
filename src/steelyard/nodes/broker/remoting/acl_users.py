"""Operators' requests about users of RocketMQ 5.x and their policies.

| code | request | answer |
|---|---|---|
| 3001, 3002, 3003 | create, change or delete a user | when the nameservers know |
| 3004, 3005 | one user, all whose names contain a text | with passwords; without a body if none |
| 3006, 3007 | add or replace policy entries of a user | when the nameservers know |
| 3008 | delete one entry, or all | when the nameservers know |
| 3009, 3010 | the policies of one user, of all that contain a text | without a body if none |

What names an unknown user, or would create one again, gets 16 NO_PERMISSION, as in Apache RocketMQ;
what cannot be read gets 29 INVALID_PARAMETER. Only a super user creates, changes or deletes super
users. Accounts of the file are not listed, and cannot be changed.
Source: broker/processor/AdminBrokerProcessor.java, broker/auth/converter/*.java,
auth/authentication/manager/AuthenticationMetadataManagerImpl.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from msgspec.structs import replace

from steelyard.acl.policies import (
    ACTIONS,
    NAME_CHARACTERS_MAX,
    SUBJECT,
    AclUser,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    UserStatus,
    UserType,
    check_entry,
)
from steelyard.errors import ConfigError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import AclInfo, Body, PolicyEntryInfo, PolicyInfo, UserInfo
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

A = TypeVar("A")
R = TypeVar("R")
E = TypeVar("E", bound=Enum)


class AclUserHandlers:
    """Handlers of the requests above."""

    def __init__(self, parts: Parts) -> None:
        self._broker = parts.config.name
        self._accounts = parts.accounts
        self._users = parts.acl_users
        self._registration = parts.registration

    # -- users -------------------------------------------------------------------------------------

    @serves(RequestCode.AUTH_CREATE_USER)
    def create_user(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        name, info = self._named(request)
        if self._users.get(name) is not None or self._is_in_file(name):
            raise Refusal(ResponseCode.NO_PERMISSION, f"The user is existed: {name}")
        if not info.password:
            raise _invalid("a new user needs a password")
        if not self._users.has_room:
            raise _invalid("there are as many users as this broker can have")
        user = _with_info(AclUser(name, info.password), info)
        _check_super(request, user)
        return self._put(request, user, now, effects)

    @serves(RequestCode.AUTH_UPDATE_USER)
    def update_user(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        name, info = self._named(request)
        known = self._existing(name)
        user = _with_info(known, info)
        _check_super(request, known, user)
        return self._put(request, user, now, effects)

    @serves(RequestCode.AUTH_DELETE_USER)
    def delete_user(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        name = request.header(headers.UserRequestHeader).username
        user = self._users.get(name)
        if user is None:
            return request.reply()
        _check_super(request, user)
        self._users.delete(name)
        return self._changed(request, now, effects)

    @serves(RequestCode.AUTH_GET_USER)
    def get_user(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        user = self._users.get(request.header(headers.UserRequestHeader).username)
        return request.reply(body=b"" if user is None else fastjson.write(_user_info(user)))

    @serves(RequestCode.AUTH_LIST_USER)
    def list_users(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        part = request.header(headers.ListUsersRequestHeader).filter or ""
        return request.reply(body=_list(_user_info(u) for u in self._users.all() if part in u.name))

    # -- policies ----------------------------------------------------------------------------------

    @serves(RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL)
    def put_acl(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(headers.AclRequestHeader)
        body = fastjson.read(AclInfo, request.body)
        user = self._existing(_user_of(body.subject or header.subject))
        entries = tuple(_entry(policy, each) for policy in body.policies for each in policy.entries)
        if not entries:
            raise _invalid("there is no policy entry")
        return self._put(request, _checked(user.with_entries, entries), now, effects)

    @serves(RequestCode.AUTH_DELETE_ACL)
    def delete_acl(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.AclRequestHeader)
        user = self._existing(_user_of(header.subject))
        if not user.entries:
            raise Refusal(ResponseCode.NO_PERMISSION, f"The acl is not exist: {header.subject}")
        if header.resource:
            policy_type = _word(PolicyType, header.policy_type, PolicyType.CUSTOM, "policy type")
            user = user.without_entry(policy_type, header.resource)
        else:
            user = replace(user, entries=())
        return self._put(request, user, now, effects)

    @serves(RequestCode.AUTH_GET_ACL)
    def get_acl(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        user = self._existing(_user_of(request.header(headers.AclRequestHeader).subject))
        return request.reply(body=fastjson.write(_acl_info(user)) if user.entries else b"")

    @serves(RequestCode.AUTH_LIST_ACL)
    def list_acls(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.ListAclsRequestHeader)
        found = []
        for user in self._users.all():
            part = header.resource_filter or ""
            entries = tuple(entry for entry in user.entries if part in entry.resource)
            if entries and (header.subject_filter or "") in SUBJECT + user.name:
                found.append(_acl_info(replace(user, entries=entries)))
        return request.reply(body=_list(found))

    # -- shared ------------------------------------------------------------------------------------

    def _named(self, request: RemotingRequest) -> tuple[str, UserInfo]:
        """Return the user's name, and what is wanted of it."""
        name = request.header(headers.UserRequestHeader).username
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
            raise _invalid(
                f"{name[:50]!r} cannot be the name of a user: it has 1 to {NAME_CHARACTERS_MAX}"
                " printable characters"
            )
        return name, fastjson.read(UserInfo, request.body)

    def _existing(self, name: str) -> AclUser:
        user = self._users.get(name)
        if user is None:
            remark = f"The user is not exist: {name}"
            if self._is_in_file(name):
                remark += ", as a user; its account is in acl_file: change it there"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return user

    def _is_in_file(self, name: str) -> bool:
        return self._accounts is not None and self._accounts.accounts.find(name) is not None

    def _put(
        self, request: RemotingRequest, user: AclUser, now: int, effects: list[Effect]
    ) -> Command | None:
        self._users.put(user)
        return self._changed(request, now, effects)

    def _changed(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        """Let the stored users apply, here and at the nameservers."""
        if self._accounts is not None:
            self._accounts.put_users(self._broker, self._users.all())
        self._registration.changed(now, effects)
        return self._registration.answer_when_known(request, request.reply(), effects)


def _check_super(request: RemotingRequest, *users: AclUser) -> None:
    """Raise Refusal if the sender may not change such users."""
    account = request.account
    if account is not None and not account.is_admin:
        for user in users:
            if user.type is UserType.SUPER:
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    "only a super user may create, change or delete a super user",
                )


def _with_info(user: AclUser, info: UserInfo) -> AclUser:
    """Return a user with what is given of it."""
    return AclUser(
        user.name,
        info.password or user.password,
        _word(UserType, info.user_type, user.type, "user type"),
        _word(UserStatus, info.user_status, user.status, "user status"),
        user.entries,
    )


def _user_of(subject: str) -> str:
    if not subject.startswith(SUBJECT):
        raise _invalid(f"{subject[:100]!r} is not a subject; expected {SUBJECT}NAME")
    return subject.removeprefix(SUBJECT)


def _word(kind: type[E], text: str | None, default: E, what: str) -> E:
    """Return the member that a text names, in upper or lower case."""
    if not text:
        return default
    for member in kind:
        if member.value.lower() == text.lower():
            return member
    expected = ", ".join(member.value for member in kind)
    raise _invalid(f"{text[:50]!r} is not a {what}; expected {expected}")


def _entry(policy: PolicyInfo, info: PolicyEntryInfo) -> PolicyEntry:
    names = {name.lower(): name for name in ACTIONS}
    if not info.decision:
        raise _invalid(f"the entry about {info.resource[:100]} has no decision")
    entry = PolicyEntry(
        _word(PolicyType, policy.policy_type, PolicyType.CUSTOM, "policy type"),
        info.resource,
        tuple(names.get(action.lower(), action) for action in info.actions),
        info.source_ips or (),
        _word(PolicyDecision, info.decision, PolicyDecision.DENY, "decision"),
    )
    _checked(check_entry, entry)
    return entry


def _checked(function: Callable[[A], R], argument: A) -> R:
    """Call a function; its ConfigError becomes a Refusal."""
    try:
        return function(argument)
    except ConfigError as error:
        raise _invalid(str(error)) from None


def _invalid(text: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, text)


def _user_info(user: AclUser) -> UserInfo:
    return UserInfo(user.name, user.password, user.type.value, user.status.value)


def _acl_info(user: AclUser) -> AclInfo:
    policies = []
    for policy_type in PolicyType:
        entries = tuple(
            PolicyEntryInfo(
                entry.resource, entry.actions, entry.source_ips or None, entry.decision.value
            )
            for entry in user.entries
            if entry.policy_type is policy_type
        )
        if entries:
            policies.append(PolicyInfo(policy_type.value, entries))
    return AclInfo(SUBJECT + user.name, tuple(policies))


def _list(bodies: Iterable[Body]) -> bytes:
    """Return a list as the body of an answer; an empty one is no body."""
    parts = [fastjson.write(body) for body in bodies]
    return b"[" + b",".join(parts) + b"]" if parts else b""
