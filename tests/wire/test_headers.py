from __future__ import annotations

from typing import Any

import pytest

from steelyard.errors import ProtocolError
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.headers import Header

REQUESTS: dict[int, type[Header]] = {
    11: headers.PullMessageRequestHeader,
    12: headers.QueryMessageRequestHeader,
    14: headers.QueryConsumerOffsetRequestHeader,
    15: headers.UpdateConsumerOffsetRequestHeader,
    17: headers.CreateTopicRequestHeader,
    29: headers.SearchOffsetRequestHeader,
    30: headers.QueueRequestHeader,
    33: headers.ViewMessageRequestHeader,
    35: headers.UnregisterClientRequestHeader,
    37: headers.EndTransactionRequestHeader,
    38: headers.ConsumerGroupHeader,
    39: headers.CheckTransactionStateRequestHeader,
    40: headers.ConsumerGroupHeader,
    100: headers.KVConfigHeader,
    103: headers.RegisterBrokerRequestHeader,
    105: headers.GetRouteInfoRequestHeader,
    202: headers.TopicRequestHeader,
    203: headers.ConsumerGroupHeader,
    204: headers.ProducerGroupHeader,
    208: headers.ConsumeStatsRequestHeader,
    215: headers.TopicRequestHeader,
    216: headers.DeleteTopicFromNamesrvRequestHeader,
    220: headers.ResetOffsetRequestHeader,
    222: headers.ResetOffsetRequestHeader,
    300: headers.TopicRequestHeader,
    307: headers.ConsumerRunningInfoRequestHeader,
    310: headers.SendMessageRequestHeaderV2,
    315: headers.ViewBrokerStatsDataRequestHeader,
    322: headers.BrokerIdentityHeader,
}
RESPONSES: dict[int, type[Header]] = {
    11: headers.PullMessageResponseHeader,
    12: headers.QueryMessageResponseHeader,
    14: headers.OffsetResponseHeader,
    30: headers.OffsetResponseHeader,
    310: headers.SendMessageResponseHeader,
}


def test_captured_headers_are_read_and_written(captures: list[Any]) -> None:
    """What we write of a captured header has the captured values, and no key that Java did not send."""
    met: set[int] = set()
    for frame in captures:
        kinds = RESPONSES if frame.kind == "RESP" else REQUESTS
        kind = kinds.get(frame.request)
        if kind is None or (frame.kind == "RESP" and not frame.ext):
            continue
        typed = headers.read(kind, frame.ext)
        written = headers.write(typed)
        assert headers.read(kind, written) == typed
        for name in written.keys() & frame.ext.keys():
            assert written[name] == frame.ext[name]
        met.add(frame.request)
    assert met >= {11, 12, 14, 15, 17, 33, 35, 37, 38, 39, 103, 105, 208, 220, 222, 310, 315}


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        ({}, "topic"),
        ({"topic": "t", "queueId": "x"}, r"\$.queueId"),
        ({"topic": "t", "queueId": "2147483648"}, r"\$.queueId"),
        ({"topic": "t", "queueId": ""}, r"\$.queueId"),
    ],
)
def test_read_names_the_key_that_is_wrong(ext: dict[str, str], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        headers.read(headers.QueueRequestHeader, ext)


def test_write_leaves_none_out_and_writes_booleans_as_java() -> None:
    header = headers.QueryConsumerOffsetRequestHeader(
        consumer_group="g", topic="t", queue_id=1, set_zero_if_not_found=False
    )
    assert headers.write(header) == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "1",
        "setZeroIfNotFound": "false",
    }
