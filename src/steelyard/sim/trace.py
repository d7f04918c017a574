"""What happened, as a digest and, when asked for, as text.

Every event and effect of every node goes into the digest with its virtual time: frames as bytes, the
rest as text. Two runs with the same digest did the same.
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

MESSAGE_CHARACTERS_MAX = 400
"""Of one Kafka message in a readable trace."""

_CODES: dict[int, str] = {code.value: code.name for code in RequestCode}


class Trace:
    """Takes everything in; `readable` keeps lines for people as well."""

    def __init__(self, *, readable: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._lines: deque[str] | None = deque(maxlen=LINES_MAX) if readable else None
        self.entries = 0

    def note(self, now: int, who: str, what: str) -> None:
        """Something happened to `who`."""
        self.entries += 1
        self._hash.update(f"{now} {who} {what}\n".encode())
        if self._lines is not None:
            self._lines.append(f"{(now - EPOCH) / 1000:10.3f}  {who:<14} {what}")

    def frame(self, now: int, who: str, verb: str, link: int, message: object, data: bytes) -> None:
        """`who` sent or received the frame `data` on `link`."""
        self.entries += 1
        self._hash.update(f"{now} {who} {verb} {link}\n".encode())
        self._hash.update(data)
        if self._lines is not None:
            text = f"{verb} #{link} {describe(message)}"
            self._lines.append(f"{(now - EPOCH) / 1000:10.3f}  {who:<14} {text}")

    def digest(self) -> str:
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """The readable trace, oldest first; empty unless asked for."""
        return list(self._lines or ())


def describe(message: object) -> str:
    """One line for a person."""
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
