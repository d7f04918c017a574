"""With flush=sync nobody reads what the disk does not have."""

from tests.nodes.broker.conftest import GROUP, Rig, pull_ext, send_ext
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig
from steelyard.wire.remoting.codes import RequestCode, ResponseCode

PULL = RequestCode.PULL_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2


def slow_disk() -> tuple[Rig, int]:
    rig = Rig(BrokerConfig(flush="sync"))
    link = rig.connect()
    rig.beat(link, "c1", TOPIC)
    rig.send(link, b"0")
    rig.disk_answers = False
    return rig, link


def test_a_held_pull_is_answered_when_the_disk_has_the_message() -> None:
    rig, link = slow_disk()
    pull = rig.post(link, PULL, pull_ext(1))
    rig.post(link, SEND, send_ext(), b"1")
    assert rig.reply_to(link, pull) is None
    rig.answer_flushes()
    answer = rig.reply_to(link, pull)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.SUCCESS, "2")


def test_a_pull_gets_what_is_on_the_disk_and_not_more() -> None:
    rig, link = slow_disk()
    for body in (b"1", b"2"):
        rig.post(link, SEND, send_ext(), body)
    answer = rig.ask(link, PULL, pull_ext(0))
    assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("1", "1")
    rig.answer_flushes()  # of the first message; the flush for the second begins
    answer = rig.ask(link, PULL, pull_ext(0))
    assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("2", "2")
    rig.answer_flushes()
    assert rig.ask(link, PULL, pull_ext(0)).ext["nextBeginOffset"] == "3"


def test_where_a_new_group_starts_is_on_the_disk() -> None:
    rig, link = slow_disk()
    rig.post(link, SEND, send_ext(), b"1")
    ext = {"topic": TOPIC, "queueId": 0}
    assert rig.ask(link, RequestCode.GET_MAX_OFFSET, ext).ext["offset"] == "1"
    rig.answer_flushes()
    assert rig.ask(link, RequestCode.GET_MAX_OFFSET, ext).ext["offset"] == "2"


def test_what_no_reply_waits_for_is_brought_to_the_disk_as_well() -> None:
    rig, link = slow_disk()
    pull = rig.post(link, PULL, pull_ext(1))
    rig.post(link, SEND, send_ext(), b"1", oneway=True)
    assert len(rig.flushes) == 1
    rig.answer_flushes()
    assert rig.reply_to(link, pull) is not None
    assert GROUP in {record.group for record in rig.ledger() if hasattr(record, "group")}
