"""The administrator with which servers are asked here, as patient as tests on busy machines are."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from steelyard.client.blocking.admin import Admin
from steelyard.config import BrokerConfig
from steelyard.settings import build

TIMEOUT_MS = 30_000
"""Time for each request."""


class OperatorAccess(NamedTuple):
    """Where servers are asked, and how: with TLS, with an account, or without."""

    nameserver: str
    tls: ssl.SSLContext | None = None
    access_key: str = ""
    secret_key: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Return them as keywords of clients."""
        return {"tls": self.tls, "access_key": self.access_key, "secret_key": self.secret_key}


def access_of(nameserver: str, settings: Mapping[str, object]) -> OperatorAccess:
    """Return the access that brokers with these settings have themselves. Raises ConfigError."""
    config = build(BrokerConfig, settings)
    tls, key, secret = None, config.acl_access_key, ""
    if config.tls_client.trust_file:
        from steelyard.driver.encryption import of_dialing

        tls = of_dialing(config.tls_client).context()
    if config.acl_file:
        from steelyard.servers.accounts import AccountsFile

        account = AccountsFile(config.acl_file).first.find(key)
        secret = "" if account is None else account.secret.decode()
    return OperatorAccess(nameserver, tls, key if secret else "", secret)


def administrator(access: OperatorAccess) -> Admin:
    """Return a new administrator, to be used as a context manager."""
    return Admin(access.nameserver, timeout_ms=TIMEOUT_MS, **access.options)
