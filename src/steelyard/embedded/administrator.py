"""How servers are asked here, and an administrator as patient as tests on busy machines are."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from steelyard.client.blocking.admin import Admin
from steelyard.config import BrokerConfig
from steelyard.errors import ConfigError
from steelyard.sasl import oauthbearer
from steelyard.sasl.login import Login, login_of
from steelyard.settings import build

TIMEOUT_MS = 30_000
"""Time for each request."""


class OperatorAccess(NamedTuple):
    """Where servers are asked, and how: with TLS, with an account, or without.

    `kafka_tls` and `login`: at Kafka listeners.
    """

    nameserver: str
    tls: ssl.SSLContext | None = None
    access_key: str = ""
    secret_key: str = ""
    kafka_tls: ssl.SSLContext | None = None
    login: Login | None = None

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
    kafka_tls, login = _kafka_access(config)
    return OperatorAccess(nameserver, tls, key if secret else "", secret, kafka_tls, login)


def _kafka_access(config: BrokerConfig) -> tuple[ssl.SSLContext | None, Login | None]:
    """Return TLS and login for the Kafka listeners of brokers with these settings."""
    kafka = config.kafka
    if kafka is None:
        return None, None
    context = None
    if kafka.ssl_certificate_file:
        context = ssl.create_default_context()
        context.check_hostname = False  # they are our own servers, at loopback addresses
        context.verify_mode = ssl.CERT_NONE
    mechanisms = [one for one in kafka.sasl_enabled_mechanisms if one != oauthbearer.MECHANISM]
    if not kafka.sasl_enabled_mechanisms:
        return context, None
    if not mechanisms and kafka.sasl_oauthbearer_unsecured:
        return context, login_of(oauthbearer.MECHANISM, token=_unsecured)
    user = None
    if config.users_file and mechanisms:
        from steelyard.servers.users import first_password

        user = first_password(config.users_file)
    if user is None:
        raise ConfigError(
            "a Server asks its own brokers as the first user of users_file that has a password,"
            " with PLAIN or SCRAM: give such a user, and one of these mechanisms in"
            " kafka.sasl_enabled_mechanisms"
        )
    return context, login_of(mechanisms[0], *user)


def _unsecured() -> str:
    """Return an unsigned token of a minute."""
    return oauthbearer.unsecured_token("steelyard-server", time.time() + 60)


def administrator(access: OperatorAccess) -> Admin:
    """Return a new administrator, to be used as a context manager."""
    return Admin(access.nameserver, timeout_ms=TIMEOUT_MS, **access.options)
