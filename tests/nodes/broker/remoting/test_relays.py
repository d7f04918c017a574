"""Questions passed on to clients: 307, 309, 223."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import TOPIC

from steelyard.nodes.broker.remoting import relays
from steelyard.nodes.seam import Closed, Received
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ConsumerStatusBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command
from steelyard.wire.remoting.message import decode_records

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
ASKED_FOR_STATUS = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
WHO = {"consumerGroup": GROUP, "clientId": "c"}
IN_TOPIC = {"topic": TOPIC, "group": GROUP}
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def got(rig: Rig, link: int, code: int) -> list[Command]:
    """Questions of a code that reached a client."""
    return [m for to, m in rig.sent if (to, m.code, m.flag & RESPONSE_FLAG) == (link, code, 0)]


def relay(
    rig: Rig, code: int = INFO, ext: Mapping[str, object] = WHO
) -> tuple[int, int, int, Command]:
    """Asker and client connected, the question on its way: links, the asker's opaque, what the client got."""
    asker, client = rig.connect(), rig.connect()
    rig.beat(client, "c", TOPIC)
    opaque = rig.post(asker, code, ext)
    (passed,) = got(rig, client, code)
    return asker, client, opaque, passed


def test_a_question_to_a_client_is_passed_on_and_its_answer_back(rig: Rig) -> None:
    asker, client, opaque, passed = relay(rig)
    assert passed.ext == WHO
    assert rig.reply_to(asker, opaque) is None
    rig.event(Received(client, Command(0, passed.opaque, RESPONSE_FLAG, body=b"info")))
    assert rig.reply_to(asker, opaque) == Command(0, opaque, RESPONSE_FLAG, body=b"info")
    rig.event(Received(client, Command(0, passed.opaque, RESPONSE_FLAG, body=b"again")))


def test_a_client_that_is_not_here_leaves_or_keeps_silent(rig: Rig) -> None:
    not_online = (ResponseCode.SYSTEM_ERROR, f"The Consumer <{GROUP}> <c> not online")
    answer = rig.ask(rig.connect(), INFO, WHO)
    assert (answer.code, answer.remark) == not_online
    asker, client, opaque, _ = relay(rig)
    rig.event(Closed(client, "gone"))
    found = rig.reply_to(asker, opaque)
    assert found is not None
    assert (found.code, found.remark) == not_online
    asker, client, opaque, passed = relay(rig)
    rig.event(Closed(asker, "gone"))
    rig.event(Received(client, Command(0, passed.opaque, RESPONSE_FLAG)))
    assert rig.reply_to(asker, opaque) is None
    asker, client, opaque, _ = relay(rig)
    rig.advance(relays.RELAY_TIMEOUT_MS)
    found = rig.reply_to(asker, opaque)
    assert found is not None
    assert found.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert found.remark == f"consumer <{GROUP}> <c> Timeout: no answer within 10000 ms"


def test_answers_nobody_asked_for_are_ignored(rig: Rig) -> None:
    assert rig.event(Received(rig.connect(), Command(0, 99, RESPONSE_FLAG))) == []


def test_questions_under_way_are_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "RELAYS_MAX", 1)
    relay(rig)
    asker = rig.connect()
    assert rig.ask(asker, INFO, WHO).code == ResponseCode.SYSTEM_BUSY
    assert rig.ask(asker, STATUS, IN_TOPIC).code == ResponseCode.SYSTEM_BUSY


