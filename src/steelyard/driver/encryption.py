"""TLS: certificates from PEM files, reloaded when they change, and the codec of accepted links.

An accepted link keeps its plain transport, and its bytes pass through a `LinkEncryption`. So a
connection is counted and limited before its handshake, a client without TLS is recognised by its
first byte, and a new certificate applies to new connections without touching the listener or the
open ones.

`TlsContext` looks at its files every second. A pair that cannot be loaded (a certificate whose key
has not been written yet) is logged once, and the one before stays in use.
Source: clients/common/security/ssl/SslFactory.java, DefaultSslEngineFactory.java;
remoting/netty/TlsHelper.java.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from steelyard.errors import ConfigError

if TYPE_CHECKING:
    import logging

    from steelyard.config import KafkaConfig, TlsClientConfig, TlsConfig

LOOK_SECONDS = 1.0
"""Interval of the look at the files."""

READ_BYTES = 64 * 1024

_VERIFYING = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
    "require": ssl.CERT_REQUIRED,
}
"""By the words of either protocol's settings."""


class TlsFiles(NamedTuple):
    """The files of one end of TLS connections; an empty path stands for none.

    `trusted`: certificates of those who may sign the other end's. `client_auth`: whether clients
    show one, in a setting's words; for a client's own files None. `settings`: the names of those of
    `certificate` and `trusted`, for errors.
    """

    certificate: str
    key: str
    trusted: str
    client_auth: str | None
    settings: tuple[str, str]

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises ConfigError if a file cannot be used."""
        if self.client_auth is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = _VERIFYING[self.client_auth]
            context.options |= ssl.OP_NO_RENEGOTIATION
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, trusted = self.settings
        if self.certificate:
            with _Naming(f"{certificate} {self.certificate}", self.key):
                context.load_cert_chain(self.certificate, self.key or None, password=_encrypted)
        if self.trusted:
            with _Naming(f"{trusted} {self.trusted}"):
                context.load_verify_locations(self.trusted)
        return context

    def state(self) -> tuple[object, ...]:
        """Return what changes when a file is written or replaced."""
        return tuple(_state_of(path) for path in self[:3] if path)


def of_kafka_listener(config: KafkaConfig) -> TlsFiles:
    """Return the files of a broker's Kafka listener."""
    return TlsFiles(
        config.ssl_certificate_file,
        config.ssl_key_file,
        config.ssl_client_ca_file,
        config.ssl_client_auth,
        ("kafka.ssl_certificate_file", "kafka.ssl_client_ca_file"),
    )


def of_listener(config: TlsConfig) -> TlsFiles:
    """Return the files of a RocketMQ port."""
    return TlsFiles(
        config.server_cert_file,
        config.server_key_file,
        config.server_trust_file,
        config.server_need_client_auth,
        ("tls.server_cert_file", "tls.server_trust_file"),
    )


def of_dialing(config: TlsClientConfig) -> TlsFiles:
    """Return the files of a server's connections to other servers."""
    return TlsFiles(
        config.cert_file,
        config.key_file,
        config.trust_file,
        None,
        ("tls_client.cert_file", "tls_client.trust_file"),
    )


class _Naming:
    """Makes the errors of a file ConfigErrors that name it."""

    def __init__(self, what: str, key: str = "") -> None:
        self._what = f"{what} with the key {key}" if key else what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ssl.SSLError):
            text = (error.reason or "not PEM").replace("_", " ").lower()
            raise ConfigError(f"{self._what} cannot be used: {text}") from None
        if isinstance(error, OSError):
            raise ConfigError(f"{self._what} cannot be read: {error.strerror}") from None
        if isinstance(error, ValueError):
            raise ConfigError(f"{self._what} cannot be used: {error}") from None


def _encrypted() -> NoReturn:
    """Refuse a key that needs a password, for which OpenSSL would otherwise ask the terminal."""
    raise ValueError("the key is encrypted; give one without a password")


class TlsContext:
    """The current TLS context of a listener, or of dialed links. Raises ConfigError.

    Call `watch` in the loop's thread, and `close` at the end.
    """

    def __init__(self, files: TlsFiles, log: logging.Logger) -> None:
        self._files = files
        self._log = log
        self._seen = files.state()
        self.current = files.context()
        """For new connections."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at the files again and again."""

        def look() -> None:
            self._look()
            self._timer = loop.call_later(LOOK_SECONDS, look)

        self._timer = loop.call_later(LOOK_SECONDS, look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        state = self._files.state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self.current = self._files.context()
        except ConfigError as error:
            self._log.error("%s; new connections still use the former files", error)
        else:
            changed = self._files.certificate or self._files.trusted
            self._log.info("new connections use the changed %s", changed)


def _state_of(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns


class LinkEncryption:
    """The codec of one accepted link, from `receive` to `close`.

    `is_optional`: a peer that begins without TLS is served as well.
    """

    def __init__(self, context: ssl.SSLContext, *, is_optional: bool = False) -> None:
        self.is_optional = is_optional
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._codec = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.has_begun = False
        """Whether the peer has sent anything."""
        self.is_established = False
        """Whether the handshake is done."""
        self.is_ended = False
        """Whether the peer has announced that it closes."""

    def receive(self, data: bytes) -> bytes:
        """Return what the peer's bytes contain. Raises ssl.SSLError; see `to_send` after each."""
        self.has_begun = True
        self._incoming.write(data)
        found: list[bytes] = []
        try:
            if not self.is_established:
                self._codec.do_handshake()
                self.is_established = True
            while piece := self._codec.read(READ_BYTES):
                found.append(piece)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        return b"".join(found)

    def to_send(self) -> bytes:
        """Return bytes of the handshake, an alert, or session tickets for the peer."""
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """Return the bytes to send for data."""
        if data:
            self._codec.write(data)
        return self._outgoing.read()

    def close(self) -> bytes:
        """Return the announcement that nothing follows."""
        if self.is_established:
            with suppress(ssl.SSLError):  # the peer has not announced it yet, nobody waits for that
                self._codec.unwrap()
        return self._outgoing.read()

    def certificate(self) -> bytes | None:
        """Return the peer's verified certificate in DER; None if it has shown none."""
        return self._codec.getpeercert(binary_form=True)


def words(error: ssl.SSLError) -> str:
    """Say why a handshake failed, in OpenSSL's words."""
    verification = getattr(error, "verify_message", "")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{reason}: {verification}" if verification else reason
