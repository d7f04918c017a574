"""Frames: any cut, unknown APIs and versions, headers of both forms."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import (
    FRAME_BYTES_MAX,
    Reply,
    ReplyDecoder,
    Request,
    RequestDecoder,
    encode,
    read_reply,
)
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from steelyard.wire.kafka.messages.groups import HEARTBEAT, HeartbeatRequest, HeartbeatResponse

BEAT = HeartbeatRequest("group", 7, "member")

REQUESTS = [
    Request(HEARTBEAT, 3, 1, "client", BEAT),
    Request(HEARTBEAT, 4, 2, None, BEAT),
    Request(API_VERSIONS, 3, 3, "", ApiVersionsRequest("me", "1.0")),
]


@given(st.lists(st.integers(1, 30), max_size=10))
def test_requests_come_out_however_they_were_cut(cuts: list[int]) -> None:
    data = b"".join(map(encode, REQUESTS))
    decoder = RequestDecoder()
    found: list[Request] = []
    for cut in cuts:
        found += decoder.feed(data[:cut])
        data = data[cut:]
    found += decoder.feed(data)
    assert found == REQUESTS


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_reply_is_read_by_who_asked(version: int) -> None:
    message = HeartbeatResponse(error_code=27)
    data = encode(Reply(HEARTBEAT, version, 99, message))
    (raw,) = ReplyDecoder().feed(data)
    assert raw.correlation_id == 99
    assert read_reply(HEARTBEAT, version, raw) == message


def test_the_reply_to_api_versions_has_the_old_header_in_every_version() -> None:
    message = ApiVersionsResponse(0, [ApiVersion(18, 0, 4)])
    for version in range(5):
        data = encode(Reply(API_VERSIONS, version, 5, message))
        assert data[4:8] == struct.pack(">i", 5)
        assert data[8:10] == b"\0\0"  # the error code: no tagged fields before it
        (raw,) = ReplyDecoder().feed(data)
        back = read_reply(API_VERSIONS, version, raw)
        assert isinstance(back, ApiVersionsResponse)
        assert list(back.api_keys) == message.api_keys


def test_api_versions_of_the_future_is_told_apart_without_reading_it() -> None:
    body = struct.pack(">hhih", 18, 99, 4, -1) + b"\xff\xff\xff"
    (request,) = RequestDecoder().feed(struct.pack(">i", len(body)) + body)
    assert (request.api, request.version, request.correlation_id) == (API_VERSIONS, 99, 4)
    assert request.message is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (struct.pack(">hhih", 999, 0, 1, -1), "API key 999 is not supported"),
        (
            struct.pack(">hhih", 12, 5, 1, -1),
            "Heartbeat version 5 is not supported; versions 0 to 4 are",
        ),
        (struct.pack(">hhih", 12, -1, 1, -1), "Heartbeat version -1"),
        (struct.pack(">hh", 12, 0), "a request of 4 bytes"),
        (
            struct.pack(">hhih", 12, 0, 1, -1),
            "HeartbeatRequest version 0: the message ends too early",
        ),
        (struct.pack(">hhih", 12, 0, 1, 500), "ends too early"),
    ],
)
def test_what_is_no_request_of_ours_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        RequestDecoder().feed(struct.pack(">i", len(body)) + body)


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_BYTES_MAX + 1])
def test_a_frame_of_a_wrong_size_is_refused_before_it_is_kept(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        RequestDecoder().feed(struct.pack(">i", size))


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    with suppress(ProtocolError):
        RequestDecoder().feed(data)


def test_every_api_has_its_key_once() -> None:
    assert [api.key for api in APIS.values()] == sorted(APIS)
    for api in APIS.values():
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"
