"""Checks every request to a RocketMQ port before its handler sees it, where there are accounts.

1. From an address of the global white list everything is allowed; so it is from that of an account,
   with its access key.
2. The request has to be signed by the account (`wire.remoting.acl`). Signatures are compared in
   constant time, and an unknown account costs as much as a known one.
3. The account needs the rights of the request (`needs`), from the request's address. Sending to
   the topic of message traces is open to every account. Topics of the servers themselves have no
   default permission.

What is refused is answered with 16 NO_PERMISSION, as 5.x does (4.9: 1). The answer to a wrong
signature comes late, and later each time (`penalties`); a link that has proven an account waits for
nobody. Refusals are logged at a limited rate, without secrets.
Source: acl/plain/PlainPermissionManager.java (validate);
broker/auth/pipeline/AuthenticationPipeline.java.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from itertools import count

import msgspec

from steelyard.acl.accounts import Account, AccountGrant, ResourceKind
from steelyard.nodes.access.book import AccountBook
from steelyard.nodes.access.needs import Administration, Need, NeedLevel, Right
from steelyard.nodes.penalties import Penalties
from steelyard.nodes.refusals import Refusals
from steelyard.nodes.seam import Effect, Link, Send
from steelyard.printable import printable
from steelyard.wire.remoting.acl import ACCESS_KEY, is_signed
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway
from steelyard.wire.remoting.names import RETRY_PREFIX

DELAY_MS = 100
"""Delay of the answer to the first wrong signatures of an address."""

LATE_MAX = 10_000
"""Most answers that wait; then signatures are not looked at on links that have not signed yet."""

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""The topic to which clients send traces of their messages (TopicValidator)."""

EVERYTHING = Account("", b"", is_admin=True)
"""What clients on a white list may do."""

_NOBODY = Account("", b"nobody")
"""Whose signature is verified for an unknown access key."""


class AccessDenied(Exception):  # noqa: N818  # an outcome of one request, not an error of the program
    """A request is refused; the text is the answer's remark."""


class _WrongSignature(AccessDenied):
    """The account has not signed the request."""


class _LateAnswer(msgspec.Struct):
    """An answer that is sent later; None to a one-way request, or if the link is closed."""

    ip: str
    link: Link
    answer: Command | None


