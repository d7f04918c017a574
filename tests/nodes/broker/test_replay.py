"""What a Java client of 4.9.8 said to an Apache broker, said to ours: the same answers, frame by frame."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.nodes.broker.conftest import Rig

from steelyard.config import BrokerConfig
from steelyard.nodes.seam import Received
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.message import decode_records

CAPTURE = Path(__file__).parents[2] / "golden" / "rocketmq-4.9.8-smoke.jsonl"

FROM_CLIENTS = frozenset((11, 14, 15, 17, 34, 35, 38, 200, 202, 310))
"""Requests in the capture; 40 goes the other way."""


class Frame(msgspec.Struct, frozen=True):
    ms: int
    link: int
    kind: str
    code: int
    opaque: int
    ext: dict[str, str]
    request: int = 0
    remark: str = ""
    body: str = ""

    @property
    def body_bytes(self) -> bytes:
        is_hex = not self.body.startswith("{") and self.body != ""
        return bytes.fromhex(self.body) if is_hex else self.body.encode()


def frames() -> list[Frame]:
    decode = msgspec.json.Decoder(Frame).decode
    return [decode(line) for line in CAPTURE.read_bytes().splitlines()]


def essence(code: int, ext: dict[str, str], request: int, body: bytes) -> object:
    """What must be equal: all but addresses in the log, times and hosts."""
    ext = {name: value for name, value in ext.items() if name != "msgId"}
    if request == 11:
        views = decode_records(body)
        return code, ext, [(v.queue_offset, v.body, dict(v.properties), v.flag) for v in views]
    return code, ext, fastjson.loads(body) if body else None


def test_the_same_answers_to_the_same_requests() -> None:
    rig = Rig(BrokerConfig(name="TestBrokerName_0", address="127.0.0.1:40034"))
    captured = frames()
    start = captured[0].ms
    for number in range(1, max(frame.link for frame in captured) + 1):
        assert rig.connect() == number
    rig.sent.clear()
    began = rig.now
    for frame in captured:
        rig.advance(began + frame.ms - start - rig.now)
        if frame.code in FROM_CLIENTS and frame.kind != "RESP":
            flag = ONEWAY_FLAG if frame.kind == "ONEWAY" else 0
            request = Command(
                frame.code, frame.opaque, flag, frame.ext, frame.body_bytes, language="JAVA"
            )
            rig.event(Received(frame.link, request))
    wanted = {
        (f.link, f.opaque): essence(f.code, f.ext, f.request, f.body_bytes)
        for f in captured
        if f.kind == "RESP"
    }
    requests = {(f.link, f.opaque): f.code for f in captured if f.kind == "REQ"}
    found = {
        (link, m.opaque): essence(m.code, dict(m.ext), requests[link, m.opaque], m.body)
        for link, m in rig.sent
        if m.code != 40
    }
    assert found == wanted
    assert len(wanted) > 20


def test_the_same_notifications_to_the_same_clients() -> None:
    rig = Rig(BrokerConfig(name="TestBrokerName_0"))
    captured = frames()
    for _ in range(max(frame.link for frame in captured)):
        rig.connect()
    for frame in captured:
        if frame.code == 34 and frame.kind == "REQ":
            request = Command(34, frame.opaque, 0, {}, frame.body_bytes)
            rig.event(Received(frame.link, request))
    told = [(f.link, f.ext["consumerGroup"]) for f in captured if f.code == 40]
    assert rig.notified() == told
