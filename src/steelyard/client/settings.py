"""What users write, as what nodes take: nameserver lists, messages, verdicts, configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from steelyard.config import ClientConfig, ConsumerConfig, check
from steelyard.driver.identity import new_client_id, stable_client_id
from steelyard.errors import ConfigError, MessageError
from steelyard.nodes.starting import Begin
from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, Message, MessageModel

if TYPE_CHECKING:
    import ssl

C = TypeVar("C", bound=ClientConfig)

Verdict = ConsumeStatus | ConsumeOrderlyStatus | bool | None
"""What a listener may return."""

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""MixAll.DEFAULT_PRODUCER_GROUP."""

NAMESERVERS_VARIABLE = "NAMESRV_ADDR"
"""Environment variable with the default nameservers, as mqadmin reads it."""

DEFAULT_NAMESERVERS = "127.0.0.1:9876"


def nameserver_addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """`host:port` of each nameserver, from a sequence or text separated by `;` or `,`.

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


def check_address(address: str) -> str:
    """The address itself, or ConfigError where it is not `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address!r} is not an address; write host:port, such as 127.0.0.1:9876")
    return address


def client_config(
    template: C, group: str, nameservers: str | Sequence[str] | None, client_id: str | None
) -> C:
    """The template with what every client needs filled in. Raises ConfigError."""
    if not group:
        raise ConfigError("the group has no name; give group='...'")
    config = replace(
        template,
        group=group,
        nameservers=template.nameservers
        if nameservers is None and template.nameservers
        else nameserver_addresses(nameservers),
        client_id=client_id or template.client_id or _default_client_id(template),
    )
    check(config)
    return config


def _default_client_id(template: ClientConfig) -> str:
    """One for each client; but what keeps its offsets on its own disk has to find them again."""
    broadcasting = (
        isinstance(template, ConsumerConfig) and template.message_model is MessageModel.BROADCASTING
    )
    return stable_client_id() if broadcasting else new_client_id()


Seconds = Annotated[float, Meta(ge=0, le=366 * 24 * 3600)]


def begin_call(timeout: float | None) -> Begin:
    """What a node is told at a start that may take so many seconds; None: for the first news of the servers."""
    return Begin(None if timeout is None else round(timeout * 1000))


def tls_context(tls: bool | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """How a client's connections are encrypted: not at all (None, False), by an SSLContext, or as usual (True).

    True trusts the certificates of the system's authorities (or those in the file SSL_CERT_FILE), for the host
    name or ip that is dialed. Brokers mostly have a certificate of their own making; to trust that one::

        context = ssl.create_default_context(cafile="broker.pem")
        context.check_hostname = False      # where the certificate does not name the broker's address

    Raises ConfigError.
    """
    if tls is None or tls is False:
        return None
    import ssl  # 10 ms that clients without it need not wait

    if tls is True:
        return ssl.create_default_context()
    if not isinstance(tls, ssl.SSLContext):
        raise ConfigError(f"tls is {tls!r}; it must be True, None or an ssl.SSLContext")
    return tls


def as_message(
    message: Message | str,
    body: bytes | str | None,
    *,
    tags: str = "",
    keys: str | Sequence[str] = "",
    properties: Mapping[str, str] | None = None,
    delay_level: int = 0,
    sharding_key: str = "",
) -> Message:
    """The message that `send` was given: whole, or as topic and body. Text is sent as UTF-8."""
    if isinstance(message, Message):
        if body is not None:
            raise MessageError("give either a Message, or a topic and a body, not both")
        if sharding_key:
            return msgspec.structs.replace(message, sharding_key=sharding_key)
        return message
    if not isinstance(message, str):
        raise MessageError(f"a message is a Message or a topic and a body, not {message!r}")
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise MessageError(f"the body of a message is bytes or str, not {type(body).__name__}")
    return Message(
        topic=message,
        body=bytes(body),
        tags=tags,
        keys=keys,
        properties=properties or {},
        delay_level=delay_level,
        sharding_key=sharding_key,
    )


def verdict(returned: object, *, orderly: bool = False) -> ConsumeStatus | ConsumeOrderlyStatus:
    """What a listener's return value says: False, RECONSUME_LATER and SUSPEND_CURRENT_QUEUE_A_MOMENT mean again
    later, all else success."""
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
