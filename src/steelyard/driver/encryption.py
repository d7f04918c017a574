"""TLS of accepted links: certificates from PEM files, reloaded when they change, and the codec.

A link keeps its plain transport, and its bytes pass through a `LinkEncryption`. So a connection is
counted and limited before its handshake, a client without TLS is recognised by its first bytes, and
a new certificate applies to new connections without touching the listener or the open ones.

`ServerCertificates` looks at its files every second. A pair that cannot be loaded (a certificate
whose key has not been written yet) is logged once, and the one before stays in use.
Source: clients/common/security/ssl/SslFactory.java, DefaultSslEngineFactory.java.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from steelyard.errors import ConfigError

if TYPE_CHECKING:
    import logging

    from steelyard.config import KafkaConfig

LOOK_SECONDS = 1.0
"""Interval of the look at the files."""

READ_BYTES = 64 * 1024

_VERIFYING = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(config: KafkaConfig) -> ssl.SSLContext:
    """Return the TLS context of a Kafka listener. Raises ConfigError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFYING[config.ssl_client_auth]
    certificate, key = config.ssl_certificate_file, config.ssl_key_file or None
    with _Naming(f"kafka.ssl_certificate_file {certificate}", key):
        context.load_cert_chain(certificate, key, password=_encrypted)
    if config.ssl_client_ca_file:
        with _Naming(f"kafka.ssl_client_ca_file {config.ssl_client_ca_file}"):
            context.load_verify_locations(config.ssl_client_ca_file)
    return context


class _Naming:
    """Makes the errors of a file ConfigErrors that name it."""

    def __init__(self, what: str, key: str | None = None) -> None:
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


class ServerCertificates:
    """The current TLS context of a listener. Raises ConfigError as `server_context`.

    Call `watch` in the loop's thread, and `close` at the end.
    """

    def __init__(self, config: KafkaConfig, log: logging.Logger) -> None:
        self._config = config
        self._log = log
        self._seen = self._state()
        self.context = server_context(config)
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
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self.context = server_context(self._config)
        except ConfigError as error:
            self._log.error("%s; connections are still accepted with the former files", error)
        else:
            self._log.info("new connections use the changed %s", self._config.ssl_certificate_file)

    def _state(self) -> tuple[object, ...]:
        """Return what changes when a file is written or replaced."""
        config = self._config
        files = (config.ssl_certificate_file, config.ssl_key_file, config.ssl_client_ca_file)
        return tuple(_state_of(path) for path in files if path)


def _state_of(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns


class LinkEncryption:
    """The codec of one accepted link, from `receive` to `close`."""

    def __init__(self, context: ssl.SSLContext) -> None:
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
