"""Transactions at the broker: half messages, ends, questions to producers, and what is given up."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import Rig, pull_ext, send_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.broker.remoting.transactions import ASK_BATCH_MAX
from steelyard.nodes.seam import Asked
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.message import MessageView, decode_records

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
PGROUP = "tx-group"
END = RequestCode.END_TRANSACTION
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = BrokerConfig(
    transaction_timeout_ms=1_000, transaction_check_interval_ms=2_000, transaction_check_max=3
)


def half(rig: Rig, link: int, key: str = "01", body: bytes = b"hello", **more: str) -> Command:
    """Send a half message as Java does; `more` are properties."""
    properties = {
        props.TRAN_MSG: "true",
        props.UNIQ_KEY: key,
        props.WAIT: "true",
        props.PGROUP: PGROUP,
        **more,
    }
    text = props.encode_properties(properties).removesuffix("\x02")
    return rig.ask(link, RequestCode.SEND_MESSAGE_V2, send_ext(e=2, f=4, i=text), body)


def end_ext(sent: Command, state: int = COMMIT, **more: object) -> dict[str, object]:
    """The header of 37 for the half message of this reply."""
    return {
        "producerGroup": PGROUP,
        "tranStateTableOffset": sent.ext["queueOffset"],
        "commitLogOffset": int(sent.ext["msgId"][-16:], 16),
        "commitOrRollback": state,
        "fromTransactionCheck": "false",
        "msgId": sent.ext.get("transactionId", "01"),
    } | more


def end(rig: Rig, link: int, sent: Command, state: int = COMMIT, **more: object) -> Command:
    return rig.ask(link, END, end_ext(sent, state, **more))


def questions(rig: Rig) -> list[tuple[int, Command]]:
    """The checks sent since the last look."""
    code = RequestCode.CHECK_TRANSACTION_STATE
    found = [(link, message) for link, message in rig.sent if message.code == code]
    rig.sent = [pair for pair in rig.sent if pair[1].code != code]
    return found


def published(rig: Rig, topic: str = TOPIC) -> list[MessageView]:
    return [view for queue_id in range(8) for view in rig.messages(topic, queue_id)]


@pytest.fixture
def link(rig: Rig) -> int:
    """A producer that can be asked."""
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    return link


# -- half messages and ends ------------------------------------------------------------------------


def test_a_half_message_is_in_the_half_topic_and_nowhere_else(rig: Rig, link: int) -> None:
    answer = half(rig, link)
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
    assert answer.ext["transactionId"] == "01"
    assert published(rig) == []
    (view,) = rig.messages(HALF)
    assert view.offset_message_id == answer.ext["msgId"]
    assert (view.body, view.sys_flag, view.queue_id) == (b"hello", 0, 0)
    assert dict(view.properties) == {
        "TRAN_MSG": "true",
        "UNIQ_KEY": "01",
        "PGROUP": PGROUP,
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
        "CLUSTER": "DefaultCluster",
    }


def test_a_commit_publishes_the_message(rig: Rig, link: int) -> None:
    sent = half(rig, link, TAGS="a", KEYS="k")
    opaque = rig.post(link, RequestCode.PULL_MESSAGE, PULL)
    assert end(rig, link, sent).code == ResponseCode.SUCCESS
    (view,) = published(rig)
    (prepared,) = rig.messages(HALF)
    assert (view.queue_id, view.body, view.sys_flag) == (2, b"hello", COMMIT)
    assert view.prepared_transaction_offset == prepared.physical_offset
    assert (view.born_timestamp, view.born_host) == (START - 5, "10.0.0.1:5000")
    assert dict(view.properties) == {
        "UNIQ_KEY": "01",
        "PGROUP": PGROUP,
        "TAGS": "a",
        "KEYS": "k",
        "CLUSTER": "DefaultCluster",
    }
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert decode_records(answer.body, "broker-a") == [view]


PULL = pull_ext(
    queueId=2, sysFlag=6, subscription="a", suspendTimeoutMillis=15_000, consumerGroup="readers"
)


def test_a_rollback_publishes_nothing(rig: Rig, link: int) -> None:
    assert end(rig, link, half(rig, link), ROLLBACK).code == ResponseCode.SUCCESS
    assert published(rig) == []
    (operation,) = rig.messages(OP)
    assert (operation.body, operation.tags) == (b"0", "d")
    rig.advance(300_000)
    assert questions(rig) == []


def test_an_unknown_state_leaves_the_transaction_open(rig: Rig, link: int) -> None:
    sent = half(rig, link)
    assert end(rig, link, sent, UNKNOWN).code == ResponseCode.SUCCESS
    assert end(rig, link, sent, COMMIT).code == ResponseCode.SUCCESS
    assert len(published(rig)) == 1


@pytest.mark.parametrize("again", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
def test_a_transaction_ends_once(rig: Rig, link: int, first: int, again: int) -> None:
    sent = half(rig, link)
    end(rig, link, sent, first)
    answer = end(rig, link, sent, again)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The transaction has ended before",
    )
    assert len(published(rig)) == (first == COMMIT)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 77}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "x"}, "commitLogOffset"),
    ],
)
def test_an_end_that_does_not_fit_changes_nothing(
    rig: Rig, link: int, changes: dict[str, object], remark: str
) -> None:
    sent = half(rig, link)
    answer = end(rig, link, sent, COMMIT, **changes)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in answer.remark
    assert published(rig) == []
    assert end(rig, link, sent).code == ResponseCode.SUCCESS


def test_an_ordinary_message_is_no_half_message(rig: Rig, link: int) -> None:
    sent = rig.send(link, i=f"PGROUP\x01{PGROUP}")
    answer = end(rig, link, sent)
    assert answer.remark == "Find prepared transaction message failed"
    assert len(published(rig)) == 1


def test_a_delay_counts_from_the_commit(rig: Rig, link: int) -> None:
    sent = half(rig, link, DELAY="2")
    assert sent.code == ResponseCode.SUCCESS
    rig.advance(4_000)
    end(rig, link, sent)
    rig.advance(4_900)
    assert published(rig) == []
    rig.advance(200)
    (view,) = published(rig)
    assert (view.queue_id, view.body, view.sys_flag) == (2, b"hello", COMMIT)


def test_a_retry_of_an_old_client_is_no_half_message(rig: Rig, link: int) -> None:
    text = "TRAN_MSG\x01true\x02DELAY\x011"
    rig.ask(link, RequestCode.SEND_MESSAGE_V2, send_ext(i=text, j=1), b"x")
    assert rig.messages(HALF) == []
    rig.advance(1_000)
    assert len(published(rig)) == 1


def test_a_commit_for_a_topic_that_is_gone_is_refused(rig: Rig, link: int) -> None:
    sent = half(rig, link)
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    assert end(rig, link, sent).code == ResponseCode.TOPIC_NOT_EXIST
    rig.send(link, queue_id=0)
    assert end(rig, link, sent).code == ResponseCode.SUCCESS
    assert len(published(rig)) == 2


def test_too_many_open_transactions_are_refused() -> None:
    rig = Rig(BrokerConfig(transactions_max=2))
    link = rig.connect()
    sent = [half(rig, link, str(number)) for number in range(3)]
    assert [answer.code for answer in sent] == [0, 0, ResponseCode.SYSTEM_BUSY]
    end(rig, link, sent[0], ROLLBACK)
    assert half(rig, link).code == ResponseCode.SUCCESS


def test_with_a_synchronous_flush_an_end_is_answered_when_the_disk_has_it() -> None:
    rig = Rig(BrokerConfig(flush="sync"))
    link = rig.connect()
    sent = half(rig, link)
    rig.disk_answers = False
    opaque = rig.post(link, END, end_ext(sent))
    assert rig.reply_to(link, opaque) is None
    rig.disk_answers = True
    rig.answer_flushes()
    assert rig.reply_to(link, opaque) is not None


# -- questions -------------------------------------------------------------------------------------


def test_a_producer_is_asked_after_the_time_out_and_then_at_the_interval(
    rig: Rig, link: int
) -> None:
    sent = half(rig, link)
    rig.advance(5_900)
    assert questions(rig) == []
    rig.advance(100)
    ((to, question),) = questions(rig)
    (prepared,) = rig.messages(HALF)
    assert (to, question.flag) == (link, ONEWAY_FLAG)
    assert question.ext == {
        "topic": HALF,
        "tranStateTableOffset": "0",
        "commitLogOffset": str(prepared.physical_offset),
        "msgId": "01",
        "transactionId": "01",
        "offsetMsgId": sent.ext["msgId"],
        "bname": "broker-a",
    }
    (asked,) = decode_records(question.body)
    assert (asked.topic, asked.queue_id, asked.body) == (TOPIC, 2, b"hello")
    assert (asked.queue_offset, asked.physical_offset) == (0, prepared.physical_offset)
    assert dict(asked.properties) == {**prepared.properties, "TRANSACTION_CHECK_TIMES": "1"}
    rig.advance(29_900)
    assert questions(rig) == []
    rig.advance(100)
    ((_, question),) = questions(rig)
    assert decode_records(question.body)[0].property_of("TRANSACTION_CHECK_TIMES") == "2"
    ext = end_ext(sent, COMMIT, fromTransactionCheck="true")
    rig.post(link, END, ext, oneway=True)
    assert len(published(rig)) == 1
    rig.advance(600_000)
    assert questions(rig) == []


def test_the_connections_of_a_group_are_asked_by_turns(rig: Rig) -> None:
    links = [rig.connect() for _ in range(3)]
    for link in links:
        rig.beat(link, f"p{link}", producer=PGROUP)
    for number in range(6):
        half(rig, links[0], str(number))
    rig.advance(6_000)
    assert sorted(link for link, _ in questions(rig)) == sorted(links * 2)


def test_a_message_may_ask_for_a_later_first_question(rig: Rig, link: int) -> None:
    half(rig, link, "slow", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    half(rig, link, "odd", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
    rig.advance(6_000)
    ((_, question),) = questions(rig)
    assert question.ext["msgId"] == "odd"
    rig.advance(53_900)
    assert [question.ext["msgId"] for _, question in questions(rig)] == ["odd"]
    rig.restart()
    rig.beat(link := rig.connect(), "p1", producer=PGROUP)
    rig.advance(100)
    assert [question.ext["msgId"] for _, question in questions(rig)] == ["slow"]


def test_what_nobody_knows_of_is_given_up() -> None:
    rig = Rig(QUICK)
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    sent = half(rig, link, KEYS="k")
    rig.advance(1_000 + 2 * 2_000)
    assert len(questions(rig)) == 3
    rig.advance(2_000)
    assert questions(rig) == []
    (view,) = rig.messages(GIVEN_UP)
    assert (view.body, view.keys, view.property_of("REAL_TOPIC")) == (b"hello", "k", TOPIC)
    assert [tell.level for tell in rig.told] == ["WARNING"]
    assert PGROUP in rig.told[0].text
    assert end(rig, link, sent).remark == "The transaction has ended before"
    rig.restart()
    rig.advance(60_000)
    assert len(rig.messages(GIVEN_UP)) == 1


def test_a_producer_that_is_away_counts_as_asked() -> None:
    rig = Rig(QUICK)
    half(rig, rig.connect())
    rig.advance(7_000)
    assert len(rig.messages(GIVEN_UP)) == 1


def test_many_are_asked_in_pieces(rig: Rig, link: int) -> None:
    count = ASK_BATCH_MAX + 50
    for number in range(count):
        half(rig, link, str(number))
    rig.advance(6_000)
    asked = [question.ext["msgId"] for _, question in questions(rig)]
    assert sorted(asked) == sorted(map(str, range(count)))


def test_half_messages_past_their_retention_are_forgotten() -> None:
    store = StoreConfig(segment_bytes=500, retention_ms=60_000)
    rig = Rig(BrokerConfig(store=store, transaction_check_interval_ms=700_000))
    link = rig.connect()
    sent = half(rig, link)
    rig.advance(750_000)
    assert end(rig, link, sent).remark == "Find prepared transaction message failed"
    assert [tell.text for tell in rig.told if tell.level == "WARNING"] == [
        "an open transaction was discarded: its half message is past its retention, or damaged"
    ]
    rig.restart()
    rig.advance(60_000)


def test_an_open_transaction_does_not_end_because_many_have_come_since() -> None:
    store = StoreConfig(segment_bytes=500, retention_bytes=500, retention_check_interval_ms=500)
    rig = Rig(BrokerConfig(store=store))
    link = rig.connect()
    sent = half(rig, link, "first")
    for number in range(20):
        assert end(rig, link, half(rig, link, str(number)), ROLLBACK).code == 0
    rig.advance(1_000)
    rig.restart()
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    rig.advance(6_000)
    assert [question.ext["msgId"] for _, question in questions(rig)] == ["first"]
    assert end(rig, link, sent).code == 0
    assert len(published(rig)) == 1


@pytest.mark.parametrize("seconds", ["0", "60"])
@pytest.mark.parametrize("wait_ms", [0, 7_000])
def test_a_transaction_of_a_clock_that_was_ahead_is_asked_about_soon(
    rig: Rig, link: int, seconds: str, wait_ms: int
) -> None:
    half(rig, link, CHECK_IMMUNITY_TIME_IN_SECONDS=seconds)
    rig.advance(wait_ms)
    questions(rig)
    rig.now -= 3_600_000
    rig.restart()
    rig.beat(rig.connect(), "p1", producer=PGROUP)
    rig.advance(6_000)
    assert [question.ext["msgId"] for _, question in questions(rig)] == ["01"]


def test_properties_too_long_for_the_number_of_the_question_are_asked_about_without_it(
    rig: Rig, link: int
) -> None:
    room = props.PROPERTIES_BYTES_MAX
    room -= len("TRAN_MSG_true_UNIQ_KEY_01_PGROUP_tx-group_a__REAL_TOPIC_TopicA_REAL_QID_2_")
    room -= len("CLUSTER_DefaultCluster_")
    assert half(rig, link, a="x" * room).code == ResponseCode.SUCCESS
    rig.advance(6_000)
    ((_, question),) = questions(rig)
    assert decode_records(question.body)[0].property_of("TRANSACTION_CHECK_TIMES") is None


# -- restarts --------------------------------------------------------------------------------------


def test_a_restart_knows_what_is_open_and_how_often_was_asked(rig: Rig, link: int) -> None:
    sent = [half(rig, link, str(number)) for number in range(4)]
    end(rig, link, sent[1], COMMIT)
    rig.advance(6_000)
    questions(rig)
    end(rig, link, sent[2], ROLLBACK)
    late = half(rig, link, "late")
    rig.restart()
    rig.node.check()
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    assert end(rig, link, sent[2], COMMIT).remark == "The transaction has ended before"
    rig.advance(6_000)
    assert [question.ext["msgId"] for _, question in questions(rig)] == ["late"]
    rig.advance(24_000)
    found = {q.ext["msgId"]: decode_records(q.body)[0] for _, q in questions(rig)}
    assert {key: view.property_of("TRANSACTION_CHECK_TIMES") for key, view in found.items()} == {
        "0": "2",
        "3": "2",
    }
    for answer in (sent[0], sent[3], late):
        end(rig, link, answer, COMMIT)
    assert sorted(view.message_id for view in published(rig)) == ["0", "1", "3", "late"]


def test_the_progress_keeps_the_table_and_the_next_start_short(rig: Rig, link: int) -> None:
    for number in range(50):
        sent = half(rig, link, str(number))
        end(rig, link, sent, COMMIT if number % 2 else ROLLBACK)
        rig.advance(1_000)
    left = half(rig, link, "left")
    rig.advance(10_000)
    table = rig.store.table("transactions")
    assert set(dict(table.items())) == {"50", "half", "op"}
    assert (table.get("half"), table.get("op")) == (b"51", b"50")
    end(rig, link, left, ROLLBACK)
    half(rig, link)
    rig.advance(6_000)
    assert set(dict(table.items())) == {"51", "half", "op"}


def test_what_ended_while_older_ones_are_open_stays_ended(rig: Rig, link: int) -> None:
    old = half(rig, link, "old")
    rig.advance(3_000)
    fresh, ended = half(rig, link, "fresh"), half(rig, link, "ended")
    end(rig, link, ended)
    rig.advance(3_000)  # the progress is written when `old` is asked after
    rig.restart()
    link = rig.connect()
    assert end(rig, link, ended).remark == "The transaction has ended before"
    for sent in (old, fresh):
        assert end(rig, link, sent).code == ResponseCode.SUCCESS
    assert sorted(view.message_id for view in published(rig)) == ["ended", "fresh", "old"]


# -- a disk that refuses ---------------------------------------------------------------------------


@pytest.fixture
def owed(rig: Rig, link: int) -> Command:
    """The half message of a transaction that is decided, but the disk had no room for its message."""
    rig.send(link, b"first", queue_id=2)
    sent = half(rig, link, body=bytes(2_000))
    rig.disk.room_bytes = 1_000
    answer = end(rig, link, sent)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(rig.messages(OP)) == 1
    rig.disk.room_bytes = None
    return sent


def test_a_message_that_found_no_room_is_published_within_a_second_of_room(
    rig: Rig, link: int, owed: Command
) -> None:
    assert end(rig, link, owed, ROLLBACK).remark == "The transaction has ended before"
    rig.disk.room_bytes = 0
    rig.advance(20_000)
    told = [line.text for line in rig.told if line.text.startswith("transactions wait: ")]
    assert len(told) == 1  # not once for each of 20 trials
    assert len(published(rig)) == 1
    rig.disk.room_bytes = None
    rig.advance(1_000)
    assert [len(view.body) for view in published(rig)] == [5, 2_000]


def test_or_with_the_next_transaction_that_ends(rig: Rig, link: int, owed: Command) -> None:
    end(rig, link, half(rig, link, "02"))
    assert [len(view.body) for view in published(rig)] == [5, 2_000, 5]


def test_or_after_a_kill_though_its_place_was_taken(rig: Rig, link: int, owed: Command) -> None:
    rig.send(link, b"other", queue_id=2)
    rig.restart()
    assert [len(view.body) for view in published(rig)] == [5, 5, 2_000]
    rig.restart()
    assert len(published(rig)) == 3


def test_or_not_at_all_where_its_topic_is_deleted(rig: Rig, link: int, owed: Command) -> None:
    rig.ask(link, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    rig.advance(1_000)
    rig.restart()
    assert published(rig) == []


def test_questions_wait_for_a_full_disk(rig: Rig, link: int) -> None:
    half(rig, link)
    rig.disk.room_bytes = 0
    rig.advance(10_000)
    assert questions(rig) == []
    rig.disk.room_bytes = None
    rig.advance(1_000)
    assert len(questions(rig)) == 1


@pytest.mark.parametrize("what", [b"ADDRESS\x01", b"OUTCOME\x01", b"REAL_QID\x01"])
def test_an_operation_that_makes_no_sense_leaves_its_transaction_open(
    rig: Rig, link: int, what: bytes
) -> None:
    """The kill came before the index row was written, so no checksum covers its properties."""
    end(rig, link, half(rig, link))
    path = next(
        name for name in rig.disk.files if f"/{OP}/" in f"/{name}" and name.endswith(".log")
    )
    data = rig.disk.files[path].data
    data[data.index(what) + len(what)] ^= 0x40
    rig.restart()
    (text,) = [tell.text for tell in rig.told if tell.level == "ERROR"]
    assert text.startswith(f"{OP}: 1 damaged entries cannot be read.")
    rig.beat(rig.connect(), "p1", producer=PGROUP)
    rig.advance(100_000)
    assert questions(rig)


# -- power cuts, with flush=sync: what is lost must not be taken for done -----------------------------


@pytest.fixture
def sync() -> Rig:
    """A broker with flush=sync, and a producer on link 1."""
    rig = Rig(BrokerConfig(flush="sync"))
    rig.beat(rig.connect(), "p1", producer=PGROUP)
    return rig


@pytest.mark.parametrize("delay", ["0", "1"])
def test_a_message_lost_together_with_its_new_queue_is_published_again(
    sync: Rig, delay: str
) -> None:
    sent = half(sync, 1, DELAY=delay)
    sync.disk_answers = False
    sync.post(1, END, end_ext(sent), oneway=True)
    sync.disk_answers = True
    sync.lose_power(f"logs/{OP}/")
    assert len(sync.messages(OP)) == 2  # the second says the message's new address
    sync.advance(1_000)
    assert [view.body for view in published(sync)] == [b"hello"]


def bodies_after_a_settled_restart(rig: Rig) -> list[bytes]:
    """What is published once the producer, which knows what it decided, has committed what it is asked about."""
    link = rig.connect()
    rig.beat(link, "p1", producer=PGROUP)
    rig.advance(100_000)
    for _, question in questions(rig):
        names = ("tranStateTableOffset", "commitLogOffset", "msgId")
        ext = {name: question.ext[name] for name in names}
        ext |= {"producerGroup": PGROUP, "commitOrRollback": str(COMMIT)}
        rig.post(link, END, ext | {"fromTransactionCheck": "true"}, oneway=True)
    rig.node.check()
    return [view.body for view in published(rig)]


@pytest.mark.parametrize("written_back", [(), ("tables/",), ("tables/", f"logs/{OP}/")])
@pytest.mark.parametrize("asked", [True, False])
def test_a_commit_lost_with_the_power_leaves_its_transaction_open(
    sync: Rig, written_back: tuple[str, ...], *, asked: bool
) -> None:
    """Its end is not on the disk yet when another transaction's check writes the progress."""
    if asked:  # it has a row
        sent = half(sync, 1, body=b"committed")
        sync.advance(5_000)
        half(sync, 1, "02", b"another")
        sync.advance(1_000)
    else:
        half(sync, 1, "02", b"another")
        sync.advance(3_000)
        sent = half(sync, 1, body=b"committed")
    sync.disk_answers = False
    sync.post(1, END, end_ext(sent), oneway=True)
    assert [view.body for view in published(sync)] == [b"committed"]
    sync.advance(5_000 if asked else 3_000)
    assert "02" in [question.ext["msgId"] for _, question in questions(sync)]
    sync.disk_answers = True
    sync.lose_power(*written_back)
    assert sorted(bodies_after_a_settled_restart(sync)) == [b"another", b"committed"]


