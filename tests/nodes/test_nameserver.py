"""The nameserver through the seam."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.config import NameserverConfig
from steelyard.nodes.nameserver import SCAN_TIMER, NameserverNode
from steelyard.nodes.pulse import PULSE_TIMER
from steelyard.nodes.seam import Closed, Due, Effect, Event, Hang, Opened, Received, Send, SetTimer
from steelyard.session_clock import PULSE_MS
from steelyard.types import LogLine
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    Body,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command

START = 1_700_000_000_000
REGISTER, ROUTE = RequestCode.REGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC
IDENTITY: dict[str, object] = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "C",
    "brokerId": 0,
}
VERSION = DataVersion(1, 2)
TOPICS = ("TopicA", "TBW102")


class Rig:
    """A nameserver with links 1 and 2 open."""

    def __init__(self) -> None:
        self.node = NameserverNode(NameserverConfig())
        self.now = START
        self.opaque = 0
        self.told: list[Effect] = []
        assert self.node.start(START) == [
            SetTimer(SCAN_TIMER, START + 5_000),
            SetTimer(PULSE_TIMER, START + 1_000),
        ]
        for link in (1, 2):
            self.event(Opened(link, f"10.0.0.{link}:1"))

    def event(self, event: Event) -> list[Effect]:
        effects = self.node.handle(event, self.now)
        self.node.check()
        return effects

    def ask(
        self,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes | Body = b"",
        *,
        link: int = 1,
        version: int = 409,
    ) -> Command:
        self.opaque += 1
        data = body if isinstance(body, bytes) else fastjson.write(body)
        texts = {name: str(value) for name, value in (ext or {}).items()}
        request = Command(int(code), self.opaque, 0, texts, data, version=version)
        *told, effect = self.event(Received(link, request))
        assert all(isinstance(each, LogLine) for each in told)
        self.told += told
        assert isinstance(effect, Send)
        answer = effect.message
        assert isinstance(answer, Command)
        assert (effect.link, answer.opaque, answer.flag) == (link, self.opaque, RESPONSE_FLAG)
        return answer

    def register(self, *topics: str, link: int = 1, **changes: object) -> Command:
        table = {topic: TopicConfig(topic, 8, 8) for topic in topics or TOPICS}
        body = fastjson.write(RegisterBrokerBody(TopicConfigTable(table, VERSION)))
        ext = IDENTITY | {
            "haServerAddr": "127.0.0.1:10912",
            "compressed": "false",
            "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
        }
        return self.ask(REGISTER, ext | changes, body, link=link)

    def knows(self, topic: str = "TopicA") -> bool:
        return self.ask(ROUTE, {"topic": topic}).code == ResponseCode.SUCCESS

    def scan(self, milliseconds: int) -> list[Effect]:
        """Let time pass, in which the nameserver runs."""
        until = self.now + milliseconds
        while self.now + PULSE_MS < until:
            self.now += PULSE_MS
            self.event(Due(PULSE_TIMER))
        self.now = until
        pulse = SetTimer(PULSE_TIMER, self.now + PULSE_MS)
        return [effect for effect in self.event(Due(SCAN_TIMER)) if effect != pulse]

    def stand_still(self, milliseconds: int) -> list[Effect]:
        """Let time pass in which it does not run, and search for silent brokers at once."""
        self.now += milliseconds
        return self.event(Due(SCAN_TIMER))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_broker_registers_and_its_topics_are_found(rig: Rig) -> None:
    answer = rig.ask(ROUTE, {"topic": "TopicA"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark.startswith("No topic route info in name server for the topic: TopicA")
    answer = rig.register()
    assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
    answer = rig.ask(ROUTE, {"topic": "TopicA"})
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
        b'"topicSysFlag":0,"writeQueueNums":8}]}'
    )


@pytest.mark.parametrize(
    ("version", "ext", "quoted"),
    [
        (409, {}, True),
        (401, {}, True),
        (400, {}, False),
        (373, {"acceptStandardJsonOnly": "true"}, True),
        (373, {"acceptStandardJsonOnly": "false"}, False),
    ],
)
def test_old_clients_get_the_json_they_are_used_to(
    rig: Rig, version: int, ext: dict[str, object], quoted: bool
) -> None:
    rig.register()
    body = rig.ask(ROUTE, {"topic": "TopicA"} | ext, version=version).body
    assert (b'{"0":' in body, b"{0:" in body) == (quoted, not quoted)


def test_cluster_info_is_as_fastjson_prints_it(rig: Rig) -> None:
    rig.register()
    assert rig.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"C"}},"clusterAddrTable":{"C":["broker-a"]}}'
    )


def test_a_body_that_was_damaged_is_refused(rig: Rig) -> None:
    answer = rig.register(bodyCrc32=7)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert not rig.knows()
    assert rig.register(bodyCrc32=0).code == 0
    assert rig.knows()


def test_compressed_registrations_are_refused_with_a_hint(rig: Rig) -> None:
    answer = rig.register(compressed="true")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "compressedRegister=false" in answer.remark


def test_a_broker_leaves_when_it_says_so(rig: Rig) -> None:
    rig.register()
    assert rig.ask(RequestCode.UNREGISTER_BROKER, IDENTITY).code == 0
    assert not rig.knows()


def test_a_broker_leaves_with_its_connection(rig: Rig) -> None:
    rig.register(link=2)
    rig.event(Closed(1, "somebody else"))
    assert rig.ask(ROUTE, {"topic": "TopicA"}, link=2).code == 0
    rig.event(Closed(2, "gone"))
    assert not rig.knows()


def test_a_silent_broker_leaves_and_is_hung_up(rig: Rig) -> None:
    rig.register()
    assert rig.scan(120_000) == [SetTimer(SCAN_TIMER, rig.now + 5_000)]
    assert Hang(1, "no registration for too long") in rig.scan(1)
    assert not rig.knows()
    assert rig.scan(5_000) == [SetTimer(SCAN_TIMER, rig.now + 5_000)]


def test_a_nameserver_that_stood_still_keeps_its_brokers(rig: Rig) -> None:
    """What they sent meanwhile is read first, and if that is nothing, they are removed later."""
    rig.register()
    rig.scan(100_000)
    line, *_ = [e for e in rig.stand_still(300_000) if isinstance(e, LogLine)]
    assert (line.level, line.text[:26]) == ("WARNING", "stood still for 299.0 s: t")
    assert rig.knows()
    rig.scan(20_000)
    assert rig.knows()
    assert Hang(1, "no registration for too long") in rig.scan(5_000)


def test_a_broker_may_promise_to_be_heard_more_often(rig: Rig) -> None:
    rig.register(heartbeatTimeoutMillis=3_000)
    assert len(rig.scan(3_001)) > 1


def test_asking_for_the_version_is_a_sign_of_life(rig: Rig) -> None:
    query = RequestCode.QUERY_DATA_VERSION
    answer = rig.ask(query, IDENTITY, VERSION)
    assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
    rig.register()
    rig.scan(100_000)
    answer = rig.ask(query, IDENTITY, VERSION)
    assert (answer.ext, fastjson.read(DataVersion, answer.body)) == ({"changed": "false"}, VERSION)
    assert rig.ask(query, IDENTITY, DataVersion(1, 3)).ext == {"changed": "true"}
    rig.scan(100_000)
    assert rig.knows()


def test_lists_of_topics(rig: Rig) -> None:
    rig.register()
    everything = rig.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body
    assert fastjson.read(TopicList, everything).topic_list == ("TBW102", "TopicA")
    for cluster, topics in (("C", ("TBW102", "TopicA")), ("D", ())):
        body = rig.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}).body
        assert fastjson.read(TopicList, body).topic_list == topics


def test_topics_of_the_system(rig: Rig) -> None:
    system = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
    assert fastjson.read(TopicList, rig.ask(system).body) == TopicList(())
    rig.register()
    found = fastjson.read(TopicList, rig.ask(system).body)
    assert found == TopicList(("C", "broker-a"), "127.0.0.1:10911")


def test_a_topic_is_deleted(rig: Rig) -> None:
    rig.register()
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    rig.ask(delete, {"topic": "TopicA", "clusterName": "D"})
    assert rig.knows()
    rig.ask(delete, {"topic": "TopicA", "clusterName": "C"})
    assert not rig.knows()
    rig.ask(delete, {"topic": "TBW102"})
    assert not rig.knows("TBW102")


def test_write_permission(rig: Rig) -> None:
    rig.register()
    name = {"brokerName": "broker-a"}
    answer = rig.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, name)
    assert answer.ext == {"wipeTopicCount": "2"}
    assert b'"perm":4' in rig.ask(ROUTE, {"topic": "TopicA"}).body
    answer = rig.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, name)
    assert answer.ext == {"addTopicCount": "2"}
    assert b'"perm":6' in rig.ask(ROUTE, {"topic": "TopicA"}).body


def test_settings_are_kept_and_order_settings_go_with_routes_and_registrations(rig: Rig) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "TopicA"}
    get, listing = RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE
    assert rig.ask(get, order).code == ResponseCode.QUERY_NOT_FOUND
    assert rig.ask(listing, order).code == ResponseCode.QUERY_NOT_FOUND
    rig.ask(RequestCode.PUT_KV_CONFIG, order | {"value": "broker-a:4"})
    assert rig.ask(get, order).ext == {"value": "broker-a:4"}
    table = KVTable({"TopicA": "broker-a:4"})
    assert fastjson.read(KVTable, rig.ask(listing, order).body) == table
    assert fastjson.read(KVTable, rig.register().body) == table
    assert b'"orderTopicConf":"broker-a:4"' in rig.ask(ROUTE, {"topic": "TopicA"}).body
    rig.ask(RequestCode.DELETE_KV_CONFIG, order)
    assert rig.ask(get, order).code == ResponseCode.QUERY_NOT_FOUND


def test_unknown_codes_missing_fields_and_one_way_requests(rig: Rig) -> None:
    answer = rig.ask(9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    answer = rig.ask(ROUTE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in answer.remark
    oneway = Command(int(ROUTE), 1, ONEWAY_FLAG, {"topic": "TopicA"})
    assert rig.event(Received(1, oneway)) == []
    assert rig.event(Received(1, Command(0, 1, RESPONSE_FLAG))) == []


CODES = st.sampled_from(
    (100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 322, 327, 0, -1, 310)
)
NAMES = (
    *("namespace", "key", "value", "topic", "cluster", "clusterName", "brokerName", "brokerAddr"),
    *("brokerId", "haServerAddr", "bodyCrc32", "compressed", "heartbeatTimeoutMillis"),
)
VALUES = st.one_of(st.sampled_from(("a", "b", "0", "-1", "true")), st.text(max_size=5))
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        (
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"}},'
            b'"dataVersion":{"timestamp":1,"counter":1}}}',
            b'{"timestamp":1,"counter":{0:1}}',
        )
    ),
)


@settings(max_examples=examples(80))
@given(st.lists(st.tuples(CODES, st.dictionaries(st.sampled_from(NAMES), VALUES), BODIES)))
def test_whatever_peers_send_it_answers_and_stands(
    requests: list[tuple[int, dict[str, str], bytes]],
) -> None:
    rig = Rig()
    for code, ext, body in requests:
        assert isinstance(rig.ask(code, ext, body), Command)
        rig.scan(1_000)
    rig.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "TopicA"})
    rig.register(brokerName="fresh", brokerAddr="fresh:1", clusterName="fresh")
    assert rig.knows()


def test_a_request_for_a_broker_is_answered_with_where_it_belongs() -> None:
    answer = Rig().ask(34)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "a nameserver's port" in answer.remark


def test_a_body_that_cannot_be_read_is_logged_with_its_sender(rig: Rig) -> None:
    rig.ask(REGISTER, IDENTITY | {"haServerAddr": "h:1"}, b"{", link=2)
    (told,) = rig.told
    assert isinstance(told, LogLine)
    assert told.level == "WARNING"
    assert told.text.startswith(
        "request 103 of 10.0.0.2:1 was refused: body RegisterBrokerBody: JSON"
    )
