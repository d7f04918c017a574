"""How servers are reached: TLS, signed requests (ACL), and logins (SASL)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, TypedDict

from steelyard.config import ClientConfig
from steelyard.errors import ConfigError
from steelyard.sasl.login import Login
from steelyard.wire.remoting.acl import Signer, signer_of


class ConsumerLogin(TypedDict, total=False):
    """Keyword arguments of a KafkaConsumer that logs in."""

    sasl_mechanism: Any
    sasl_username: str
    sasl_password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything that a connection needs beside its address; sent to the workers.

    Files are read where the connection is made, so each worker needs them at the same path.
    """

    tls: bool = False
    ca_file: str = ""
    """Certificates to trust, in PEM; empty: those of the system's authorities."""
    check_hostname: bool = True
    cert_file: str = ""
    """The client's certificate, with its key unless `key_file` has it."""
    key_file: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    login: Login | None = None
    """At Kafka listeners (SASL)."""

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS.

        Raises ConfigError for files that cannot be used.
        """
        if not self.tls:
            return None
        files = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            context.check_hostname = self.check_hostname
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except OSError as error:
            raise ConfigError(f"TLS: {files} cannot be used: {error}") from None
        return context

    def consumer_login(self) -> ConsumerLogin:
        """Return the login as keyword arguments of a KafkaConsumer."""
        if self.login is None:
            return {}
        return {
            "sasl_mechanism": self.login.mechanism,
            "sasl_username": self.login.user,
            "sasl_password": self.login.password,
        }

    def signer(self) -> Signer | None:
        """Return the signer of requests; None without an access key."""
        return signer_of(
            ClientConfig(
                access_key=self.access_key,
                secret_key=self.secret_key,
                security_token=self.security_token,
            )
        )


PLAIN = Access()
"""Neither TLS nor signatures."""