def test_progress_follows_when_the_disk_has_what_ended(sync: Rig) -> None:
    table = sync.store.table("transactions")
    sent = half(sync, 1)
    sync.advance(5_000)
    half(sync, 1, "02")
    sync.advance(1_000)
    sync.disk_answers = False
    sync.post(1, END, end_ext(sent), oneway=True)
    sync.advance(5_000)
    assert ({"0", "1"} <= dict(table.items()).keys(), table.get("op")) == (True, None)
    sync.disk_answers = True
    sync.answer_flushes()
    sync.advance(30_000)
    assert ("0" in table, "1" in table, table.get("op")) == (False, True, b"1")


@pytest.fixture
def owed_sync(sync: Rig) -> Rig:
    """A broker with a decided transaction on the disk whose message found no room."""
    sync.send(1, b"first", queue_id=2)
    sent = half(sync, 1, body=bytes(2_000))
    sync.disk.room_bytes = 1_000
    sync.post(1, END, end_ext(sent), oneway=True)
    assert len(sync.messages(OP)) == 1
    sync.store.flush()
    sync.disk.room_bytes = None
    return sync


@pytest.mark.parametrize("restarted", [True, False])
def test_a_message_published_late_and_lost_with_the_power_is_published_again(
    owed_sync: Rig, *, restarted: bool
) -> None:
    rig = owed_sync
    rig.disk_answers = False
    if restarted:
        rig.restart()
    else:
        rig.advance(10_000)
    assert [len(view.body) for view in published(rig)] == [5, 2_000]
    rig.disk_answers = True
    rig.lose_power("tables/")
    assert [len(view.body) for view in published(rig)] == [5, 2_000]


def test_a_clean_stop_leaves_no_operation_to_be_read_again(sync: Rig) -> None:
    sent = half(sync, 1)
    sync.disk_answers = False
    sync.post(1, END, end_ext(sent), oneway=True)
    sync.event(Asked(1, Stop()))
    assert sync.answers == {1: None}
    sync.lose_power()
    table = sync.store.table("transactions")
    assert (table.get("half"), table.get("op")) == (b"1", b"1")
    assert [view.body for view in published(sync)] == [b"hello"]
