"""RemotingCommand: the envelope of all requests and responses of the remoting protocol.

Source: remoting/protocol/RemotingCommand.java. `frame` converts it to and from bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

VERSION = 409
"""The version that we report: MQVersion ordinal of V4_9_8.

It is the highest whose behaviour we offer in full: from 5.x on peers expect POP, static topics and
paged metadata.
"""

LANGUAGE = "PYTHON"
"""The language that we report."""


class Serialize(IntEnum):
    """Serialization of a frame's header. Source: remoting/protocol/SerializeType.java."""

    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct, frozen=True, gc=False):
    """One frame, decoded.

    - `code`: a `RequestCode` in requests, a `ResponseCode` in responses.
    - `opaque`: chosen by the requester, unique in its process; echoed by the response.
    - `ext`: the custom header, text to text; unknown keys must be ignored.
    - `language`: the name of LanguageCode, or "OTHER" for an unknown one.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    ext: Mapping[str, str] = {}
    body: bytes = b""
    remark: str = ""
    language: str = LANGUAGE
    version: int = VERSION


def is_response(command: Command) -> bool:
    return command.flag & RESPONSE_FLAG != 0


def is_oneway(command: Command) -> bool:
    return command.flag & ONEWAY_FLAG != 0
