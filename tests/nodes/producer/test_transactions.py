"""Transactions of a producer, through the seam."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.nodes.consumer.remoting.conftest import START, Broker, record, reply
from tests.nodes.producer.test_producer import Bench, silent

from steelyard.errors import BrokerError, MessageError, ProtocolError
from steelyard.nodes.producer import EndTransaction, Half, SendHalf, Stop, TransactionCheck
from steelyard.nodes.seam import Closed, Handled
from steelyard.types import Message, MessageQueue, SendStatus, TransactionState
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import decode_properties, encode_properties

HALF_ID = "7F00000100009C62000000000004CBD6"
"""The broker's word for a half message in trans.jsonl: 127.0.0.1:40034, position 314326."""

STATES = [
    (TransactionState.COMMIT, "8"),
    (TransactionState.ROLLBACK, "12"),
    (TransactionState.UNKNOWN, "0"),
]


def bench(**settings: object) -> Bench:
    made = Bench(checks=True, **settings)
    stored = reply(msgId=HALF_ID, queueId=2, queueOffset=7)
    made.a.script[310] = made.b.script[310] = lambda command: stored
    return made


def half_of(made: Bench, message: Message | None = None) -> Half:
    half = made.rig.answers[made.rig.ask(SendHalf(message or Message("T", b"0")))]
    assert isinstance(half, Half)
    return half


def broker_of(made: Bench, half: Half) -> Broker:
    return made.a if half.result.queue.broker_name == "a" else made.b


def test_a_half_message_is_sent_like_any_other() -> None:
    made = bench()
    half = half_of(made, Message("T", b"0", delay_level=3))
    assert (half.result.status, half.result.queue_offset) == (SendStatus.SEND_OK, 7)
    assert half.transaction_id is None
    (command,) = made.rig.to(broker_of(made, half), 310)
    assert command.ext["f"] == "4"
    properties = decode_properties(command.ext["i"])
    identity = half.result.message_id
    assert properties == {
        "UNIQ_KEY": identity,
        "WAIT": "true",
        "TRAN_MSG": "true",
        "PGROUP": "pg",
    }


def test_a_half_message_is_tried_on_another_broker() -> None:
    made = bench()
    made.a.script[310] = made.b.script[310] = lambda command: reply(14, "no")
    assert isinstance(made.error(made.rig.ask(SendHalf(Message("T", b"0")))), BrokerError)
    assert len(made.sent()) == 3
    assert isinstance(made.error(made.rig.ask(SendHalf(Message("T", b"")))), MessageError)


@pytest.mark.parametrize(("state", "written"), STATES)
def test_the_end_goes_one_way_to_the_broker_that_has_it(
    state: TransactionState, written: str
) -> None:
    """37 of the capture trans.jsonl; 5.x has the topic, too."""
    made = bench()
    half = half_of(made)
    call = made.rig.ask(EndTransaction(half, state, "a remark"))
    assert made.rig.answers[call] is None
    (command,) = made.rig.to(broker_of(made, half), 37)
    assert (command.flag, command.remark) == (ONEWAY_FLAG, "a remark")
    assert command.ext == {
        "topic": "T",
        "producerGroup": "pg",
        "tranStateTableOffset": "7",
        "commitLogOffset": "314326",
        "commitOrRollback": written,
        "fromTransactionCheck": "false",
        "msgId": half.result.message_id,
        "bname": half.result.queue.broker_name,
    }


def test_the_brokers_own_transaction_id_is_given_back() -> None:
    """Brokers of 5.x send one."""
    made = bench()
    stored = reply(msgId=HALF_ID, queueId=2, queueOffset=7, transactionId="t-1")
    made.a.script[310] = made.b.script[310] = lambda command: stored
    half = half_of(made)
    assert half.transaction_id == "t-1"
    made.rig.ask(EndTransaction(half, TransactionState.COMMIT))
    (command,) = made.rig.to(broker_of(made, half), 37)
    assert command.ext["transactionId"] == "t-1"


def test_a_broker_that_left_the_routes_is_told_at_the_address_of_the_message_id() -> None:
    made = bench()
    half = half_of(made)
    other = made.b if broker_of(made, half) is made.a else made.a
    made.ns.add("T", other)
    made.rig.advance(30_000)
    there = Broker("gone", "127.0.0.1:40034")
    made.rig.peers[there.address] = there
    made.rig.ask(EndTransaction(half, TransactionState.COMMIT))
    assert len(made.rig.to(there, 37)) == 1


def test_a_half_message_without_a_place() -> None:
    made = bench()
    made.a.script[310] = made.b.script[310] = lambda c: reply(msgId="0A", queueId=2, queueOffset=7)
    half = half_of(made)
    error = made.error(made.rig.ask(EndTransaction(half, TransactionState.COMMIT)))
    assert isinstance(error, ProtocolError)


