"""The broker's word to the nameservers."""

from __future__ import annotations

import zlib

import pytest
from tests.nodes.broker.conftest import Rig, send_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.acl.policies import read_users
from steelyard.config import BrokerConfig
from steelyard.errors import DiskFullError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.nodes.broker import durability
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.seam import Asked, Closed, Received
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import RegisterBrokerBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command

REGISTER, UNREGISTER = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
CREATE = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 6,
    "writeQueueNums": 5,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}


class Nameserver:
    """Says yes, and remembers what it was told; `silent` swallows, `code` refuses.

    `refused`: a request that it does not know.
    """

    def __init__(self) -> None:
        self.told: list[Command] = []
        self.silent = False
        self.code = 0
        self.refused = -1

    def __call__(self, request: Command) -> Command | None:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return Command(1, flag=RESPONSE_FLAG, remark="who is registered is not told")
        self.told.append(request)
        if request.code == self.refused:
            return Command(3, flag=RESPONSE_FLAG, remark="not supported")
        return None if self.silent else Command(self.code, flag=RESPONSE_FLAG, remark="no")

    def codes(self) -> list[int]:
        return [request.code for request in self.told]


def cluster(*names: str) -> tuple[Rig, list[Nameserver]]:
    """A broker with these nameservers configured; those whose name ends in `!` are down."""
    servers = [Nameserver() for _ in names]
    config = BrokerConfig(nameservers=tuple(name.rstrip("!") for name in names))
    up = {n: server for n, server in zip(names, servers, strict=True) if not n.endswith("!")}
    return Rig(config, nameservers=up), servers


def test_all_nameservers_are_told_all_topics_at_the_start_and_every_30_seconds() -> None:
    rig, servers = cluster("n1:1", "n2:2")
    for server in servers:
        (request,) = server.told
        assert request.code == REGISTER
        assert request.ext == {
            "brokerName": "broker-a",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "DefaultCluster",
            "haServerAddr": "127.0.0.1:10911",
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(request.body) & 0x7FFFFFFF),
        }
        topics = fastjson.read(RegisterBrokerBody, request.body).topic_config_serialize_wrapper
        perms = {name: item.perm for name, item in topics.topic_config_table.items()}
        assert perms == {
            "DefaultCluster": 7,
            "broker-a": 7,
            "TBW102": 7,
            "SELF_TEST_TOPIC": 6,
            "OFFSET_MOVED_EVENT": 6,
            "SCHEDULE_TOPIC_XXXX": 6,
            "RMQ_SYS_TRANS_HALF_TOPIC": 6,
            "RMQ_SYS_TRANS_OP_HALF_TOPIC": 6,
            "rmq_sys_wheel_timer": 6,
            "rmq_sys_wheel_timer_slots": 0,
            "TRANS_CHECK_MAX_TIME_TOPIC": 6,
            "DefaultCluster_REPLY_TOPIC": 6,
            LEDGER_TOPIC: 6,
        }
    rig.advance(90_000)
    assert [server.codes() for server in servers] == [[REGISTER] * 4] * 2


def test_a_change_of_topics_is_told_at_once_with_a_new_version() -> None:
    rig, (server,) = cluster("n1:1")
    rig.advance(10)
    rig.send(rig.connect())
    assert server.codes() == [REGISTER] * 2
    versions = [
        fastjson.read(RegisterBrokerBody, r.body).topic_config_serialize_wrapper.data_version
        for r in server.told
    ]
    assert versions[0].timestamp == START
    assert versions[1].timestamp == START + 10
    assert versions[1].counter == versions[0].counter + 1


def create_user(rig: Rig, name: str = "anna") -> Command | None:
    link = rig.connect()
    body = b'{"password":"annas-secret"}'
    opaque = rig.post(link, RequestCode.AUTH_CREATE_USER, {"username": name}, body)
    return rig.reply_to(link, opaque)


def test_users_are_told_after_the_topics_and_before_their_maker_is_answered() -> None:
    rig, servers = cluster("n1:1", "n2:2")
    assert create_user(rig)
    for server in servers:
        assert server.codes() == [REGISTER, REGISTER, SteelyardCode.ACL_USERS]
        assert server.told[-1].ext == {"brokerName": "broker-a"}
        assert [user.name for user in read_users(server.told[-1].body)] == ["anna"]
    servers[1].silent = True
    assert create_user(rig, "bob") is None
    rig.advance(6_000)
    assert [user.name for user in read_users(servers[1].told[-1].body)] == ["anna", "bob"]
    rig.restart()
    assert servers[0].codes()[-2:] == [REGISTER, SteelyardCode.ACL_USERS]


def test_a_nameserver_that_knows_no_users_gets_them_once() -> None:
    """Apache's answer REQUEST_CODE_NOT_SUPPORTED is no fault, and passwords are not sent on and on."""
    rig, (server,) = cluster("n1:1")
    server.refused = SteelyardCode.ACL_USERS
    assert create_user(rig)
    assert create_user(rig, "bob")
    rig.advance(60_000)
    assert server.codes().count(SteelyardCode.ACL_USERS) == 1
    assert server.codes().count(REGISTER) == 5
    assert rig.told == []
    (to_nameserver,) = rig.dialed_links
    rig.event(Closed(to_nameserver, "gone"))
    rig.advance(2_000)
    assert server.codes().count(SteelyardCode.ACL_USERS) == 2


def test_whoever_makes_a_topic_is_answered_when_the_nameservers_know() -> None:
    rig, (server,) = cluster("n1:1")
    server.silent = True
    link = rig.connect()
    opaque = rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    again = rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "Other"})
    assert server.codes() == [REGISTER] * 2
    assert rig.reply_to(link, opaque) is None
    server.silent = False
    rig.event(answer_of(rig))
    assert rig.reply_to(link, opaque)
    assert rig.reply_to(link, again)
    assert server.codes() == [REGISTER] * 3
    assert b"Other" in server.told[-1].body


