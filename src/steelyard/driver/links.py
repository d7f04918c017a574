"""A TCP connection of a driver: bytes to messages and back, with limits on both.

Outgoing frames are collected during one pass of the driver and written at once. Back-pressure, per
link:

- If a peer does not read its responses, its requests are not read either: above
  `LinkLimits.write_high` the link stops reading and keeps decoded messages until the buffer has
  drained. Only accepted links do so, because two peers that wait for each other would deadlock.
- A peer that does not read pushed data is disconnected at `LinkLimits.write_max`.
- Unfinished frames take at most `LinkLimits.unfinished_max` on all links together. Beyond it the
  link with most is disconnected, of those that never sent a whole message if there are any: whoever
  sends ordinary messages must not suffer.
- A link without traffic for `LinkLimits.idle_ms` is closed (NettyServerConfig, NettyClientConfig:
  channelMaxIdleTimeSeconds). Kafka's may be silent for longer: a JoinGroup waits for minutes.

An accepted link may be encrypted (`encryption`): its bytes pass through the codec on their way from
and to the transport, and the node hears of it after the handshake. Where encryption is optional,
the first byte decides, as in Apache RocketMQ (NettyRemotingServer.java, HandshakeHandler).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Protocol

from steelyard.driver.sending import LinkSending
from steelyard.errors import ProtocolError
from steelyard.nodes.seam import KAFKA, REMOTING
from steelyard.types import Sendable, joined
from steelyard.wire.strangers import HEAD_BYTES, Signs, Stranger, answerer, expected, unanswered

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from steelyard.driver.encryption import LinkEncryption

UNLIMITED = 0x7FFFFFFF

HANDSHAKE_BYTE = 0x16
"""The first byte that a client sends with TLS: a handshake record (RFC 8446 section 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """Limits of a driver's links, in bytes and milliseconds."""

    accepted_max: int = 10_000
    """Descriptors of accepted connections: one each, two once files were sent; see `accepting`."""
    write_high: int = 1024 * 1024
    """Unsent bytes above which an accepted link is no longer read."""
    read_max: int = 16 * 1024 * 1024
    """Bytes read from all links above which a pass begins without waiting for others."""
    write_max: int = 64 * 1024 * 1024
    """Unsent bytes above which a link is disconnected."""
    unfinished_max: int = 256 * 1024 * 1024
    """Bytes of unfinished frames on all links above which one of them is disconnected."""
    idle_ms: int = 120_000
    """Silence after which a link is closed."""
    kafka_idle_ms: int = 600_000
    """The same of Kafka's links (connections.max.idle.ms). Most clients close theirs earlier."""
    sweep_ms: int = 10_000
    """Interval of the search for silent links."""
    dial_timeout_ms: int = 3_000
    """Time-out of a dial (connectTimeoutMillis)."""


class Decoding(Protocol):
    """Decoder of a link's dialect."""

    def feed(self, data: bytes) -> Sequence[object]:
        """Return the messages completed by `data`.

        Raises ProtocolError if the peer violates the protocol.
        """


class AdmittingDecoding(Decoding, Protocol):
    """Decoder of a link whose peer logs in."""

    def admit(self) -> None:
        """Lift the limits of peers that have not logged in."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The codec of a protocol, for both ends of a link."""

    name: str
    write: Callable[[list[Sendable], Any], int]
    """Appends the frame of a message and returns its size."""
    accepting: Callable[[], Decoding]
    dialing: Callable[[], Decoding]
    speech: Stranger
    """The protocol as named by `strangers`."""
    sends_files: bool = False
    """A piece of a frame may be a `FileRange`."""
    admitting: Callable[[], AdmittingDecoding] | None = None
    """In place of `accepting` where peers log in; None if the dialect has no logins."""


@cache
def dialect(name: str) -> Dialect:
    """Return the dialect of this name; its codecs are loaded on first use."""
    if name == KAFKA:
        from steelyard.wire.kafka import frame as kafka

        return Dialect(
            KAFKA,
            kafka.write,
            kafka.server_decoder,
            kafka.ReplyDecoder,
            Stranger.KAFKA,
            sends_files=True,
            admitting=kafka.LoginDecoder,
        )
    assert name == REMOTING, name
    from steelyard.wire.remoting import frame as remoting

    return Dialect(
        REMOTING, remoting.write, remoting.Decoder, remoting.reply_decoder, Stranger.REMOTING
    )


@dataclass(slots=True, kw_only=True)
class Listening:
    """A listening port with its limits and connections."""

    name: str = "remoting"
    connections_max: int = UNLIMITED
    connections_per_ip_max: int = UNLIMITED
    count: int = 0
    by_ip: dict[str, int] = field(default_factory=dict)
    signs: Signs = field(default_factory=Signs)
    """The responses to clients of other protocols."""
    received_bytes: int = 0
    sent_bytes: int = 0
    silent: dict[Wire, int] = field(default_factory=dict)
    """Connections that never sent a whole message, oldest first, with their start times."""


class LinkOwner(Protocol):
    """The receiver of a link's events, in order: the driver."""

    limits: LinkLimits
    unfinished: int
    """Bytes of unfinished frames kept by all links."""

    def link_opened(self, wire: Wire) -> None: ...
    def link_plain(self, wire: Wire) -> None: ...
    def link_secured(self, wire: Wire) -> None: ...
    def link_insecure(self, wire: Wire, error: ssl.SSLError) -> None: ...
    def takes_second_descriptor(self, wire: Wire) -> bool: ...
    def link_read(self, wire: Wire, data: bytes) -> None: ...
    def take_read(self) -> None: ...
    def link_received(self, wire: Wire, messages: Sequence[object]) -> None: ...
    def link_resumed(self, wire: Wire, messages: Sequence[object]) -> None: ...
    def link_closed(self, wire: Wire, reason: str) -> None: ...
    def link_unanswered(self, wire: Wire, reason: str) -> None: ...
    def link_broken(self, wire: Wire, error: ProtocolError, head: bytes) -> None: ...
    def link_failed(self, wire: Wire, error: Exception) -> None: ...
    def link_overflows(self) -> None: ...
    def clock(self) -> int: ...


class Wire(asyncio.Protocol):
    """One connection. `link` is its number, `address` the peer's, as dialed or as seen."""

    __slots__ = (
        "_backlog",
        "_muted",
        "_owner",
        "_paused",
        "_reason",
        "_sending",
        "_sends_files",
        "active_at",
        "address",
        "decoder",
        "dialect",
        "dialed",
        "encode",
        "encryption",
        "has_second_descriptor",
        "hung",
        "ip",
        "is_announced",
        "is_silent",
        "link",
        "listening",
        "message_bytes",
        "out",
        "out_bytes",
        "speech",
        "transport",
        "unfinished",
    )

    transport: asyncio.Transport

    def __init__(
        self,
        owner: LinkOwner,
        spoken: Dialect,
        dialed_address: str | None,
        listening: Listening | None = None,
        encryption: LinkEncryption | None = None,
    ) -> None:
        self._owner = owner
        self.encryption = encryption
        self.is_announced = False
        """Whether the node has heard of it."""
        self.dialed = dialed_address is not None
        self.listening = listening
        """The listener that accepted it; None if it was dialed."""
        self.ip = ""
        """The peer's IP address if the connection was accepted."""
        self.is_silent = True
        """True until the peer has sent a whole message."""
        self.has_second_descriptor = False
        """Whether files are sent bypassing its transport."""
        self.dialect = spoken.name
        self.decoder = spoken.dialing() if self.dialed else spoken.accepting()
        self.encode = spoken.write
        self.speech = spoken.speech
        self._sends_files = spoken.sends_files
        self.address = dialed_address or ""
        self.link = -1
        self.out: list[Sendable] = []
        self.out_bytes = 0
        self.message_bytes = 0
        """Approximate size of each message being handled."""
        self.active_at = 0
        self.hung = False
        self._paused = False
        self._muted: asyncio.TimerHandle | None = None
        """Ends the time in which nothing is read, because the node wants nothing."""
        self.unfinished = 0
        """Bytes of a frame whose end has not come yet."""
        self._backlog: Sequence[object] = ()
        self._reason = ""
        self._sending: LinkSending | None = None

    # -- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio promises the base class only.
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(high=self._owner.limits.write_high)
        if not self.dialed:
            self.address = _peer(transport.get_extra_info("peername"))
            self.ip = self.address.rpartition(":")[0]
        self.active_at = self._owner.clock()
        self._owner.link_opened(self)

    def data_received(self, data: bytes) -> None:
        self._owner.link_read(self, data)

    def take(self, data: bytes) -> None:
        """Take bytes that were read before, in order."""
        if self.hung:
            return
        if self.listening is not None:
            self.listening.received_bytes += len(data)
        if self.encryption is not None:
            data = self._decrypted(self.encryption, data)
            if not data:
                return
        try:
            messages = self.decoder.feed(data)
        except ProtocolError as error:
            if self._meets_stranger(data):
                return
            is_first = self.is_silent and not self.unfinished
            self._owner.link_broken(self, error, data[:HEAD_BYTES] if is_first else b"")
            return
        except Exception as error:  # a bug of the decoder must not affect other links
            self._owner.link_failed(self, error)
            return
        if messages:
            message_bytes = (self.unfinished + len(data)) // len(messages)
            if self.unfinished:
                self._forget_unfinished()
            if self._backlog:  # read in the pass in which the link choked: it waits as well
                self._backlog = [*self._backlog, *messages]
                self.message_bytes = max(self.message_bytes, message_bytes)
            else:
                self.message_bytes = message_bytes
                self._owner.link_received(self, messages)
        else:
            if self._meets_stranger(data):
                return
            self.unfinished += len(data)
            self._owner.unfinished += len(data)
            if self._owner.unfinished > self._owner.limits.unfinished_max:
                self._owner.link_overflows()

    def _decrypted(self, encryption: LinkEncryption, data: bytes) -> bytes:
        """Return what received bytes contain; nothing if the link ends or is not secured yet.

        No frame without TLS begins with HANDSHAKE_BYTE: its size would be above every limit.
        """
        import ssl

        if not encryption.has_begun and data[0] != HANDSHAKE_BYTE:
            if encryption.is_optional:
                self.encryption = None
                self._owner.link_plain(self)
                return data
            error = ProtocolError("it speaks without TLS to an encrypted port")
            self._owner.link_broken(self, error, data[:HEAD_BYTES])
            return b""
        was_established = encryption.is_established
        try:
            data = encryption.receive(data)
        except ssl.SSLError as error:
            self.transport.write(encryption.to_send())  # the alert
            self._owner.link_insecure(self, error)
            return b""
        answer = encryption.to_send()
        if answer:
            self.transport.write(answer)
        if encryption.is_established and not was_established:
            self._owner.link_secured(self)
        if encryption.is_ended and not data:
            self.hang("closed by the peer")
        return b"" if self.hung else data

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True
        if not self.dialed and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._backlog and not self.hung:
            messages, self._backlog = self._backlog, ()
            self._owner.link_resumed(self, messages)
        self._read_on()

    def _read_on(self) -> None:
        """Read again, if nothing forbids it any more."""
        if not (self._paused or self._muted or self.dialed or self.transport.is_closing()):
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.take_read()
        self._forget_unfinished()
        self.hung = True
        self._backlog = ()
        if self._muted is not None:
            self._muted.cancel()
        self.out.clear()
        if self._sending is not None:
            self._sending.close()
        if self._reason:
            self._owner.link_closed(self, self._reason)
            return
        reason = str(exc) if exc else "closed by the peer"
        if self.dialed and self.is_silent:
            self._owner.link_unanswered(self, f"{reason} {unanswered(self.speech)}")
        else:
            self._owner.link_closed(self, reason)

    def _meets_stranger(self, head: bytes) -> bool:
        """Return whether these first bytes of a dialed link are another protocol.

        Then it is cut.
        """
        if not self.dialed or not self.is_silent or self.unfinished:
            return False
        found = answerer(head)
        if found:
            self.cut(
                f"{found} answers at this address, not {expected(self.speech)}; check host and port"
            )
        return bool(found)

    def _forget_unfinished(self) -> None:
        self._owner.unfinished -= self.unfinished
        self.unfinished = 0

    # -- what the driver calls ---------------------------------------------------------------------

    @property
    def choked(self) -> bool:
        """Whether the peer reads too slowly, so that no more of its messages are taken for now."""
        return self._paused and not self.dialed

    def admit(self) -> None:
        """Lift the limits of peers that have not logged in."""
        decoder: Any = self.decoder
        decoder.admit()

    def mute(self, duration_ms: int) -> None:
        """Read nothing for so long."""
        if self.dialed or self.hung or self.transport.is_closing():
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = asyncio.get_running_loop().call_later(duration_ms / 1000, self._unmute)
        self.transport.pause_reading()

    @property
    def is_muted(self) -> bool:
        """Whether nothing is read because the node wants nothing: the silence is not the peer's."""
        return self._muted is not None

    def _unmute(self) -> None:
        self._muted = None
        self.active_at = self._owner.clock()
        self._read_on()

    def has_unread(self) -> bool:
        """Return whether the kernel has unread bytes of an accepted link."""
        from fcntl import ioctl  # servers' systems have it; clients use this module too
        from termios import FIONREAD

        try:
            left = ioctl(self.transport.get_extra_info("socket").fileno(), FIONREAD, bytes(4))
        except (OSError, ValueError):  # it is being closed
            return False
        return left != bytes(4)

    def keep(self, messages: Sequence[object]) -> None:
        """Keep decoded messages that cannot be taken while the link is choked."""
        self._backlog = messages

    def write_out(self) -> None:
        """Pass the collected output to the kernel; cut off a peer that has too much to read."""
        out = self.out
        if self.hung or self.transport.is_closing():
            out.clear()
            self.out_bytes = 0
            return
        try:
            if self._sends_files and self._goes_past_the_transport():
                self._send(out)
            else:
                data = out[0] if len(out) == 1 and isinstance(out[0], bytes) else joined(out)
                if self.encryption is not None:
                    data = self.encryption.encrypt(data)
                self.transport.write(data)
        except OSError as error:  # of a file
            self.cut(str(error))
        if self.listening is not None:
            self.listening.sent_bytes += self.out_bytes
        out.clear()
        self.out_bytes = 0
        if self._paused and self._unsent() > self._owner.limits.write_max:
            self.cut("does not read the data sent to it")

    def hang(self, reason: str) -> None:
        """Close after pending output."""
        self._reason = self._reason or reason
        if self.encryption is not None and not self.hung:
            self.transport.write(self.encryption.close())
        self.hung = True
        if self._sending is None or not self._sending.left:
            self.transport.close()

    def cut(self, reason: str) -> None:
        """Close at once and discard unsent output."""
        self._reason = self._reason or reason
        self.hung = True
        self._forget_unfinished()
        if self._sending is not None:
            self._sending.close()
        self.transport.abort()

    # -- files -------------------------------------------------------------------------------------

    def _goes_past_the_transport(self) -> bool:
        """Return whether `out` bypasses the transport: has file ranges, or must follow some.

        If the transport still has something to write, which is rare, the ranges are read instead.
        """
        sending, out = self._sending, self.out
        if sending is not None and sending.left:
            return True
        if all(isinstance(piece, bytes) for piece in out):
            return False
        return (
            not self.transport.get_write_buffer_size()
            and self.encryption is None
            and not self.transport.get_extra_info("ssl_object")
            and self._can_send()
        )

    def _can_send(self) -> bool:
        """Return whether there is a descriptor for bypassing the transport."""
        if self._sending is None and self._owner.takes_second_descriptor(self):
            loop = asyncio.get_running_loop()
            try:
                self._sending = LinkSending(self.transport, loop, self._sent, self.cut)
            except OSError:
                return False
        return self._sending is not None

    def _send(self, pieces: list[Sendable]) -> None:
        sending = self._sending
        assert sending is not None
        sending.send(pieces)
        if not self._paused and sending.left > self._owner.limits.write_high:
            self.pause_writing()

    def _sent(self) -> None:
        """Note that all bypassing output was sent."""
        if self.hung:
            self.transport.close()
        elif self._paused:
            self.resume_writing()

    def _unsent(self) -> int:
        left = 0 if self._sending is None else self._sending.left
        return left + self.transport.get_write_buffer_size()


def _peer(name: object) -> str:
    """Format a socket's peer name as `ip:port`; IPv6 in brackets.

    An IPv4 client of a listener for both has its IPv4 address, as in Java.
    """
    if not isinstance(name, tuple) or len(name) < 2:
        return "unknown:0"
    host, port = str(name[0]), int(name[1])
    if ":" not in host:
        return f"{host}:{port}"
    mapped = IPv6Address(host).ipv4_mapped
    return f"[{host}]:{port}" if mapped is None else f"{mapped}:{port}"