# -- questions of brokers --------------------------------------------------------------------------


def question(group: str = "pg", **ext: str) -> Command:
    """39 of the capture, one-way."""
    properties = {"UNIQ_KEY": "C000", "TRAN_MSG": "true", "PGROUP": group}
    header = {
        "commitLogOffset": "341907",
        "msgId": "C000",
        "tranStateTableOffset": "63",
        "offsetMsgId": HALF_ID,
        "transactionId": "C000",
    }
    body = record("T", 5, 63, properties=encode_properties(properties).encode(), body=b"half")
    return Command(39, 17400, ONEWAY_FLAG, header | ext, body)


@pytest.mark.parametrize(("state", "written"), STATES)
def test_a_broker_asks_and_the_programs_word_goes_back(
    state: TransactionState, written: str
) -> None:
    made = bench()
    made.send()
    made.rig.push(made.a, question())
    (hand,) = made.rig.hands
    check = hand.batch
    assert isinstance(check, TransactionCheck)
    assert check.message.message_id == "C000"
    assert (check.message.body, check.message.queue) == (b"half", MessageQueue("T", "a", 5))
    assert made.rig.to(made.a, 37) == []
    made.rig.put(Handled(hand.ticket, state))
    (command,) = made.rig.to(made.a, 37)
    assert command.flag == ONEWAY_FLAG
    assert command.ext == {
        "producerGroup": "pg",
        "tranStateTableOffset": "63",
        "commitLogOffset": "341907",
        "commitOrRollback": written,
        "fromTransactionCheck": "true",
        "msgId": "C000",
        "transactionId": "C000",
    }


def test_a_question_of_5x_gets_its_topic_and_broker_back() -> None:
    made = bench()
    made.send()
    made.rig.push(made.a, question(topic="T", bname="a-5"))
    (hand,) = made.rig.hands
    assert isinstance(hand.batch, TransactionCheck)
    assert hand.batch.message.broker_name == "a-5"
    made.rig.put(Handled(hand.ticket, TransactionState.COMMIT))
    (command,) = made.rig.to(made.a, 37)
    assert (command.ext["topic"], command.ext["bname"]) == ("T", "a-5")


def test_the_word_reaches_a_broker_whose_link_broke_meanwhile() -> None:
    made = bench()
    made.send()
    link = made.rig.link_to(made.a)
    made.rig.push(made.a, question())
    del made.rig.links[link]
    made.rig.put(Closed(link, "reset by peer"))
    made.rig.put(Handled(made.rig.hands[0].ticket, TransactionState.COMMIT))
    assert len(made.rig.to(made.a, 37)) == 1


@pytest.mark.parametrize(
    ("change", "settings", "words"),
    [
        (lambda c: question(group="other"), {}, "of group other"),
        (lambda c: question(), {"checks": False}, "no transaction_check"),
        (lambda c: Command(39, 1, ONEWAY_FLAG, c.ext, b"x" * 99), {}, "cannot be read"),
        (lambda c: Command(39, 1, ONEWAY_FLAG, c.ext, b""), {}, "cannot be read"),
        (lambda c: Command(39, 1, ONEWAY_FLAG, {}, c.body), {}, "commitLogOffset|tranState"),
    ],
)
def test_questions_that_come_to_nothing(
    change: Callable[[Command], Command], settings: dict[str, bool], words: str
) -> None:
    made = Bench(**({"checks": True} | settings))
    made.send()
    made.rig.push(made.a, change(question()))
    assert made.rig.hands == []
    (tell,) = made.rig.tells
    assert tell.level == "WARNING"
    assert any(word in tell.text for word in words.split("|"))


def test_more_questions_than_the_program_can_take_are_left_to_be_asked_again() -> None:
    made = bench(checks_max=2)
    made.send()
    for _ in range(3):
        made.rig.push(made.a, question())
    assert len(made.rig.hands) == 2
    made.rig.put(Handled(made.rig.hands[0].ticket, TransactionState.UNKNOWN))
    made.rig.push(made.a, question())
    assert len(made.rig.hands) == 3


def test_stop_does_not_wait_for_the_programs_word() -> None:
    made = bench()
    made.send()
    made.rig.push(made.a, question())
    made.a.script[35] = silent
    stop = made.rig.ask(Stop())
    made.rig.put(Handled(made.rig.hands[0].ticket, TransactionState.COMMIT))
    assert len(made.rig.to(made.a, 37)) == 1
    made.rig.advance(3_000)
    assert made.rig.answers[stop] is None


def test_a_view_of_a_half_message_is_complete() -> None:
    made = bench()
    made.send()
    made.rig.push(made.a, question())
    check = made.rig.hands[0].batch
    assert isinstance(check, TransactionCheck)
    view: MessageView = check.message
    assert (view.queue_offset, view.born_timestamp) == (63, START)
