"""The accounts that apply now, and the one with which a server signs its own requests.

Accounts come from a file, which every server reads, and from the brokers' users (RocketMQ 5.x): a
broker has its own, a nameserver those of all brokers. If a name is in both, the account in the file
counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.acl.accounts import Account, Accounts
from steelyard.acl.policies import AclUser
from steelyard.errors import ConfigError
from steelyard.nodes.seam import Call
from steelyard.wire.remoting.acl import signed
from steelyard.wire.remoting.command import Command


class AccountsChanged(Call[None], frozen=True):
    """These accounts apply from now on; answered with None, or with a ConfigError."""

    accounts: Accounts


class AccountBook:
    """Accounts that may be replaced. Raises ConfigError if `own` is no administrator among them.

    `own`: the access key of the server's own account; empty for a server that asks nobody.
    """

    def __init__(self, accounts: Accounts, own: str = "") -> None:
        self._own = own
        self._users: dict[str, dict[str, Account]] = {}
        """Of brokers, by the broker's name; the one that told last is the last."""
        self.replace(accounts)

    def replace(self, accounts: Accounts) -> None:
        """Use these accounts from now on. Raises ConfigError, and then the former ones stay."""
        found: Account | None = None
        if self._own:
            found = accounts.find(self._own)
            if found is None or not found.is_unlimited:
                raise ConfigError(
                    f"the server's own account {self._own[:50]!r} (acl_access_key) must be one of"
                    " them, an administrator without permissions of single topics or groups"
                )
        self.accounts = accounts
        self._signing = found

    def take(self, change: AccountsChanged) -> ConfigError | None:
        """Replace the accounts; return why they cannot be, or None."""
        try:
            self.replace(change.accounts)
        except ConfigError as error:
            return error
        return None

    def put_users(self, broker: str, users: Iterable[AclUser]) -> None:
        """Use these users of a broker from now on, in place of its former ones."""
        self._users.pop(broker, None)
        accounts = {user.name: user.account() for user in users}
        self._users[broker] = {name: each for name, each in accounts.items() if each is not None}

    def find(self, access_key: str) -> Account | None:
        """Return the account of an access key, None if there is none."""
        found = self.accounts.find(access_key)
        for users in reversed(self._users.values()):
            found = found or users.get(access_key)
        return found

    def sign(self, request: Command) -> Command:
        """Return a request of this server, signed, if it has an account."""
        account = self._signing
        return request if account is None else signed(request, account.access_key, account.secret)
