"""Users of RocketMQ 5.x and their policies, which every broker has on its own disk.

Source: DefaultMQAdminExtImpl.java; tools/command/auth/*.java, which send changes to every broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from steelyard.acl.policies import (
    SUBJECT,
    AclUser,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    UserStatus,
    UserType,
    check_entry,
)
from steelyard.client.administration.asking import Asking
from steelyard.decoding import prepared
from steelyard.errors import ProtocolError
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from steelyard.wire.remoting.codes import RequestCode

T = TypeVar("T", AclInfo, UserInfo)


class AclUsers(Asking):
    """Methods for users and policies.

    Each goes to the broker at the address `broker`, or to all masters of a `cluster`; without
    either, to those of the only cluster. Methods that change something return their addresses.
    """

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        user_type: Literal["Super", "Normal"] = "Normal",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Create a user, who signs requests with its name as access key and its password as secret.

        A Super user may do everything, a Normal one what `update_acl` allows. Raises BrokerError 16
        if it exists; brokers before that one have created it then.
        """
        info = UserInfo(name, password, user_type)
        return await self._tell_user(RequestCode.AUTH_CREATE_USER, name, info, cluster, broker)

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        user_type: Literal["Super", "Normal"] | None = None,
        user_status: Literal["enable", "disable"] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Change what is given of a user; a disabled one may do nothing.

        Raises BrokerError 16 if there is none.
        """
        info = UserInfo(name, password, user_type, user_status)
        return await self._tell_user(RequestCode.AUTH_UPDATE_USER, name, info, cluster, broker)

    async def delete_user(
        self, name: str, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Delete a user and its policies, if there is one."""
        return await self._tell_user(RequestCode.AUTH_DELETE_USER, name, None, cluster, broker)

    async def users(
        self, part: str = "", *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[AclUser, ...]:
        """Return the users whose names contain `part`, with passwords and policies, sorted.

        Of a user whom brokers know differently, what the first of them says.
        """
        found: dict[str, AclUser] = {}
        for address in await self._chosen(cluster, broker):
            entries = {
                acl.subject: tuple(_entries(acl))
                for acl in await self._list(
                    address,
                    RequestCode.AUTH_LIST_ACL,
                    headers.ListAclsRequestHeader(subject_filter=part or None),
                    AclInfo,
                )
            }
            for info in await self._list(
                address,
                RequestCode.AUTH_LIST_USER,
                headers.ListUsersRequestHeader(filter=part or None),
                UserInfo,
            ):
                user = AclUser(
                    info.username or "",
                    info.password or "",
                    UserType(info.user_type),
                    UserStatus(info.user_status),
                    entries.get(f"{SUBJECT}{info.username}", ()),
                )
                found.setdefault(user.name, user)
        return tuple(found[name] for name in sorted(found))

    async def update_acl(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        decision: Literal["Allow", "Deny"] = "Allow",
        source_ips: Sequence[str] = (),
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Allow or deny a user actions on resources; what was said about these before is replaced.

        - `resources`: `*`, or `Topic:NAME`, `Group:NAME`, `Cluster:NAME`; a name may be `*`, or end
          with it. The most exact one decides.
        - `actions`: All, Pub, Sub, Create, Update, Delete, Get, List.
        - `source_ips`: addresses or networks (10.1.0.0/16) from which it counts; none: all.

        Raises ConfigError if one is none of these, BrokerError 16 if there is no such user.
        """
        for resource in resources:
            check_entry(
                PolicyEntry(
                    PolicyType.CUSTOM,
                    resource,
                    tuple(actions),
                    tuple(source_ips),
                    PolicyDecision(decision),
                )
            )
        entries = tuple(
            PolicyEntryInfo(each, tuple(actions), tuple(source_ips) or None, decision)
            for each in resources
        )
        subject = SUBJECT + user
        body = AclInfo(subject, (PolicyInfo(PolicyType.CUSTOM.value, entries),))
        header = headers.AclRequestHeader(subject=subject)
        code = RequestCode.AUTH_UPDATE_ACL
        return await self._tell(code, header, fastjson.write(body), cluster, broker)

    async def delete_acl(
        self,
        user: str,
        resource: str | None = None,
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Delete what is allowed or denied to a user, or only what is about one resource.

        Raises BrokerError 16 if there is nothing.
        """
        header = headers.AclRequestHeader(subject=SUBJECT + user, resource=resource)
        return await self._tell(RequestCode.AUTH_DELETE_ACL, header, b"", cluster, broker)

    async def _tell_user(
        self,
        code: RequestCode,
        name: str,
        info: UserInfo | None,
        cluster: str | None,
        broker: str | None,
    ) -> list[str]:
        body = b"" if info is None else fastjson.write(info)
        header = headers.UserRequestHeader(username=name)
        return await self._tell(code, header, body, cluster, broker)

    async def _tell(
        self,
        code: RequestCode,
        header: headers.Header,
        body: bytes,
        cluster: str | None,
        broker: str | None,
    ) -> list[str]:
        addresses = await self._chosen(cluster, broker)
        await self._each(addresses, lambda at: self.ask(at, code, header, body))
        return addresses

    async def _list(
        self, address: str, code: RequestCode, header: headers.Header, kind: type[T]
    ) -> list[T]:
        reply = await self.ask(address, code, header)
        try:
            return msgspec.json.decode(reply.body or b"[]", type=prepared(list[kind]))  # type: ignore[valid-type]
        except msgspec.DecodeError as error:
            raise ProtocolError(f"{address} sent no list of {kind.__name__}: {error}") from None


def _entries(acl: AclInfo) -> Iterable[PolicyEntry]:
    for policy in acl.policies:
        for entry in policy.entries:
            yield PolicyEntry(
                PolicyType(policy.policy_type or PolicyType.CUSTOM.value),
                entry.resource,
                entry.actions,
                entry.source_ips or (),
                PolicyDecision(entry.decision),
            )
