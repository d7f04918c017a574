"""Hostile input from a seed: requests that are almost right, bodies that are almost JSON, frames that are almost whole.

Everything comes from a `random.Random`, so that a seed tells the whole story.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from steelyard.types import MessageQueue
from steelyard.wire.remoting import bodies, fastjson, frame, headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, Serialize
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import BatchEntry, encode_batch

GOLDEN = Path(__file__).parent.parent / "golden"

TOPICS = (
    "TopicA",
    "TBW102",
    "TopicB",
    "%RETRY%cg",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_REBALANCE_LEDGER",
)
GROUPS = ("cg", "pg", "CLIENT_INNER_PRODUCER")
NASTY = (
    "",
    " ",
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "1e3",
    "1.5",
    "true",
    "null",
    "x" * 300,
    "x" * 40_000,
    "../../../etc/passwd",
    "a/b",
    "%DLQ%",
    "%RETRY%",
    "€\U0001f600",
    "\x00",
    "a\x01b\x02c\x01d\x02",
    "TagA || TagB",
    "*",
)  # fmt: skip


FIRST_ADDRESS = 1 << 40
"""The offset of the first message in the first log of a Steelyard broker."""


class Captured(msgspec.Struct, frozen=True):
    kind: str
    request: int
    ext: dict[str, str]
    code: int | None = None
    body: str = ""

    @property
    def body_bytes(self) -> bytes:
        return self.body.encode() if self.body.startswith("{") else bytes.fromhex(self.body)


def _captures() -> list[Captured]:
    lines = (GOLDEN / "rocketmq-4.9.8.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Captured) for line in lines]


def _headers_by_code() -> dict[int, type[headers.Header]]:
    """The docstring of a header names its codes."""
    found: dict[int, type[headers.Header]] = {}
    for kind in headers.Header.__subclasses__():
        if not (kind.__doc__ or "").startswith("Answer"):
            for code in re.findall(r"\b(\d{2,3}) [A-Z][A-Z_0-9]+", kind.__doc__ or ""):
                found.setdefault(int(code), kind)
    return found


REQUESTS = [row for row in _captures() if row.kind != "RESP"]
BODIES = sorted({row.body_bytes for row in _captures() if row.body})
HEADERS = _headers_by_code()
CODES = sorted({int(code) for code in RequestCode} | {row.request for row in REQUESTS})


_QUEUES = tuple(MessageQueue("TopicA", "broker-a", queue_id) for queue_id in range(4))
_SUBSCRIBED = (bodies.SubscriptionData("TopicA", "TagA", ("TagA",), (tag_code("TagA"),), 1),)

GOOD_BODIES: dict[int, list[bytes]] = {
    34: [
        fastjson.write(
            bodies.HeartbeatData(
                client_id,
                (bodies.ProducerData("pg"),),
                (bodies.ConsumerData("cg", subscription_data_set=subscribed),),
            )
        )
        for client_id in ("client", "k")
        for subscribed in (_SUBSCRIBED, (bodies.SubscriptionData("TopicA"),), ())
    ],
    41: [fastjson.write(bodies.LockBatchBody("cg", "client", _QUEUES))],
    42: [fastjson.write(bodies.LockBatchBody("cg", "client", _QUEUES[:2]))],
    200: [fastjson.write(bodies.SubscriptionGroupConfig("cg"))],
    320: [encode_batch([BatchEntry(0, b"x", b"TAGS\x01TagA\x02")] * 3)],
    322: [fastjson.write(bodies.DataVersion(1, 1))],
}


# -- commands --------------------------------------------------------------------------------------


def any_value(rng: Random, name: str, kind: object) -> str:
    """Mostly a value that may go through, for the garbage has to come far to be of use."""
    if rng.random() < 0.02:
        return rng.choice(NASTY)
    if "bool" in str(kind):
        return rng.choice(("true", "false"))
    if "int" in str(kind):
        large = FIRST_ADDRESS if "ffset" in name else 4
        return str(rng.choice((0, 0, 0, 1, 2, 3, 4, 6, 7, 100, 15_000, -1, large)))
    if "roup" in name or name == "a":
        return rng.choice(GROUPS)
    if "opic" in name or name in ("b", "c"):
        return rng.choice(TOPICS)
    return rng.choice(("TagA", "*", "TAG", "broker-x", "client", "127.0.0.1:1", "k\x01v\x02", "k"))


def any_ext(rng: Random, code: int) -> dict[str, str]:
    captured = [row.ext for row in REQUESTS if row.request == code]
    if captured and rng.random() < 0.3:
        ext = dict(rng.choice(captured))
    elif code in HEADERS:
        fields = msgspec.structs.fields(HEADERS[code])
        ext = {item.encode_name: any_value(rng, item.encode_name, item.type) for item in fields}
    else:
        ext = {}
    for name in sorted(ext):
        if rng.random() < 0.01:
            del ext[name]
        elif rng.random() < 0.01:
            ext[name] = rng.choice(NASTY)
    if rng.random() < 0.1:
        ext[rng.choice(("queueId", "topic", "x", "", "extFields", "€"))] = rng.choice(NASTY)
    return ext


def any_body(rng: Random, code: int) -> bytes:
    good = [row.body_bytes for row in REQUESTS if row.request == code and row.body]
    good += GOOD_BODIES.get(code, [])
    match rng.randrange(8):
        case 0:
            return b""
        case 1:
            return rng.randbytes(rng.randrange(200))
        case 2:
            return mutated(rng, rng.choice(BODIES))
        case 3:
            return mutated(rng, rng.choice(good or BODIES))
    return rng.choice(good or [b"", b"{}", b"hello"])


def any_command(rng: Random) -> Command:
    code = rng.choice(CODES) if rng.random() < 0.95 else rng.randrange(-(2**31), 2**31)
    flag = rng.choice((0, 0, 0, 0, 0, ONEWAY_FLAG, RESPONSE_FLAG, rng.randrange(-(2**31), 2**31)))
    return Command(
        code=code,
        opaque=rng.randrange(-(2**31), 2**31),
        flag=flag,
        ext=any_ext(rng, code),
        body=any_body(rng, code),
        remark=rng.choice(("", "", "remark")),
        language=rng.choice(frame.LANGUAGES),
        version=rng.choice((0, 121, 401, 409, 479, -1, 2**31 - 1)),
    )


# -- bytes -----------------------------------------------------------------------------------------


def mutated(rng: Random, data: bytes) -> bytes:
    """`data` with a few bytes changed, cut out or doubled."""
    result = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if not result:
            break
        start = rng.randrange(len(result))
        stop = min(len(result), start + rng.randrange(1, 20))
        match rng.randrange(4):
            case 0:
                result[start] = rng.randrange(256)
            case 1:
                del result[start:stop]
            case 2:
                result[start:start] = result[start:stop]
            case 3:
                result[start:start] = rng.choice(
                    (b"{", b"[", b'"', b"}", b",", b"null", b'{"$ref":"$"}', b"\xff")
                )
    return bytes(result)


def whole_frame(rng: Random) -> bytes:
    command = any_command(rng)
    if rng.random() < 0.2 and -(2**15) <= command.code < 2**15:
        command = msgspec.structs.replace(command, version=409)
        if max(map(len, command.ext), default=0) < 2**15:
            return frame.encode(command, Serialize.ROCKETMQ)
    return frame.encode(command)


def random_bytes(rng: Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 2000))


def cut_frame(rng: Random) -> bytes:
    data = whole_frame(rng)
    return data[: rng.randrange(len(data))]


def huge_claim(rng: Random) -> bytes:
    size = rng.choice((2**31 - 1, 2**32 - 1, 2**24, 2**24 - 4, 2**24 - 5, 2**31, 3, 0))
    word = rng.choice((0, 2**24 - 1, 100, 2**24 + 100, 2**32 - 1))
    return size.to_bytes(4, "big") + word.to_bytes(4, "big") + rng.randbytes(rng.randrange(500))


def mutated_frame(rng: Random) -> bytes:
    return mutated(rng, whole_frame(rng))


def mutated_header(rng: Random) -> bytes:
    """A frame of right sizes around a header that is not."""
    command = any_command(rng)
    header = mutated(rng, frame.encode_json_header(command))
    return _around(header, rng.choice((0, 0, 0, 1, 2, 255)), command.body)


def deep_json(rng: Random) -> bytes:
    depth = rng.choice((10, 100, 1000, 100_000))
    text = rng.choice(('{"a":', "[", "{0:", '{"$ref":', "{{")) * depth
    code = rng.choice((34, 41, 103, 200))
    if rng.random() < 0.5:
        return _around(text.encode(), 0, b"")
    ext = any_ext(rng, code)
    return frame.encode(Command(code=code, ext=ext, body=text.encode()))


def wide_json(rng: Random) -> bytes:
    """Up to a megabyte of the smallest values, where a heartbeat or a lock belongs."""
    item = rng.choice((b"0", b"{}", b"[]", b'{"brokerName":"b","queueId":0,"topic":"t"}'))
    items = b",".join([item] * rng.choice((1000, 20_000)))
    body = (
        rng.choice(
            (
                b"[%s]",
                b'{"clientID":"c","producerDataSet":[%s]}',
                b'{"clientId":"c","consumerGroup":"g","mqSet":[%s]}',
                b"{0:[%s]}",
            )
        )
        % items
    )
    return frame.encode(Command(code=rng.choice((34, 41, 42, 103, 200)), body=body))


def large_header(rng: Random) -> bytes:
    """Properties of every size, and a header beyond its limit now and then."""
    command = any_command(rng)
    size = rng.choice((1000, 32_767, 32_768, 200_000, 1_100_000))
    return frame.encode(
        msgspec.structs.replace(command, ext={**command.ext, "i": "\x01" * (size // 6)})
    )


def large_body(rng: Random) -> bytes:
    """More than a message may have, or as much where it is not a message."""
    code = rng.choice((310, 320, 34, 41, 103))
    return frame.encode(Command(code=code, ext=any_ext(rng, code), body=bytes(4 * 1024 * 1024 + 1)))


def many_frames(rng: Random) -> bytes:
    return b"".join(whole_frame(rng) for _ in range(rng.randrange(2, 30)))


def other_protocol(rng: Random) -> bytes:
    return rng.choice(
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            bytes.fromhex("16030100C8010000C40303") + rng.randbytes(200),
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            bytes.fromhex("0000001E0012000000000001000B") + rng.randbytes(20),
        )
    )


def _around(header: bytes, serialize: int, body: bytes) -> bytes:
    word = serialize << 24 | len(header) & 0xFFFFFF
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


ATTACKS: list[Callable[[Random], bytes]] = [
    whole_frame,
    random_bytes,
    cut_frame,
    huge_claim,
    mutated_frame,
    mutated_header,
    deep_json,
    wide_json,
    large_header,
    large_body,
    many_frames,
    other_protocol,
]


def any_bytes(rng: Random) -> tuple[str, bytes]:
    """The name of an attack, and its bytes."""
    attack: Any = rng.choice(ATTACKS)
    return attack.__name__, attack(rng)