@pytest.mark.parametrize("addresses", [(), ("n1:1",)])
def test_with_sync_flush_whoever_makes_a_topic_is_answered_when_the_disk_has_it(
    addresses: tuple[str, ...],
) -> None:
    servers = {address: Nameserver() for address in addresses}
    rig = Rig(BrokerConfig(flush="sync", nameservers=addresses), nameservers=servers)
    link = rig.connect()
    rig.disk_answers = False
    opaque = rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    assert rig.reply_to(link, opaque) is None
    rig.answer_flushes()
    assert rig.reply_to(link, opaque)


def test_more_replies_than_may_wait_for_the_disk_say_so_after_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was not brought to the disk is not called a success, whoever sends the reply."""
    monkeypatch.setattr(durability, "WAITING_MAX", 1)
    server = Nameserver()
    config = BrokerConfig(flush="sync", nameservers=("n1:1",))
    rig = Rig(config, nameservers={"n1:1": server})
    link = rig.connect()
    rig.send(link)
    server.silent = True
    rig.disk_answers = False
    opaque = rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "Other"})
    for _ in range(2):
        rig.post(link, RequestCode.SEND_MESSAGE_V2, send_ext(), b"x")
    assert rig.reply_to(link, opaque) is None
    server.silent = False
    rig.event(answer_of(rig))
    reply = rig.reply_to(link, opaque)
    assert reply is not None
    assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT


def test_a_round_that_is_to_be_repeated_when_the_broker_stops_is_not_repeated() -> None:
    """The invariants of the node are checked after each event."""
    rig, (server,) = cluster("n1:1")
    server.silent = True
    link = rig.connect()
    for topic in ("One", "Other"):
        rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": topic})
    rig.event(Asked(1, Stop()))
    (to_nameserver,) = rig.dialed_links
    rig.event(Closed(to_nameserver, "gone"))
    assert server.codes().count(REGISTER) == 2
    assert rig.answers == {1: None}


def answer_of(rig: Rig) -> Received:
    """The late answer to the last registration."""
    link, request = next(
        (link, message) for link, message in reversed(rig.sent) if message.code == REGISTER
    )
    return Received(link, Command(0, request.opaque, RESPONSE_FLAG))


def test_a_nameserver_that_never_answers_does_not_hold_the_operator_for_ever() -> None:
    rig, (server,) = cluster("n1:1")
    server.silent = True
    link = rig.connect()
    opaque = rig.post(link, RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    rig.advance(6_000)
    assert rig.reply_to(link, opaque)


def test_a_nameserver_that_is_away_is_tried_again_more_and_more_seldom_and_reported_once() -> None:
    rig, _ = cluster("n1:1!")
    dials: list[int] = []
    for _ in range(70):
        before = rig.dials
        rig.advance(1_000)
        dials += [rig.now - START] * (rig.dials - before)
    assert dials == [1_000, 3_000, 7_000, 15_000, 31_000, 61_000]
    assert [tell.level for tell in rig.told] == ["WARNING"]
    server = rig.nameservers["n1:1"] = Nameserver()
    rig.advance(30_000)
    assert server.codes() == [REGISTER]
    assert [tell.level for tell in rig.told] == ["WARNING", "INFO"]


def test_a_refusal_is_a_failure_too() -> None:
    rig, (server,) = cluster("n1:1")
    server.code = 1
    rig.advance(30_000)
    (tell,) = rig.told
    assert "code 1: no" in tell.text
    assert len(server.told) == 2


def test_a_nameserver_that_closed_the_connection_is_told_again_soon() -> None:
    rig, (server,) = cluster("n1:1")
    (link,) = rig.dialed_links
    rig.event(Closed(link, "restarted"))
    rig.advance(1_000)
    assert server.codes() == [REGISTER] * 2


def test_a_clean_stop_leaves_the_nameservers_closes_the_store_and_refuses_requests() -> None:
    rig, servers = cluster("n1:1", "n2:2")
    link = rig.connect()
    rig.send(link, b"kept")
    rig.event(Asked(7, Stop()))
    assert [server.codes()[-1] for server in servers] == [UNREGISTER] * 2
    assert servers[0].told[-1].ext["brokerName"] == "broker-a"
    assert rig.answers == {7: None}
    assert rig.ask(link, RequestCode.GET_BROKER_CONFIG).code == 14
    rig.event(Closed(link, "gone"))
    rig.event(Asked(8, Stop()))
    assert rig.answers == {7: None, 8: None}
    rig.restart()
    assert [view.body for view in rig.messages(TOPIC)] == [b"kept"]


def test_a_stop_waits_two_seconds_for_nameservers_at_most() -> None:
    rig, (server,) = cluster("n1:1")
    server.silent = True
    rig.event(Asked(1, Stop()))
    assert rig.answers == {}
    rig.advance(2_000)
    assert rig.answers == {1: None}


def test_replies_that_wait_for_the_disk_are_given_by_a_stop() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    link = rig.connect()
    opaques = [rig.post(link, RequestCode.SEND_MESSAGE_V2, send_ext(), b"x") for _ in range(2)]
    rig.event(Asked(1, Stop()))
    assert all(rig.reply_to(link, opaque) for opaque in opaques)


def test_a_store_that_cannot_be_closed_is_told_to_whoever_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    error = DiskFullError("no space left")

    def close() -> None:
        raise error

    monkeypatch.setattr(rig.store, "close", close)
    rig.event(Asked(1, Stop()))
    assert rig.answers == {1: error}