def test_a_client_consumes_the_message_that_the_broker_adds(rig: Rig) -> None:
    message_id = rig.send(rig.connect(), b"again").ext["msgId"]
    ext = WHO | {"msgId": message_id}
    asker, client, opaque, passed = relay(rig, DIRECTLY, ext)
    assert passed.ext == ext | {"brokerName": "broker-a"}
    (message,) = decode_records(passed.body, "broker-a")
    assert [message] == rig.messages(TOPIC)
    rig.event(Received(client, Command(0, passed.opaque, RESPONSE_FLAG, body=b"result")))
    assert rig.reply_to(asker, opaque) == Command(0, opaque, RESPONSE_FLAG, body=b"result")


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"msgId": "7F00000100002A9F0000000000000001"}, "can not find message by the offset, 1"),
        ({"msgId": "7F00000100002A9FFFFFFFFFFFFFFFFF"}, "can not find message by the offset, -1"),
        (
            {"msgId": "no id"},
            "'no id' is not an offset message id; expected 32 or 56 hex digits",
        ),
        ({"clientId": "other"}, f"The Consumer <{GROUP}> <other> not online"),
    ],
)
def test_direct_consumption_that_cannot_be(
    rig: Rig, changes: dict[str, object], remark: str
) -> None:
    link = rig.connect()
    rig.beat(link, "c", TOPIC)
    ext = WHO | {"msgId": rig.send(link).ext["msgId"]} | changes
    answer = rig.ask(link, DIRECTLY, ext)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


# -- where the members of a group are ----------------------------------------------------------------


def gathered(rig: Rig, asker: int, opaque: int) -> dict[str, dict[MessageQueue, int]] | None:
    answer = rig.reply_to(asker, opaque)
    return None if answer is None else fastjson.read(ConsumerStatusBody, answer.body).consumer_table


def status(rig: Rig, client: int, offset: int) -> None:
    """A member answers the last question that it got."""
    body = fastjson.write(ConsumerStatusBody({QUEUE: offset}))
    question = got(rig, client, ASKED_FOR_STATUS)[-1]
    assert question.ext == IN_TOPIC
    rig.event(Received(client, Command(0, question.opaque, RESPONSE_FLAG, body=body)))


def test_offsets_of_all_members_are_gathered(rig: Rig) -> None:
    asker, one, two = rig.connect(), rig.connect(), rig.connect()
    nobody = rig.ask(asker, STATUS, IN_TOPIC)
    assert (nobody.code, nobody.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"No Any Consumer online in the consumer group: [{GROUP}]",
    )
    rig.beat(one, "c1", TOPIC)
    rig.beat(two, "c2", TOPIC)
    opaque = rig.post(asker, STATUS, IN_TOPIC)
    status(rig, one, 3)
    assert gathered(rig, asker, opaque) is None
    status(rig, two, 5)
    assert gathered(rig, asker, opaque) == {"c1": {QUEUE: 3}, "c2": {QUEUE: 5}}


def test_a_member_that_keeps_silent_leaves_or_answers_nonsense_is_left_out(rig: Rig) -> None:
    asker, good, silent, leaving, mad, old = (rig.connect() for _ in range(6))
    for number, link in enumerate((good, silent, leaving, mad, old)):
        rig.beat(link, f"c{number}", TOPIC)
    opaque = rig.post(asker, STATUS, IN_TOPIC)
    status(rig, good, 1)
    rig.event(Closed(leaving, "gone"))
    (question,) = got(rig, mad, ASKED_FOR_STATUS)
    rig.event(Received(mad, Command(0, question.opaque, RESPONSE_FLAG, body=b"{")))
    (question,) = got(rig, old, ASKED_FOR_STATUS)
    rig.event(Received(old, Command(3, question.opaque, RESPONSE_FLAG, remark="what?")))
    assert gathered(rig, asker, opaque) is None
    rig.advance(relays.GATHER_TIMEOUT_MS)
    assert gathered(rig, asker, opaque) == {"c0": {QUEUE: 1}}


def test_one_member_may_be_asked_alone(rig: Rig) -> None:
    asker, one, two = rig.connect(), rig.connect(), rig.connect()
    rig.beat(one, "c1", TOPIC)
    rig.beat(two, "c2", TOPIC)
    opaque = rig.post(asker, STATUS, IN_TOPIC | {"clientAddr": "c2"})
    status(rig, two, 5)
    assert gathered(rig, asker, opaque) == {"c2": {QUEUE: 5}}
    assert got(rig, one, ASKED_FOR_STATUS) == []
