"""The trace of a run, as a digest and, on request, as text.

Every event and effect of every node goes into the digest with its virtual time: frames as bytes,
others as text. Two runs with the same digest did the same.
"""

from __future__ import annotations

import hashlib
from collections import deque

from steelyard.sim.clock import EPOCH
from steelyard.wire.kafka.frame import RawReply, Reply, Request
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_oneway, is_response

LINES_MAX = 100_000
"""Lines of a readable trace that are kept: the last ones."""

HASHED_AT_ONCE = 1_000
"""Entries hashed together: passing a single one costs more than hashing it."""

MESSAGE_CHARACTERS_MAX = 400
"""Maximum characters of one Kafka message in a readable trace."""

_CODES: dict[int, str] = {code.value: code.name for code in RequestCode}


class Trace:
    """Records everything; `readable` keeps lines for people as well."""

    def __init__(self, *, readable: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._unhashed: list[bytes] = []
        self._lines: deque[str] | None = deque(maxlen=LINES_MAX) if readable else None
        self.entries = 0

    def note(self, now: int, who: str, what: str) -> None:
        """Note an event or effect of `who`."""
        self.entries += 1
        self._take(f"{now} {who} {what}\n".encode())
        if self._lines is not None:
            self._lines.append(f"{(now - EPOCH) / 1000:10.3f}  {who:<14} {what}")

    def frame(self, now: int, who: str, verb: str, link: int, message: object, data: bytes) -> None:
        """Note that `who` sent or received the frame `data` on `link`."""
        self.entries += 1
        self._take(f"{now} {who} {verb} {link}\n".encode() + data)
        if self._lines is not None:
            text = f"{verb} #{link} {describe(message)}"
            self._lines.append(f"{(now - EPOCH) / 1000:10.3f}  {who:<14} {text}")

    def _take(self, entry: bytes) -> None:
        self._unhashed.append(entry)
        if len(self._unhashed) >= HASHED_AT_ONCE:
            self._hash_waiting()

    def _hash_waiting(self) -> None:
        self._hash.update(b"".join(self._unhashed))
        self._unhashed.clear()

    def digest(self) -> str:
        self._hash_waiting()
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Return the readable trace, oldest first; empty unless requested."""
        return list(self._lines or ())


def describe(message: object) -> str:
    """Describe a message in one line for people."""
    match message:
        case Command():
            return _describe_command(message)
        case Request(api, version, correlation_id, _, asked):
            return f"{api.name} v{version} ({correlation_id}) {_short_message(asked)}"
        case Reply(api, version, correlation_id, answer):
            return f"{api.name} v{version} reply ({correlation_id}) {_short_message(answer)}"
        case RawReply(correlation_id, data):
            return f"reply ({correlation_id}) {len(data)} B"
        case _:
            return repr(message)


def _describe_command(command: Command) -> str:
    if is_response(command):
        kind = f"reply {command.code}"
    else:
        kind = _CODES.get(command.code, str(command.code)) + ("!" if is_oneway(command) else "")
    fields = " ".join(f"{key}={_short(value)}" for key, value in command.ext.items())
    body = f" +{len(command.body)} B" if command.body else ""
    remark = f" {command.remark!r}" if command.remark else ""
    return f"{kind} ({command.opaque}) {fields}{body}{remark}"


def _short_message(message: object) -> str:
    text = repr(message)
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else text[:MESSAGE_CHARACTERS_MAX] + "..."


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")[1:-1]
