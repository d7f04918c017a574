"""12: messages by a key or the unique key, searched in steps."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import Rig, send_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.nodes.broker.remoting import queries
from steelyard.nodes.seam import Closed
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

QUERY = RequestCode.QUERY_MESSAGE
LONG_MAX = 2**63 - 1


def header(key: str, **more: object) -> dict[str, object]:
    """As mqadmin queryMsgByKey sends it."""
    ext: dict[str, object] = {
        "topic": TOPIC,
        "key": key,
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": LONG_MAX,
        "_UNIQUE_KEY_QUERY": "false",
    }
    return ext | more


def send(
    rig: Rig, link: int, body: bytes, keys: str = "", unique: str = "", queue: int = 0
) -> None:
    properties = f"KEYS\x01{keys}\x02UNIQ_KEY\x01{unique}\x02TAGS\x01t\x02"
    ext = send_ext(queue_id=queue, i=properties)
    assert rig.ask(link, RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
    rig.advance(10)


def found(answer: Command | None) -> list[bytes]:
    assert answer is not None, "no answer yet"
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        assert answer.remark == "can not find message, maybe time range not correct"
        assert not answer.body
        return []
    assert answer.code == ResponseCode.SUCCESS
    return [view.body for view in decode_records(answer.body, "broker-a")]


@pytest.fixture
def link(rig: Rig) -> int:
    link = rig.connect()
    send(rig, link, b"zero", "k1", "U0")
    send(rig, link, b"one", "k2 k1", "U1", queue=1)
    send(rig, link, b"two, body with k1", "k3", "U2")
    send(rig, link, b"three", "k1k k11", "U3", queue=2)
    send(rig, link, b"four", "k1", "U0", queue=3)
    return link


@pytest.mark.parametrize(
    ("changes", "bodies"),
    [
        ({"key": "k1"}, [b"four", b"one", b"zero"]),
        ({"key": "k2"}, [b"one"]),
        ({"key": "U2"}, [b"two, body with k1"]),
        ({"key": "U0", "_UNIQUE_KEY_QUERY": "true"}, [b"four", b"zero"]),
        ({"key": "t"}, []),
        ({"key": "k2 k1"}, []),
        ({"key": ""}, []),
        ({"key": "k1", "topic": "nowhere"}, []),
        ({"key": "k1", "beginTimestamp": START + 1}, [b"four", b"one"]),
        ({"key": "k1", "endTimestamp": START + 39}, [b"one", b"zero"]),
        ({"key": "k1", "endTimestamp": START + 40}, [b"four", b"one", b"zero"]),
        ({"key": "k1", "beginTimestamp": START + 50}, []),
        ({"key": "k1", "maxNum": 1}, [b"four"]),
        ({"key": "k1", "maxNum": 0}, [b"four"]),
    ],
)
def test_what_is_found(
    rig: Rig, link: int, changes: dict[str, object], bodies: list[bytes]
) -> None:
    assert found(rig.ask(link, QUERY, header("k1") | changes)) == bodies


def test_without_the_flag_for_unique_keys(rig: Rig, link: int) -> None:
    ext = header("U1")
    del ext["_UNIQUE_KEY_QUERY"]
    assert found(rig.ask(link, QUERY, ext)) == [b"one"]


def test_the_broker_serves_others_between_steps(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "STEP_ROWS", 2)
    link, other = rig.connect(), rig.connect()
    for number in range(7):
        send(rig, link, b"%d" % number, f"k{number % 2}", f"U{number}")
    opaques = [rig.post(link, QUERY, header(f"k{number}")) for number in range(2)]
    assert rig.reply_to(link, opaques[0]) is None
    assert rig.send(other).code == 0
    rig.advance(20)
    assert found(rig.reply_to(link, opaques[0])) == [b"6", b"4", b"2", b"0"]
    assert found(rig.reply_to(link, opaques[1])) == [b"5", b"3", b"1"]


def test_a_search_that_takes_too_long_ends_with_what_it_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "STEP_ROWS", 1)
    monkeypatch.setattr(queries, "SEARCH_MS", 2)
    link = rig.connect()
    for number in range(9):
        send(rig, link, b"%d" % number, "new" if number > 6 else "old", f"U{number}")
    some = rig.post(link, QUERY, header("new"))
    rig.advance(10)
    none = rig.post(link, QUERY, header("U0"))
    rig.advance(10)
    assert found(rig.reply_to(link, some)) == [b"8", b"7"]
    answer = rig.reply_to(link, none)
    assert answer is not None
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "the search took too long; give a smaller range of time",
    )


def test_searches_are_limited_and_end_with_their_asker(
    rig: Rig, link: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "QUERIES_MAX", 1)
    monkeypatch.setattr(queries, "STEP_ROWS", 1)
    asker = rig.connect()
    rig.post(asker, QUERY, header("k1"))
    assert rig.ask(link, QUERY, header("k1")).code == ResponseCode.SYSTEM_BUSY
    rig.event(Closed(asker, "gone"))
    opaque = rig.post(link, QUERY, header("k1"))
    rig.advance(100)
    assert found(rig.reply_to(link, opaque)) == [b"four", b"one", b"zero"]


def test_answers_are_limited_but_always_hold_a_message(
    rig: Rig, link: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "FOUND_BYTES_MAX", 1)
    assert found(rig.ask(link, QUERY, header("k1"))) == [b"four"]


def test_a_topic_deleted_meanwhile(rig: Rig, link: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "STEP_ROWS", 1)
    opaque = rig.post(link, QUERY, header("U0"))
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    rig.advance(100)
    assert found(rig.reply_to(link, opaque)) == []
