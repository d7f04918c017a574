"""Every request code at a broker and at a nameserver, with and without the rights that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest
from tests.nodes.broker.conftest import Rig, pull_ext, send_ext
from tests.nodes.broker.driver import START

from steelyard.acl.accounts import Account, AccountGrant, Accounts
from steelyard.config import BrokerConfig, KafkaConfig, NameserverConfig
from steelyard.nodes.access.needs import NEEDS, Administration, NeedLevel, check_complete
from steelyard.nodes.broker.peers.requests import PEER_CODES
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.seam import Opened, Received, Send
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.acl import signed
from steelyard.wire.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    ProducerData,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.recall import RecallHandle

C, DENIED = RequestCode, ResponseCode.NO_PERMISSION
PUB, SUB = AccountGrant.PUB, AccountGrant.SUB
TOPIC, GROUP, OTHER = "orders", "billing", "shipping"
OPERATOR = Account("operator-1", b"operator-secret", is_admin=True)
CLERK = Account("clerk-one", b"clerk-secret")
EVERYBODYS = msgspec.structs.replace(
    CLERK, default_topic=AccountGrant.PUB_OR_SUB, default_group=AccountGrant.PUB_OR_SUB
)
"""Who may do everything with topics and groups, and is no administrator."""


class Case(NamedTuple):
    """A request, and the rights without each of which it is refused: topics and groups."""

    ext: Mapping[str, object] = {}
    topics: Mapping[str, AccountGrant] = {}
    groups: tuple[str, ...] = ()
    body: bytes = b""


def _of(needed: AccountGrant | None, /, *groups: str, **ext: object) -> Case:
    return Case(ext, {} if needed is None else {TOPIC: needed}, groups)


_QUEUE = {"topic": TOPIC, "queueId": 0}
_IN_GROUP = {"consumerGroup": GROUP, **_QUEUE}
_SENT = {
    "producerGroup": "pg",
    **_QUEUE,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "sysFlag": 0,
    "bornTimestamp": START,
    "flag": 0,
}
RECALL = RecallHandle(TOPIC, "broker-a", START + 60_000, "id").encode()
_PULL = pull_ext(0, topic=TOPIC, consumerGroup=GROUP, sysFlag=0)
_LOCK = fastjson.write(LockBatchBody(GROUP, "client", (MessageQueue(TOPIC, "broker-a", 0),)))
_BEAT = fastjson.write(
    HeartbeatData(
        "client",
        (ProducerData("pg"),),
        (
            ConsumerData(
                GROUP,
                subscription_data_set=(
                    SubscriptionData(TOPIC),
                    SubscriptionData(f"%RETRY%{GROUP}"),
                ),
            ),
        ),
    )
)

CASES: dict[int, Case] = {
    C.SEND_MESSAGE: Case(_SENT, {TOPIC: PUB}, body=b"x"),
    C.SEND_MESSAGE_V2: Case(send_ext(TOPIC), {TOPIC: PUB}, body=b"x"),
    C.SEND_BATCH_MESSAGE: Case(send_ext(TOPIC), {TOPIC: PUB}, body=b"x"),
    C.SEND_REPLY_MESSAGE: Case(_SENT, {TOPIC: PUB}, body=b"x"),
    C.SEND_REPLY_MESSAGE_V2: Case(send_ext(TOPIC), {TOPIC: PUB}, body=b"x"),
    C.RECALL_MESSAGE: Case(
        {"producerGroup": "pg", "topic": TOPIC, "recallHandle": RECALL}, {TOPIC: PUB}
    ),
    C.PULL_MESSAGE: Case(_PULL, {TOPIC: SUB}, (GROUP,)),
    C.LITE_PULL_MESSAGE: Case(_PULL, {TOPIC: SUB}, (GROUP,)),
    C.QUERY_CONSUMER_OFFSET: Case(_IN_GROUP, {TOPIC: SUB}, (GROUP,)),
    C.UPDATE_CONSUMER_OFFSET: Case({**_IN_GROUP, "commitOffset": 1}, {TOPIC: SUB}, (GROUP,)),
    C.CONSUMER_SEND_MSG_BACK: _of(None, GROUP, offset=0, group=GROUP, delayLevel=0),
    C.LOCK_BATCH_MQ: Case({}, {TOPIC: SUB}, (GROUP,), _LOCK),
    C.UNLOCK_BATCH_MQ: Case({}, {TOPIC: SUB}, (GROUP,), _LOCK),
    C.GET_CONSUMER_LIST_BY_GROUP: _of(None, GROUP, consumerGroup=GROUP),
    C.HEART_BEAT: Case({}, {TOPIC: SUB}, (GROUP,), _BEAT),
    C.UNREGISTER_CLIENT: _of(None, GROUP, clientID="client", consumerGroup=GROUP),
    C.GET_MAX_OFFSET: Case(_QUEUE, {TOPIC: SUB}),
    C.GET_MIN_OFFSET: Case(_QUEUE, {TOPIC: PUB}),
    C.SEARCH_OFFSET_BY_TIMESTAMP: Case({**_QUEUE, "timestamp": 0}, {TOPIC: SUB}),
    C.GET_EARLIEST_MSG_STORETIME: Case(_QUEUE, {TOPIC: PUB}),
    C.QUERY_MESSAGE: _of(SUB, topic=TOPIC, key="k", maxNum=3, beginTimestamp=0, endTimestamp=9),
    C.GET_TOPIC_STATS_INFO: _of(SUB, topic=TOPIC),
    C.GET_TOPIC_CONFIG: _of(PUB, topic=TOPIC),
    C.GET_CONSUMER_CONNECTION_LIST: _of(None, GROUP, consumerGroup=GROUP),
    C.GET_CONSUME_STATS: _of(SUB, GROUP, consumerGroup=GROUP, topic=TOPIC),
    C.QUERY_CONSUME_TIME_SPAN: _of(SUB, GROUP, topic=TOPIC, group=GROUP),
    C.INVOKE_BROKER_TO_RESET_OFFSET: _of(SUB, GROUP, topic=TOPIC, group=GROUP, timestamp=-1),
    C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _of(SUB, GROUP, topic=TOPIC, group=GROUP),
    C.CLONE_GROUP_OFFSET: _of(SUB, GROUP, OTHER, srcGroup=GROUP, destGroup=OTHER, topic=TOPIC),
    C.GET_CONSUMER_RUNNING_INFO: _of(None, GROUP, consumerGroup=GROUP, clientId="client"),
    C.CONSUME_MESSAGE_DIRECTLY: _of(
        None, GROUP, consumerGroup=GROUP, clientId="client", msgId="0" * 32
    ),
    C.GET_ROUTEINFO_BY_TOPIC: _of(PUB, topic=TOPIC),
}
"""Requests that need rights to topics or groups; `NEEDS` says which of the others need what."""

CREATE = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}


class Guarded(Rig):
    """A broker with accounts and a Kafka listener; requests come from its `client`."""

    accounts = Accounts([OPERATOR, CLERK])

    def __init__(self) -> None:
        super().__init__(BrokerConfig(acl_access_key=OPERATOR.access_key, kafka=KafkaConfig()))
        self.client = self.connect("10.1.1.1:5000")
        assert self.asked(C.UPDATE_AND_CREATE_TOPIC, CREATE, OPERATOR) == 0
        assert self.asked(C.SEND_MESSAGE_V2, send_ext(TOPIC), OPERATOR, b"private") == 0

    def grant(self, account: Account) -> None:
        assert self.node._accounts is not None
        self.node._accounts.replace(Accounts([OPERATOR, account]))

    def command(
        self, code: int, ext: Mapping[str, object], account: Account | None, body: bytes = b""
    ) -> Command:
        self.opaque += 1
        texts = {name: str(value) for name, value in ext.items()}
        request = Command(int(code), self.opaque, 0, texts, body)
        return request if account is None else signed(request, account.access_key, account.secret)

    def answered(
        self, code: int, ext: Mapping[str, object], account: Account | None, body: bytes = b""
    ) -> Command | None:
        """Ask; return the answer. None: it waits, or a client is asked."""
        request = self.command(code, ext, account, body)
        self.event(Received(self.client, request))
        return self.reply_to(self.client, request.opaque)

    def asked(
        self, code: int, ext: Mapping[str, object], account: Account | None, body: bytes = b""
    ) -> int | None:
        answer = self.answered(code, ext, account, body)
        return None if answer is None else answer.code

    def files(self) -> dict[str, bytes]:
        return {path: bytes(file.data) for path, file in self.disk.files.items()}


@pytest.fixture(scope="module")
def guarded() -> Guarded:
    return Guarded()


BROKERS = sorted(Guarded().node._remoting._handlers)


class GuardedNameserver:
    """A nameserver with accounts, and one link."""

    def __init__(self) -> None:
        self.node = NameserverNode(NameserverConfig(), Accounts([OPERATOR, CLERK]))
        self.node.start(START)
        self.node.handle(Opened(1, "10.1.1.1:5000"), START)

    def grant(self, account: Account) -> None:
        assert self.node._accounts is not None
        self.node._accounts.replace(Accounts([OPERATOR, account]))

    def asked(
        self, code: int, ext: Mapping[str, object], account: Account | None, body: bytes = b""
    ) -> int | None:
        texts = {name: str(value) for name, value in ext.items()}
        request = Command(int(code), 1, 0, texts, body)
        if account is not None:
            request = signed(request, account.access_key, account.secret)
        sent = [e for e in self.node.handle(Received(1, request), START) if isinstance(e, Send)]
        assert len(sent) <= 1
        message = sent[0].message if sent else None
        return message.code if isinstance(message, Command) else None

    def files(self) -> object:
        table = self.node._table
        return table.topics(), table.cluster_info(), table.settings("ns")


NAMESERVERS = sorted(NameserverNode(NameserverConfig())._handlers)

ALL = [pytest.param("broker", code, id=f"broker-{code}") for code in BROKERS]
ALL += [pytest.param("nameserver", code, id=f"nameserver-{code}") for code in NAMESERVERS]


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str, guarded: Guarded) -> object:
    return guarded if kind == "broker" else GuardedNameserver()


def need_of(code: int) -> object:
    return NeedLevel.ADMIN if code in PEER_CODES else NEEDS[code]


def test_every_code_has_its_case() -> None:
    """Whoever adds a request says here what it needs."""
    for code in {*BROKERS, *NAMESERVERS}:
        assert (code in CASES) != isinstance(need_of(code), NeedLevel | Administration), code
    with pytest.raises(AssertionError, match=r"codes \[9999\]"):
        check_complete({9999: None}, NEEDS)
    assert {*PEER_CODES, *SteelyardCode} <= {*BROKERS, *NAMESERVERS}


@pytest.mark.parametrize(("kind", "code"), ALL)
def test_who_does_not_sign_is_refused(server: Guarded, kind: str, code: int) -> None:
    case, before = CASES.get(code, Case()), server.files()
    server.grant(EVERYBODYS)
    assert server.asked(code, case.ext, None, case.body) == DENIED
    liar = msgspec.structs.replace(OPERATOR, secret=b"some-other-secret")
    unknown = Account("nobody-at-all", b"some-other-secret")
    for account in (liar, unknown):
        assert server.asked(code, case.ext, account, case.body) is None  # the answer comes late
    assert server.files() == before
    if kind == "broker":
        server.advance(10_000)
        answers = [server.reply_to(server.client, server.opaque - each) for each in (0, 1)]
        assert [answer and answer.code for answer in answers] == [DENIED, DENIED]


@pytest.mark.parametrize(("kind", "code"), ALL)
def test_what_a_request_needs(server: Guarded, kind: str, code: int) -> None:
    need, before = need_of(code), server.files()
    case = CASES.get(code, Case())
    if need is NeedLevel.ADMIN or isinstance(need, Administration):
        server.grant(EVERYBODYS)
        assert server.asked(code, case.ext, EVERYBODYS, case.body) == DENIED
        assert server.files() == before
        return
    if isinstance(need, NeedLevel):
        server.grant(CLERK)
        assert server.asked(code, case.ext, CLERK, case.body) != DENIED
        return
    groups = dict.fromkeys(case.groups, SUB)
    lacking: list[Account] = []
    for topic, grant in case.topics.items():
        other = {PUB: SUB, SUB: PUB}[grant]
        is_either = code in EITHER
        less = {**case.topics, topic: AccountGrant.DENY if is_either else other}
        lacking.append(msgspec.structs.replace(CLERK, topics=less, groups=groups))
    for group in case.groups:
        less = {**groups, group: AccountGrant.DENY}
        lacking.append(msgspec.structs.replace(CLERK, topics=case.topics, groups=less))
    for account in lacking:
        server.grant(account)
        assert server.asked(code, case.ext, account, case.body) == DENIED, account
        assert server.files() == before
    account = msgspec.structs.replace(CLERK, topics=case.topics, groups=groups)
    server.grant(account)
    assert server.asked(code, case.ext, account, case.body) != DENIED


EITHER = {
    C.GET_MAX_OFFSET,
    C.GET_MIN_OFFSET,
    C.SEARCH_OFFSET_BY_TIMESTAMP,
    C.GET_EARLIEST_MSG_STORETIME,
    C.GET_TOPIC_STATS_INFO,
    C.GET_TOPIC_CONFIG,
    C.GET_ROUTEINFO_BY_TOPIC,
}
"""Requests for which PUB and SUB are the same."""


@pytest.mark.parametrize(("kind", "code"), ALL)
def test_a_request_that_names_nothing(server: Guarded, kind: str, code: int) -> None:
    """Leaving out the topic or group does not widen what is asked for."""
    if code not in CASES or code == C.UNREGISTER_CLIENT:
        return
    server.grant(CLERK)
    assert server.asked(code, {}, CLERK) in (DENIED, ResponseCode.SYSTEM_ERROR)


# -- stored messages -------------------------------------------------------------------------------


def test_a_message_is_not_read_by_its_address(guarded: Guarded) -> None:
    """33, 36 and 309 name a message, whose topic only the log knows."""
    rig = Guarded()
    sent = rig.answered(C.SEND_MESSAGE_V2, send_ext(TOPIC), OPERATOR, b"private")
    assert sent is not None
    message_id = sent.ext["msgId"]
    offset = int(message_id[-16:], 16)
    for name in ("mine", TOPIC):
        account = msgspec.structs.replace(CLERK, topics={name: SUB}, groups={GROUP: SUB})
        rig.grant(account)
        allowed = name == TOPIC
        view = rig.answered(C.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "mine"}, account)
        assert view is not None
        assert (view.code == 0 and b"private" in view.body) if allowed else view.code == DENIED
        back = {"offset": offset, "group": GROUP, "delayLevel": 0, "originTopic": "mine"}
        code = rig.asked(C.CONSUMER_SEND_MSG_BACK, back, account)
        assert code == (0 if allowed else DENIED)
        directly = {"consumerGroup": GROUP, "clientId": "client", "msgId": message_id}
        code = rig.asked(C.CONSUME_MESSAGE_DIRECTLY, directly, account)
        assert (code != DENIED) == allowed


def test_a_message_under_way_belongs_to_its_topic() -> None:
    """A half message and a delayed one are read, and ended, by who may do so with their topic."""
    rig = Guarded()
    half = send_ext(TOPIC, i="TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x0101")
    sent = rig.answered(C.SEND_MESSAGE_V2, half, OPERATOR, b"private")
    assert sent is not None
    offset = int(sent.ext["msgId"][-16:], 16)
    end = {
        "producerGroup": "pg",
        "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": offset,
        "commitOrRollback": 8,
        "msgId": "01",
    }
    reader = msgspec.structs.replace(EVERYBODYS, topics={TOPIC: AccountGrant.DENY})
    rig.grant(reader)
    assert rig.asked(C.VIEW_MESSAGE_BY_ID, {"offset": offset}, reader) == DENIED
    assert rig.asked(C.END_TRANSACTION, end, reader) == DENIED
    writer = msgspec.structs.replace(CLERK, topics={TOPIC: PUB})
    rig.grant(writer)
    assert rig.asked(C.VIEW_MESSAGE_BY_ID, {"offset": offset}, writer) == DENIED
    assert rig.asked(C.END_TRANSACTION, end, writer) == 0


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"])
def test_what_belongs_to_everybody_has_no_default(guarded: Guarded, topic: str) -> None:
    guarded.grant(EVERYBODYS)
    pull = pull_ext(0, topic=topic, consumerGroup=GROUP, sysFlag=0)
    assert guarded.asked(C.PULL_MESSAGE, pull, EVERYBODYS) == DENIED
    chosen = msgspec.structs.replace(EVERYBODYS, topics={topic: SUB})
    guarded.grant(chosen)
    assert guarded.asked(C.PULL_MESSAGE, pull, chosen) != DENIED


def test_a_retry_topic_is_its_groups(guarded: Guarded) -> None:
    """Whatever group the header names: its own is the one that counts."""
    for groups, allowed in (({GROUP: SUB}, True), ({OTHER: SUB}, False)):
        account = msgspec.structs.replace(
            EVERYBODYS, default_group=AccountGrant.DENY, groups=groups
        )
        guarded.grant(account)
        ext = send_ext(f"%RETRY%{GROUP}", a=OTHER)
        code = guarded.asked(C.SEND_MESSAGE_V2, ext, account, b"x")
        assert (code != DENIED) == allowed
        pull = pull_ext(0, topic=f"%RETRY%{GROUP}", consumerGroup=next(iter(groups)), sysFlag=0)
        assert (guarded.asked(C.PULL_MESSAGE, pull, account) != DENIED) == allowed


def test_traces_are_open_to_every_account(guarded: Guarded) -> None:
    guarded.grant(CLERK)
    ext = send_ext("RMQ_SYS_TRACE_TOPIC")
    assert guarded.asked(C.SEND_MESSAGE_V2, ext, CLERK, b"x") != DENIED
    pull = pull_ext(0, topic="RMQ_SYS_TRACE_TOPIC", consumerGroup=GROUP)
    assert guarded.asked(C.PULL_MESSAGE, pull, CLERK) == DENIED
