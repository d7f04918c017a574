"""Request-reply: a reply is pushed to the client that asked, and the replier hears what came of it."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import Rig, send_ext
from tests.nodes.broker.driver import START

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.broker.remoting import replies
from steelyard.nodes.seam import Closed, Received
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
SEND = RequestCode.SEND_REPLY_MESSAGE_V2
PROPERTIES = "CORRELATION_ID\x01c-7\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply\x02TTL\x013000"
V1 = dict(
    zip(
        "abcdefghijkm",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId"),
            *("sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode"),
            "batch",
        ),
        strict=True,
    )
)


def reply_ext(**more: object) -> dict[str, object]:
    return send_ext(REPLY_TOPIC, i=PROPERTIES) | more


@pytest.fixture
def asker(rig: Rig) -> int:
    link = rig.connect()
    rig.beat(link, "asker", producer="askers")
    rig.sent.clear()
    return link


def pushed(rig: Rig, link: int) -> Command:
    """The reply that a client got."""
    (push,) = [
        message
        for to, message in rig.sent
        if to == link and message.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    ]
    return push


def confirm(rig: Rig, link: int, push: Command, code: int = 0) -> None:
    rig.event(Received(link, Command(code, push.opaque, RESPONSE_FLAG)))


def test_a_reply_is_kept_with_its_properties_as_sent(rig: Rig, asker: int) -> None:
    sent = f"a\x01first\x02empty\x01\x02a\x01second\x02{PROPERTIES}"
    rig.post(rig.connect(), SEND, reply_ext(i=sent), b"the answer")
    assert props.decode_properties(pushed(rig, asker).ext["properties"])["a"] == "second"
    (view,) = rig.messages(REPLY_TOPIC)
    assert view.property_bytes.decode() == sent + "\x02"


def test_a_reply_reaches_the_client_that_asked_and_is_kept(rig: Rig, asker: int) -> None:
    replier = rig.connect()
    opaque = rig.post(replier, SEND, reply_ext(), b"the answer")
    assert rig.reply_to(replier, opaque) is None
    push = pushed(rig, asker)
    properties = props.decode_properties(push.ext["properties"])
    assert properties == {
        "CORRELATION_ID": "c-7",
        "REPLY_TO_CLIENT": "asker",
        "MSG_TYPE": "reply",
        "TTL": "3000",
        "PUSH_REPLY_TIME": str(START),
    }
    assert {name: value for name, value in push.ext.items() if name != "properties"} == {
        "producerGroup": "producers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(START - 5),
        "flag": "0",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "10.0.0.2:5000",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": str(START),
    }
    assert push.body == b"the answer"
    confirm(rig, asker, push)
    answer = rig.reply_to(replier, opaque)
    (view,) = rig.messages(REPLY_TOPIC)
    assert (view.body, view.property_of("CORRELATION_ID")) == (b"the answer", "c-7")
    assert answer is not None
    assert (answer.code, answer.ext) == (
        ResponseCode.SUCCESS,
        {
            "msgId": view.offset_message_id,
            "queueId": "0",
            "queueOffset": "0",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        },
    )


def test_the_older_header_is_understood(rig: Rig, asker: int) -> None:
    replier = rig.connect()
    ext = {V1[letter]: value for letter, value in reply_ext().items() if letter in V1}
    opaque = rig.post(replier, RequestCode.SEND_REPLY_MESSAGE, ext, b"x")
    confirm(rig, asker, pushed(rig, asker))
    answer = rig.reply_to(replier, opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_replies_need_not_be_kept() -> None:
    rig = Rig(BrokerConfig(store_replies=False))
    asker, replier = rig.connect(), rig.connect()
    rig.beat(asker, "asker", producer="askers")
    opaque = rig.post(replier, SEND, reply_ext(), b"x")
    confirm(rig, asker, pushed(rig, asker))
    answer = rig.reply_to(replier, opaque)
    assert answer is not None
    assert [answer.ext[name] for name in ("msgId", "queueId", "queueOffset")] == ["0", "0", "0"]
    assert rig.messages(REPLY_TOPIC) == []


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        (
            {"i": "A\x01b"},
            ResponseCode.SYSTEM_ERROR,
            "reply message properties[REPLY_TO_CLIENT] is null",
        ),
        (
            {"i": "REPLY_TO_CLIENT\x01stranger"},
            ResponseCode.SYSTEM_ERROR,
            "push reply message fail, channel of <stranger> not found.",
        ),
        (
            {"e": 9},
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[9] is illegal, topic {REPLY_TOPIC}",
        ),
        (
            {"b": "SCHEDULE_TOPIC_XXXX"},
            ResponseCode.NO_PERMISSION,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
    ],
)
def test_what_is_refused(
    rig: Rig, asker: int, changes: dict[str, object], code: ResponseCode, remark: str
) -> None:
    answer = rig.ask(rig.connect(), SEND, reply_ext() | changes)
    assert (answer.code, answer.remark) == (code, remark)


def test_a_body_too_large_is_refused() -> None:
    rig = Rig(BrokerConfig(store=StoreConfig(message_bytes_max=10)))
    answer = rig.ask(rig.connect(), SEND, reply_ext(), bytes(11))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_client_that_refuses_leaves_or_keeps_silent_is_an_error(rig: Rig, asker: int) -> None:
    replier = rig.connect()
    opaques = []
    for _ in range(3):
        rig.sent.clear()
        opaques.append(rig.post(replier, SEND, reply_ext(), b"x"))
        if len(opaques) == 1:
            confirm(rig, asker, pushed(rig, asker), ResponseCode.SYSTEM_ERROR)
            answers = [rig.reply_to(replier, opaques[0])]
        elif len(opaques) == 2:
            rig.advance(2_999)
            assert rig.reply_to(replier, opaques[1]) is None
            rig.advance(1)
            answers.append(rig.reply_to(replier, opaques[1]))
            confirm(rig, asker, pushed(rig, asker))  # too late
        else:
            rig.event(Closed(asker, "gone"))
            answers.append(rig.reply_to(replier, opaques[2]))
    assert [(answer.code, answer.remark) for answer in answers if answer] == [
        (ResponseCode.SYSTEM_ERROR, "push reply message to askerfail.")
    ] * 3
    assert len(rig.messages(REPLY_TOPIC)) == 3


def test_a_replier_that_is_gone_is_not_answered_nor_is_a_one_way_reply(
    rig: Rig, asker: int
) -> None:
    replier = rig.connect()
    rig.post(replier, SEND, reply_ext(), b"x")
    push = pushed(rig, asker)
    rig.event(Closed(replier, "gone"))
    rig.sent.clear()
    confirm(rig, asker, push)
    assert rig.sent == []
    other = rig.connect()
    opaque = rig.post(other, SEND, reply_ext(), b"x", oneway=True)
    confirm(rig, asker, pushed(rig, asker))
    assert rig.reply_to(other, opaque) is None


def test_there_is_a_limit(rig: Rig, asker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PUSHES_MAX", 2)
    replier = rig.connect()
    for _ in range(2):
        rig.post(replier, SEND, reply_ext(), b"x")
    assert rig.ask(replier, SEND, reply_ext()).code == ResponseCode.SYSTEM_BUSY


def test_a_full_disk_does_not_stop_a_reply(rig: Rig, asker: int) -> None:
    replier = rig.connect()
    rig.disk.room_bytes = 0
    opaque = rig.post(replier, SEND, reply_ext(), b"x")
    confirm(rig, asker, pushed(rig, asker))
    answer = rig.reply_to(replier, opaque)
    assert answer is not None
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
