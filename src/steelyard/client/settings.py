"""Conversion of users' arguments for nodes: nameservers, verdicts, configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Meta

from steelyard.addresses import NAMESERVER_PORT
from steelyard.config import ClientConfig, ConsumerConfig, KafkaConsumerConfig, check
from steelyard.driver.identity import new_client_id, stable_client_id
from steelyard.errors import ConfigError
from steelyard.nodes.starting import Begin
from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, MessageModel
from steelyard.wire.remoting.names import CLIENT_GROUP_CHARACTERS_MAX, NAME

if TYPE_CHECKING:
    import ssl

B = TypeVar("B", bound=ClientConfig)
C = TypeVar("C", bound=ClientConfig | KafkaConsumerConfig)

Verdict = ConsumeStatus | ConsumeOrderlyStatus | bool | None
"""Results of a listener."""

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""MixAll.DEFAULT_PRODUCER_GROUP."""

NAMESERVERS_VARIABLE = "NAMESRV_ADDR"
"""Environment variable with the default nameservers, also read by mqadmin."""

DEFAULT_NAMESERVERS = f"127.0.0.1:{NAMESERVER_PORT}"


def nameserver_addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return `host:port` of each nameserver, from a sequence or text separated by `;` or `,`.

    None means the variable NAMESRV_ADDR, or 127.0.0.1:9876. Raises ConfigError.
    """
    if given is None:
        given = os.environ.get(NAMESERVERS_VARIABLE) or DEFAULT_NAMESERVERS
    parts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    addresses = tuple(part.strip().removeprefix("http://") for part in parts if part.strip())
    if not addresses:
        raise ConfigError("no nameserver given; write host:port, several separated by ';'")
    for address in addresses:
        check_address(address)
    return addresses


def check_address(address: str, example_port: int = NAMESERVER_PORT) -> str:
    """Return the address, or raise ConfigError unless it is `host:port`.

    `example_port`: the usual port of such a server, for the error.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"{address!r} is not an address; write host:port, such as 127.0.0.1:{example_port}"
        )
    return address


def configured(cls: type[C], config: C | None, given: Mapping[str, Any]) -> C:
    """Return `config`, or the defaults, with the settings `given` as arguments (None: not given).

    Raises ConfigError for a setting with different values in an argument and in `config`.
    """
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if config is None:
        return cls(**changes)
    defaults = type(config)()
    for name, value in changes.items():
        if getattr(config, name) not in (getattr(defaults, name), value):
            raise ConfigError(
                f"{name} is given twice, as an argument and in config; give it in one of them"
            )
    return replace(config, **changes)


def client_config(cls: type[B], config: B | None, given: Mapping[str, Any]) -> B:
    """Return the complete configuration of a RocketMQ client, as `configured`.

    Raises ConfigError.
    """
    nameservers = given.get("nameservers")
    if nameservers is not None or config is None or not config.nameservers:
        given = {**given, "nameservers": nameserver_addresses(nameservers)}
    made = configured(cls, config, given)
    _check_group(made.group)
    made = replace(made, client_id=made.client_id or _default_client_id(made))
    check(made)
    return made


def _check_group(name: str) -> None:
    """Raise ConfigError for a name that Java's clients refuse. Source: client/Validators.java."""
    if not name:
        raise ConfigError("the group name is empty; give group='...'")
    if len(name) > CLIENT_GROUP_CHARACTERS_MAX:
        raise ConfigError(
            f"group {name[:20]!r}… is longer than {CLIENT_GROUP_CHARACTERS_MAX} characters"
        )
    if NAME.fullmatch(name) is None:
        hint = f"; did you mean nameservers={name!r}?" if ":" in name else ""
        raise ConfigError(
            f"group {name!r} has characters other than letters, digits and %|_-{hint}"
        )


def _default_client_id(template: ClientConfig) -> str:
    """Return an id for each client; one with offsets on its own disk needs a stable id."""
    broadcasting = (
        isinstance(template, ConsumerConfig) and template.message_model is MessageModel.BROADCASTING
    )
    return stable_client_id() if broadcasting else new_client_id()


Seconds = Annotated[float, Meta(ge=0, le=366 * 24 * 3600)]


def begin_call(timeout: float | None) -> Begin:
    """Return the node's call for a start with this time-out in seconds; None: a first response."""
    return Begin(None if timeout is None else round(timeout * 1000))


def tls_context(tls: bool | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return a client's TLS context: none (None, False), the one given, or a default one (True).

    True trusts the certificates of the system's authorities (or those in the file SSL_CERT_FILE),
    for the host name or IP address dialed. Brokers usually have a self-signed certificate; to trust
    it::

        context = ssl.create_default_context(cafile="broker.pem")
        context.check_hostname = False      # if the certificate does not name the broker's address

    Raises ConfigError.
    """
    if tls is None or tls is False:
        return None
    import ssl  # 10 ms that clients without it need not spend

    if tls is True:
        return ssl.create_default_context()
    if not isinstance(tls, ssl.SSLContext):
        raise ConfigError(f"tls is {tls!r}; it must be True, None or an ssl.SSLContext")
    return tls


def verdict(returned: object, *, orderly: bool = False) -> ConsumeStatus | ConsumeOrderlyStatus:
    """Convert a listener's result to a verdict.

    False, RECONSUME_LATER and SUSPEND_CURRENT_QUEUE_A_MOMENT mean a retry, everything else success.
    """
    later = (
        returned is False
        or returned is ConsumeStatus.RECONSUME_LATER
        or returned is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    )
    if not orderly:
        return ConsumeStatus.RECONSUME_LATER if later else ConsumeStatus.CONSUME_SUCCESS
    if later:
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    return ConsumeOrderlyStatus.SUCCESS
