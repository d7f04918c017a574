"""RemotingCommand: the one envelope of the RocketMQ remoting protocol, for requests and responses.

Source: remoting/protocol/RemotingCommand.java. The bytes are made and read by `frame`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

VERSION = 409
"""What we say we are: MQVersion ordinal of V4_9_8. The highest version whose behaviour we offer in
full: from 5.x on peers expect POP, static topics and paged metadata."""


class Serialize(IntEnum):
    """How the header of one frame is written. Source: remoting/protocol/SerializeType.java."""

    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct, frozen=True, gc=False):
    """One frame, decoded.

    - `code`: a `RequestCode` in requests, a `ResponseCode` in responses.
    - `opaque`: chosen by the requester, unique in its process; a response echoes it.
    - `ext`: the custom header, text to text; unknown keys are to be ignored.
    - `language`: the name of LanguageCode, or "OTHER" where the peer sent an unknown one.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    ext: Mapping[str, str] = {}
    body: bytes = b""
    remark: str = ""
    language: str = "PYTHON"
    version: int = VERSION


def is_response(command: Command) -> bool:
    return command.flag & RESPONSE_FLAG != 0


def is_oneway(command: Command) -> bool:
    return command.flag & ONEWAY_FLAG != 0
