"""Messages that a consumer sends back."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig
from tests.nodes.broker.driver import START, TOPIC

from steelyard.nodes.broker.remoting.schedule import SECONDS
from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import LockBatchBody, SubscriptionGroupConfig
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.message import MessageView

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"


def back(rig: Rig, link: int, view: MessageView, **more: object) -> int:
    ext: dict[str, object] = {
        "offset": view.physical_offset,
        "group": GROUP,
        "delayLevel": 0,
        "originMsgId": view.message_id,
        "originTopic": view.topic,
        "unitMode": "false",
    }
    return rig.ask(link, BACK, ext | more).code


def test_a_message_comes_back_later_and_later_until_it_is_given_up(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"body", h=5, i="UNIQ_KEY\x01U1\x02TAGS\x01red\x02K\x01v")
    (view,) = rig.messages(TOPIC)
    first_id = view.offset_message_id
    for tries in range(3):
        assert back(rig, link, view, maxReconsumeTimes=3) == 0
        rig.advance(SECONDS[2 + tries] * 1000 - 1)
        assert len(rig.messages(RETRY)) == tries
        rig.advance(1)
        view = rig.messages(RETRY)[-1]
        assert (view.body, view.flag, view.tags) == (b"body", 5, "red")
        assert view.reconsume_times == tries + 1
        assert view.properties["RETRY_TOPIC"] == TOPIC
        assert view.properties["ORIGIN_MESSAGE_ID"] == first_id
        assert view.properties["K"] == "v"
        assert view.message_id == "U1"
        assert view.born_timestamp == START - 5
    assert back(rig, link, view, maxReconsumeTimes=3) == 0
    (dead,) = rig.messages(DEAD)
    assert (dead.body, dead.reconsume_times) == (b"body", 4)


@pytest.mark.parametrize(
    ("tries", "is_locked", "is_dead"), [(2, 1, 1), (2, 0, 0), (1, 1, 0), (3, 0, 1)]
)
def test_an_ordered_consumer_gives_a_message_up(
    rig: Rig, tries: int, is_locked: int, is_dead: int
) -> None:
    """Java before 5.1.1 sends it with the number of tries before the last one."""
    link = rig.connect()
    if is_locked:
        queues = (MessageQueue(TOPIC, "broker-a", 0),)
        rig.ask(link, RequestCode.LOCK_BATCH_MQ, body=LockBatchBody(GROUP, "c", queues))
    assert rig.send(link, topic=RETRY, i="DELAY\x011", j=tries, l=2).code == 0
    rig.advance(1_000)
    assert (len(rig.messages(DEAD)), len(rig.messages(RETRY))) == (is_dead, 1 - is_dead)


def test_the_consumer_may_name_the_delay_or_give_up_at_once(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    (view,) = rig.messages(TOPIC)
    assert back(rig, link, view, delayLevel=1) == 0
    rig.advance(1_000)
    assert len(rig.messages(RETRY)) == 1
    assert back(rig, link, view, delayLevel=-1) == 0
    assert len(rig.messages(DEAD)) == 1


def test_the_groups_own_limit_counts_where_the_consumer_names_none(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link)
    (view,) = rig.messages(TOPIC)
    group = SubscriptionGroupConfig(GROUP, retry_max_times=0)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
    assert back(rig, link, view) == 0
    assert len(rig.messages(DEAD)) == 1
    never = SubscriptionGroupConfig(GROUP, retry_queue_nums=0)
    rig.ask(link, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=never)
    assert back(rig, link, view) == 0
    assert len(rig.messages(DEAD)) == 1


@pytest.mark.parametrize("changes", [{"offset": 7}, {"offset": -1}, {"group": "g g"}])
def test_what_cannot_be_found_or_named_is_refused(rig: Rig, changes: dict[str, object]) -> None:
    link = rig.connect()
    rig.send(link)
    (view,) = rig.messages(TOPIC)
    assert back(rig, link, view, **changes) == ResponseCode.SYSTEM_ERROR
