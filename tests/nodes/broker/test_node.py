"""The broker as a whole: whatever peers send it answers and stands; a kill loses nothing acknowledged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext, send_ext
from tests.nodes.broker.driver import TOPIC

from steelyard.nodes.seam import Closed, Opened, Received
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from steelyard.wire.remoting.message import BatchEntry, encode_batch

SERVED = sorted(
    int(code)
    for code in RequestCode
    if code
    not in (
        RequestCode.QUERY_MESSAGE,
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    )
)
LATER = (
    RequestCode.PULL_MESSAGE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
"""What may wait for messages, or for a client."""
NAMES = (
    *"abcdefghijklmn",
    *("topic", "queueId", "consumerGroup", "producerGroup", "commitOffset", "queueOffset"),
    *("maxMsgNums", "sysFlag", "suspendTimeoutMillis", "subVersion", "subscription", "clientID"),
    *("timestamp", "offset", "group", "delayLevel", "groupName", "cleanOffset", "perm"),
    *("defaultTopic", "readQueueNums", "writeQueueNums", "topicFilterType", "clientId"),
)
VALUES = st.one_of(
    st.sampled_from((TOPIC, GROUP, "TBW102", "TAG", "true", "*", "SCHEDULE_TOPIC_XXXX")),
    st.integers(-(2**64), 2**64).map(str),
    st.integers(-1, 8).map(str),
    st.text(max_size=8),
)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        (
            b"{}",
            b'{"clientID":"c","consumerDataSet":[{"groupName":"group-a"}]}',
            b'{"consumerGroup":"group-a","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":1}]}',
            b'{"subscriptionData":{"topic":"t","subString":"a >","expressionType":"SQL92"}}',
            b'{"groupName":"group-a","retryQueueNums":-5,"retryMaxTimes":99999999999}',
            encode_batch([BatchEntry(1, b"x", b"TAGS\x01a")]),
        )
    ),
)
FLAGS = st.sampled_from((0, 0, 0, ONEWAY_FLAG, RESPONSE_FLAG, 7))
ANYTHING = st.builds(
    Command,
    st.one_of(st.sampled_from(SERVED), st.integers(-(2**31), 2**31 - 1)),
    flag=FLAGS,
    ext=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=14),
    body=BODIES,
)
PROPER: tuple[tuple[int, dict[str, object]], ...] = (
    (RequestCode.SEND_MESSAGE_V2, send_ext()),
    (RequestCode.SEND_BATCH_MESSAGE, send_ext(m="true")),
    (RequestCode.PULL_MESSAGE, pull_ext()),
    (RequestCode.PULL_MESSAGE, pull_ext(1, sysFlag=7, subscription="a || b")),
    (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": GROUP, "delayLevel": 0}),
    (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}),
    (RequestCode.SEND_MESSAGE_V2, send_ext(i="TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x0101")),
    (
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "p",
            "tranStateTableOffset": 0,
            "commitLogOffset": 1 << 40,
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "01",
        },
    ),
    (
        RequestCode.PULL_MESSAGE,
        pull_ext(0, sysFlag=6, expressionType="SQL92", subscription="a > 1 or UNIQ_KEY = '01'"),
    ),
    (RequestCode.SEND_REPLY_MESSAGE_V2, send_ext(i="REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x017")),
)


@st.composite
def spoiled(draw: st.DrawFn) -> Command:
    """A proper request, some of its fields replaced or gone."""
    code, proper = draw(st.sampled_from(PROPER))
    ext = {name: str(value) for name, value in proper.items()}
    for name in draw(st.lists(st.sampled_from(sorted(ext)), max_size=2)):
        if draw(st.booleans()):
            ext.pop(name, None)
        else:
            ext[name] = draw(VALUES)
    return Command(int(code), flag=draw(FLAGS), ext=ext, body=draw(BODIES))


REQUESTS = st.one_of(ANYTHING, spoiled())


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 3), REQUESTS), max_size=12))
def test_whatever_peers_send_the_broker_stands_and_answers_each_request_once(
    requests: list[tuple[int, Command]],
) -> None:
    rig = Rig()
    for _ in range(3):
        rig.connect()
    rig.send(1)
    rig.beat(1, "c", TOPIC, producer="p")
    for number, (link, request) in enumerate(requests):
        rig.sent.clear()
        request = replace(request, opaque=1_000 + number)
        rig.event(Received(link, request))
        answers = [m for to, m in rig.sent if to == link and m.opaque == request.opaque]
        answers = [m for m in answers if m.flag & RESPONSE_FLAG]
        if request.flag:
            assert not answers
        elif request.code not in LATER:
            assert len(answers) == 1, request
        rig.advance(100 * number)
    rig.advance(40_000)
    rig.sent.clear()
    assert rig.send(2, topic="untouched").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", SERVED)
def test_every_code_served_answers_an_empty_request(rig: Rig, code: int) -> None:
    answer = rig.ask(rig.connect(), code)
    assert answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.code == ResponseCode.SUCCESS or answer.remark


def test_an_unknown_code_is_not_supported(rig: Rig) -> None:
    answer = rig.ask(rig.connect(), 200050)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 200050 not supported"


def test_requests_of_a_dead_link_are_ignored(rig: Rig) -> None:
    link = rig.connect()
    rig.event(Closed(link, "gone"))
    request = Command(310, 1, 0, {k: str(v) for k, v in send_ext().items()})
    assert rig.event(Received(link, request)) == []


def test_peers_with_a_name_for_an_address_are_served(rig: Rig) -> None:
    rig.event(Opened(50, "client-1"))
    assert rig.send(50).code == ResponseCode.SUCCESS
    (view,) = rig.messages(TOPIC)
    assert view.born_host == "0.0.0.0:0"


def test_a_kill_loses_nothing_that_was_acknowledged(rig: Rig) -> None:
    link = rig.connect()
    for number in range(50):
        assert rig.send(link, b"%d" % number, queue_id=number % 4).code == 0
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 9}
    rig.ask(link, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    rig.restart()  # without closing the store
    link = rig.connect()
    found = [int(view.body) for queue in range(4) for view in rig.messages(TOPIC, queue)]
    assert sorted(found) == list(range(50))
    query = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert rig.ask(link, RequestCode.QUERY_CONSUMER_OFFSET, query).ext == {"offset": "9"}
    assert rig.send(link, b"50").ext["queueOffset"] == "13"


def test_the_same_events_give_the_same_effects() -> None:
    """No order of a set, no hash, no address of an object gets into what the broker does."""

    def story() -> list[tuple[int, Command]]:
        rig = Rig()
        links = [rig.connect() for _ in range(4)]
        for link in links:
            rig.beat(link, f"c{link}", TOPIC, "TopicB")
            rig.post(link, RequestCode.PULL_MESSAGE, pull_ext(sysFlag=6))
        for link in links:
            rig.send(link, queue_id=-1)
        rig.event(Closed(links[1], "gone"))
        rig.advance(200_000)
        return rig.sent

    assert story() == story()


def test_a_heartbeat_of_many_topics_and_groups_is_taken_whole(rig: Rig) -> None:
    link = rig.connect()
    topics = tuple(SubscriptionData(f"t{n}", sub_version=1) for n in range(100))
    groups = tuple(ConsumerData(f"g{n}", subscription_data_set=topics) for n in range(50))
    body = fastjson.write(HeartbeatData("c", consumer_data_set=groups))
    assert rig.ask(link, RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS
    assert len(rig.notified()) == 50
    rig.event(Closed(link, "gone"))
    assert rig.notified() == []
