"""Committed offsets and the reach of queues."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import START, TOPIC

from steelyard.nodes.broker.remoting import offsets
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.ids import parse_offset_message_id

QUERY, COMMIT = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
QUEUE = {"topic": TOPIC, "queueId": 0}
OF_GROUP = QUEUE | {"consumerGroup": GROUP}


def test_a_committed_offset_is_remembered_moves_both_ways_and_survives_a_restart(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    for offset in (5, 9, 3):
        assert rig.ask(link, COMMIT, OF_GROUP | {"commitOffset": offset}).code == 0
        assert rig.ask(link, QUERY, OF_GROUP).ext == {"offset": str(offset)}
    rig.restart()
    link = rig.connect()
    assert rig.ask(link, QUERY, OF_GROUP).ext == {"offset": "3"}
    assert rig.ask(link, QUERY, OF_GROUP | {"consumerGroup": "other"}).ext == {"offset": "0"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": -1}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a@b"}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": ""}, ResponseCode.SYSTEM_ERROR),
        ({"commitOffset": 2**63}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_bad_commits_are_refused(rig: Rig, changes: dict[str, object], code: ResponseCode) -> None:
    link = rig.connect()
    rig.send(link)
    assert rig.ask(link, COMMIT, OF_GROUP | {"commitOffset": 1} | changes).code == code


def test_a_group_new_to_a_young_queue_starts_at_its_beginning(rig: Rig) -> None:
    link = rig.connect()
    assert rig.ask(link, QUERY, OF_GROUP).code == ResponseCode.QUERY_NOT_FOUND
    rig.send(link)
    assert rig.ask(link, QUERY, OF_GROUP).ext == {"offset": "0"}
    assert rig.ask(link, QUERY, OF_GROUP | {"queueId": 1}).ext == {"offset": "0"}
    for text, code in (("true", 0), ("false", ResponseCode.QUERY_NOT_FOUND)):
        assert rig.ask(link, QUERY, OF_GROUP | {"setZeroIfNotFound": text}).code == code


def test_a_group_new_to_an_old_queue_chooses_for_itself(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "YOUNG_LOG_BYTES", 500)
    link = rig.connect()
    for _ in range(10):
        rig.send(link)
    assert rig.ask(link, QUERY, OF_GROUP).code == ResponseCode.QUERY_NOT_FOUND


def test_there_is_a_limit_to_committed_offsets(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "OFFSETS_MAX", 2)
    link = rig.connect()
    rig.send(link)
    codes = [
        rig.ask(link, COMMIT, OF_GROUP | {"queueId": queue_id, "commitOffset": 1}).code
        for queue_id in (0, 1, 2, 1)
    ]
    assert codes == [0, 0, ResponseCode.SYSTEM_ERROR, 0]


def test_how_far_a_queue_reaches(rig: Rig) -> None:
    link = rig.connect()
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        assert rig.ask(link, code, QUEUE).ext == {"offset": "0"}
    earliest = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert rig.ask(link, earliest, QUEUE).ext == {"timestamp": "-1"}
    for _ in range(3):
        rig.send(link)
        rig.advance(1_000)
    assert rig.ask(link, RequestCode.GET_MAX_OFFSET, QUEUE).ext == {"offset": "3"}
    assert rig.ask(link, RequestCode.GET_MIN_OFFSET, QUEUE).ext == {"offset": "0"}
    assert rig.ask(link, earliest, QUEUE).ext == {"timestamp": str(START)}
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    for at, offset in ((START - 1, 0), (START + 1, 1), (START + 1_000, 1), (START + 9_000, 3)):
        assert rig.ask(link, search, QUEUE | {"timestamp": at}).ext == {"offset": str(offset)}
    upper = QUEUE | {"timestamp": START + 1_500, "boundaryType": "upper"}
    assert rig.ask(link, search, upper).ext == {"offset": "1"}
    empty = QUEUE | {"queueId": 1, "timestamp": 0}
    assert rig.ask(link, search, empty).ext == {"offset": "0"}


def test_a_message_is_found_by_its_id(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"first")
    _, address = parse_offset_message_id(rig.send(link, b"second").ext["msgId"])
    view = RequestCode.VIEW_MESSAGE_BY_ID
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    assert rig.ask(link, view, {"offset": address}).body == log.entry_at(1)
    for wrong in (address + 1, -1, 2**62, 0):
        assert rig.ask(link, view, {"offset": wrong}).code == ResponseCode.SYSTEM_ERROR