class AccessGuard:
    """The checks of a server's requests; see the module docstring.

    `needs`: by request code; `internal`: topics of the servers themselves. `cluster`: its name; a
    server that belongs to none leaves it empty, and takes permissions for any.
    """

    def __init__(
        self,
        book: AccountBook,
        needs: Mapping[int, Need],
        internal: Collection[str] = (),
        cluster: str = "",
    ) -> None:
        self._book = book
        self._needs = needs
        self._internal = internal
        self._cluster = cluster
        self._penalties = Penalties(DELAY_MS)
        self._refusals = Refusals()
        self._proven: dict[Link, str] = {}
        """The access key with which a link has signed last, unless something wrong came since."""
        self._late: list[tuple[int, int, _LateAnswer]] = []
        """A heap: when, in which order, and what."""
        self._serials = count()
        self.refused = 0
        """Requests refused so far."""

    def admit(
        self, command: Command, link: Link, address: str, now: int, effects: list[Effect]
    ) -> Account | None:
        """Return whose request this is; None if it is refused, and answered here.

        Raises ProtocolError if what it needs cannot be read.
        """
        ip = address.rpartition(":")[0]
        try:
            account = self._authenticated(command, link, ip)
            if account is not EVERYTHING:
                self._check(command, account)
        except AccessDenied as denied:
            self._refuse(command, link, address, denied, now, effects)
            return None
        return account

    # -- who ---------------------------------------------------------------------------------------

    def _authenticated(self, command: Command, link: Link, ip: str) -> Account:
        accounts = self._book.accounts
        if accounts.is_white(ip):
            return EVERYTHING
        key = command.ext.get(ACCESS_KEY)
        if not key:
            raise AccessDenied("the request is not signed: this server wants an AccessKey")
        account = self._book.find(key)
        if account is not None and accounts.is_white_for(account, ip):
            return EVERYTHING
        if self._proven.get(link) != key and (
            len(self._late) >= LATE_MAX or not self._penalties.may_try(ip)
        ):
            raise AccessDenied("too many wrong signatures came from this address; wait")
        if not is_signed(command, (account or _NOBODY).secret) or account is None:
            self._proven.pop(link, None)
            raise _WrongSignature(f"check signature failed for accessKey={printable(key)[:100]}")
        self._proven[link] = key
        return account.seen_from(ip)

    # -- what --------------------------------------------------------------------------------------

    def _check(self, command: Command, account: Account) -> None:
        need = self._needs[command.code]
        if need is NeedLevel.ADMIN or isinstance(need, Administration):
            is_allowed = account.is_admin
            if isinstance(need, Administration):
                name = self._cluster if need.kind is ResourceKind.CLUSTER else need.name(command)
                is_allowed = account.may_administer(need.kind, name, need.needed)
            if not is_allowed:
                raise AccessDenied(
                    f"request code={command.code} needs an administrator, which"
                    f" accessKey={account.access_key} is not"
                )
        elif not isinstance(need, NeedLevel) and not account.is_unlimited:
            for right in need(command):
                if not self._has(account, right):
                    raise AccessDenied(
                        no_permission(account, right.name, right.needed, is_group=right.is_group)
                    )

    def _has(self, account: Account, right: Right) -> bool:
        if right.is_group:
            return account.may_use_group(right.name, right.needed)
        if right.name == TRACE_TOPIC and right.needed & AccountGrant.PUB:
            return True
        return may_use(account, right.name, right.needed, self._internal)

    # -- refusals ----------------------------------------------------------------------------------

    def _refuse(
        self,
        command: Command,
        link: Link,
        address: str,
        denied: AccessDenied,
        now: int,
        effects: list[Effect],
    ) -> None:
        self.refused += 1
        self._refusals.tell(address, command.code, str(denied), now, effects)
        answer: Command | None = None
        if not is_oneway(command):
            code = int(ResponseCode.NO_PERMISSION)
            answer = Command(code, command.opaque, RESPONSE_FLAG, remark=str(denied))
        if isinstance(denied, _WrongSignature):
            ip = address.rpartition(":")[0]
            at = self._penalties.failed(ip, now)
            late = _LateAnswer(ip, link, answer)
            heapq.heappush(self._late, (at, next(self._serials), late))
        elif answer is not None:
            effects.append(Send(link, answer))

    def closed(self, link: Link) -> None:
        self._proven.pop(link, None)
        for _, _, late in self._late:
            if late.link == link:
                late.answer = None

    @property
    def next_at(self) -> int | None:
        """When to call `expire` next; None if no answer waits."""
        return self._late[0][0] if self._late else None

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Send the answers that are due."""
        while self._late and self._late[0][0] <= now:
            late = heapq.heappop(self._late)[2]
            self._penalties.answered(late.ip)
            if late.answer is not None:
                effects.append(Send(late.link, late.answer))


def may_use(
    account: Account, topic: str, needed: AccountGrant, internal: Collection[str] = ()
) -> bool:
    """Return whether an account may do that with a topic; a retry topic belongs to its group."""
    if topic.startswith(RETRY_PREFIX):
        return account.may_use_group(topic.removeprefix(RETRY_PREFIX))
    return account.may_use_topic(topic, needed, is_internal=topic in internal)


def no_permission(
    account: Account, name: str, needed: AccountGrant, *, is_group: bool = False
) -> str:
    """Return the remark about a missing right."""
    kind = "group" if is_group or name.startswith(RETRY_PREFIX) else "topic"
    grants = needed & account.GRANTABLE
    words = " or ".join(grant.name for grant in grants if grant.name)
    return (
        f"no permission for {kind} {printable(name)[:200]}: {words} is not granted to"
        f" accessKey={account.access_key}"
    )
