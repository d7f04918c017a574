"""Reads that take long wait for their turns, others are served meanwhile; what fits into no frame is passed over."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from tests.nodes.broker.conftest import Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.conversion import messages
from steelyard.groups.remoting.subscriptions import ALL
from steelyard.nodes.broker.conversion import to_rocketmq as module
from steelyard.nodes.broker.remoting import pull as pull_module
from steelyard.nodes.broker.skipped import INTERVAL_MS
from steelyard.nodes.broker.turns import SLICE, TURNS_TIMER
from steelyard.nodes.seam import Closed
from steelyard.store.log import Log
from steelyard.types import Effort
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    KVTable,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX, encode
from steelyard.wire.remoting.message import decode_records

PULL = RequestCode.PULL_MESSAGE
SUBSCRIPTION = 4


def queue(rig: Rig) -> Log:
    rig.send(rig.connect(), b"first")
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    return log


def produce(log: Log, values: list[bytes], compression: int = Compression.ZSTD) -> int:
    first = log.max_offset
    records = [Record(first + n, START, None, value) for n, value in enumerate(values)]
    return log.append_batch(write_batch(records, compression=compression), len(values), START)


def ask_sql(condition: str) -> dict[str, object]:
    return {"sysFlag": SUBSCRIPTION, "expressionType": "SQL92", "subscription": condition}


def ask_tag(tag: str) -> dict[str, object]:
    return {"sysFlag": SUBSCRIPTION, "expressionType": "TAG", "subscription": tag}


def turns_until_answered(rig: Rig, link: int, opaque: int) -> int:
    """How many turns it takes."""
    turns = 0
    while rig.reply_to(link, opaque) is None:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
        turns += 1
    return turns


def test_a_pull_from_the_middle_of_a_large_batch_waits_for_its_turns(rig: Rig) -> None:
    log = queue(rig)
    produce(log, [b"%09d" % number for number in range(100_000)])
    heavy, light = rig.connect(), rig.connect()
    opaque = rig.post(heavy, PULL, pull_ext(90_001, **ask_tag("*")))
    assert rig.reply_to(heavy, opaque) is None
    answer = rig.ask(light, PULL, pull_ext(0, maxMsgNums=1, **ask_tag("*")))
    assert [view.body for view in decode_records(answer.body)] == [b"first"]
    assert turns_until_answered(rig, heavy, opaque) > 3
    found = rig.reply_to(heavy, opaque)
    assert found is not None
    assert [int(view.body) for view in decode_records(found.body)] == list(range(90_000, 90_032))
    # What was unpacked is kept: the next pull is answered at once.
    found = rig.ask(heavy, PULL, pull_ext(90_033, **ask_tag("*")))
    assert found.ext["nextBeginOffset"] == "90065"


def test_the_begin_of_a_large_batch_is_there_at_once(rig: Rig) -> None:
    log = queue(rig)
    produce(log, [bytes(20)] * 100_000)
    answer = rig.ask(rig.link, PULL, pull_ext(1, **ask_tag("*")))
    assert len(decode_records(answer.body)) == 32
    rig.node.check()


@pytest.mark.parametrize("dialect", ["rocketmq", "kafka"])
def test_a_condition_that_matches_nothing_waits_for_its_turns(rig: Rig, dialect: str) -> None:
    log = queue(rig)
    if dialect == "kafka":
        produce(log, [b"x"] * 5_000)
    else:
        for _ in range(999):
            rig.send(rig.link)
    heavy, light = rig.connect(), rig.connect()
    opaque = rig.post(heavy, PULL, pull_ext(1, **ask_sql("a = 1")))
    assert rig.reply_to(heavy, opaque) is None
    assert rig.ask(light, PULL, pull_ext(0, maxMsgNums=1, **ask_tag("*"))).code == 0
    turns_until_answered(rig, heavy, opaque)
    answer = rig.reply_to(heavy, opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert int(answer.ext["nextBeginOffset"]) > 100


def test_a_long_condition_takes_few_messages_in_a_turn(rig: Rig) -> None:
    """Its cost for one message is that of thousands of short ones."""
    for _ in range(20):
        rig.send(rig.connect())
    condition = " OR ".join(["a = 1"] * 1_800)
    opaque = rig.post(rig.link, PULL, pull_ext(0, **ask_sql(condition)))
    turns_until_answered(rig, rig.link, opaque)
    answer = rig.reply_to(rig.link, opaque)
    assert answer is not None
    assert 1 < int(answer.ext["nextBeginOffset"]) < 6


def test_tags_that_match_little_are_looked_for_in_a_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_module, "AT_ONCE_ROWS", 4)
    link = rig.connect()
    for number in range(10):
        rig.send(link, b"%d" % number, i="TAGS\x01rare" if number in (3, 9) else "TAGS\x01other")
    opaque = rig.post(link, PULL, pull_ext(0, **ask_tag("rare")))
    assert turns_until_answered(rig, link, opaque) == 1
    answer = rig.reply_to(link, opaque)
    assert answer is not None
    assert [view.body for view in decode_records(answer.body)] == [b"3", b"9"]
    assert rig.ask(link, PULL, pull_ext(7, **ask_tag("rare"))).ext["nextBeginOffset"] == "10"


def test_a_held_pull_that_takes_long_does_not_delay_the_producer(rig: Rig) -> None:
    """What wakes it is another client's request; the search is done in turns."""
    log = queue(rig)
    opaque = rig.post(rig.link, PULL, pull_ext(1, **ask_sql("a = 1"), suspendTimeoutMillis=9_000))
    held = rig.post(
        rig.link,
        PULL,
        pull_ext(1, **(ask_sql("a = 1") | {"sysFlag": SUBSCRIPTION | 2})),
    )
    assert rig.reply_to(rig.link, opaque) is not None
    assert rig.reply_to(rig.link, held) is None
    produce(log, [b"x"] * 5_000)
    rig.send(rig.connect())
    assert rig.reply_to(1, held) is None
    assert turns_until_answered(rig, 1, held) >= 1


def test_a_link_that_is_closed_takes_its_pulls_with_it(rig: Rig) -> None:
    log = queue(rig)
    produce(log, [b"%09d" % number for number in range(100_000)])
    heavy = rig.connect()
    opaque = rig.post(heavy, PULL, pull_ext(90_001, **ask_tag("*")))
    rig.event(Closed(heavy, "gone"))
    rig.advance(100)
    assert rig.reply_to(heavy, opaque) is None
    assert TURNS_TIMER not in rig.timers


def test_too_many_pulls_that_take_long_are_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.turns.LINK_MAX", 2)
    log = queue(rig)
    produce(log, [b"%09d" % number for number in range(100_000)])
    opaques = [rig.post(rig.link, PULL, pull_ext(90_001, **ask_tag("*"))) for _ in range(3)]
    answers = [rig.reply_to(rig.link, opaque) for opaque in opaques]
    assert [answer and answer.code for answer in answers] == [None, None, ResponseCode.SYSTEM_BUSY]
    for opaque in opaques[:2]:
        turns_until_answered(rig, rig.link, opaque)


# -- what fits into no frame -----------------------------------------------------------------------


def passed_over(rig: Rig) -> str:
    answer = rig.ask(rig.connect(), RequestCode.GET_BROKER_RUNTIME_INFO)
    return fastjson.read(KVTable, answer.body).table["messagesPassedOver"]


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.NONE])
def test_a_record_that_fits_into_no_frame_is_passed_over(rig: Rig, compression: int) -> None:
    log = queue(rig)
    produce(log, [b"before", bytes(17_000_000), b"after"], compression)
    rig.told.clear()
    offset, found = 0, list[bytes]()
    while offset < 4:
        opaque = rig.post(rig.link, PULL, pull_ext(offset, **ask_tag("*")))
        turns_until_answered(rig, rig.link, opaque)
        answer = rig.reply_to(rig.link, opaque)
        assert answer is not None
        found += [view.body for view in decode_records(answer.body)]
        offset = int(answer.ext["nextBeginOffset"])
    assert found == [b"first", b"before", b"after"]
    (told,) = [each for each in rig.told if each.level == "WARNING"]
    assert all(part in told.text for part in (TOPIC, "queue 0", "offset 2", "17000"))
    assert passed_over(rig) == "1"


def test_what_just_fits_is_given(rig: Rig) -> None:
    log = queue(rig)
    size = ANSWER_BYTES_MAX - 400
    produce(log, [bytes(size), bytes(size)])
    offset = 1
    for _ in range(2):
        opaque = rig.post(rig.link, PULL, pull_ext(offset, **ask_tag("*")))
        turns_until_answered(rig, rig.link, opaque)
        answer = rig.reply_to(rig.link, opaque)
        assert answer is not None
        assert len(answer.body) > size
        assert len(encode(answer)) <= 16 * 1024 * 1024
        offset = int(answer.ext["nextBeginOffset"])
    assert offset == 3
    assert passed_over(rig) == "0"


def test_the_warning_comes_once_in_a_while_and_counts_the_rest(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "ANSWER_BYTES_MAX", 1_000)
    log = queue(rig)
    produce(log, [bytes(2_000)] * 5 + [b"last"])
    rig.told.clear()
    for _ in range(3):
        assert rig.ask(rig.link, PULL, pull_ext(1, **ask_tag("*"))).ext["nextBeginOffset"] == "7"
    rig.advance(INTERVAL_MS)
    rig.connect()
    told = [each.text for each in rig.told if each.level == "WARNING"]
    assert [text.split(" ")[0] for text in told] == ["5", "10"]
    assert passed_over(rig) == "15"


def test_a_record_of_our_own_dialect_that_fits_into_no_frame_is_passed_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_module, "ANSWER_BYTES_MAX", 1_000)
    link = rig.connect()
    for body in (b"small", bytes(2_000), b"behind"):
        rig.send(link, body)
    found = [rig.ask(link, PULL, pull_ext(n, maxMsgNums=1, **ask_tag("*"))) for n in range(3)]
    assert [answer.code for answer in found] == [0, ResponseCode.PULL_RETRY_IMMEDIATELY, 0]
    assert [answer.ext["nextBeginOffset"] for answer in found] == ["1", "2", "3"]
    assert passed_over(rig) == "1"


def test_an_answer_that_fits_into_no_frame_is_an_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.remoting.service.ANSWER_BYTES_MAX", 10)
    answer = rig.ask(rig.connect(), RequestCode.GET_ALL_TOPIC_CONFIG)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "an answer holds at most" in answer.remark


def summed(batch: bytearray) -> bytes:
    """The batch as a producer sends it that made it so, with the checksum that belongs to it."""
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_what_follows_nonsense_in_a_batch_is_passed_over(rig: Rig) -> None:
    log = queue(rig)
    batch = write_batch([Record(1 + n, START, None, b"%d" % n) for n in range(9)])
    cut = bytearray(batch)
    cut[-5:] = b"\x7f" * 5
    log.append_batch(summed(cut), 9, START)
    produce(log, [b"behind"])
    answer = rig.ask(rig.link, PULL, pull_ext(1, **ask_tag("*")))
    assert [view.body for view in decode_records(answer.body)][-1] == b"behind"
    assert answer.ext["nextBeginOffset"] == "11"
    assert passed_over(rig) == "1"


def test_a_timestamp_beyond_all_time_is_that_of_the_broker(rig: Rig) -> None:
    log = queue(rig)
    batch = bytearray(write_batch([Record(1, 0, None, b"x"), Record(2, 2**62, None, b"y")]))
    batch[27:35] = (2**63 - 1).to_bytes(8, "big")
    log.append_batch(summed(batch), 2, START)
    answer = rig.ask(rig.link, PULL, pull_ext(1, **ask_tag("*")))
    assert [view.born_timestamp for view in decode_records(answer.body)] == [2**63 - 1, START]


def test_an_effort_is_spent(rig: Rig) -> None:
    """A turn of the crossing ends soon after its effort, whatever the batch holds."""
    log = queue(rig)
    produce(log, [b""] * 100_000)
    effort = Effort(SLICE)
    conversion = module.Conversion(bytes(8))
    assert conversion.read(log, 99_000, 32, 1 << 30, ALL, 1 << 40, effort) is None
    assert -1_000 < effort.left <= 0


# -- heartbeats --------------------------------------------------------------------------------------


def test_a_heartbeat_has_a_bounded_number_of_subscriptions(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.remoting.clients.HEARTBEAT_SUBSCRIPTIONS_MAX", 6)
    topics = tuple(SubscriptionData(f"t{number}", "*") for number in range(3))
    for count, code in ((2, ResponseCode.SUCCESS), (3, ResponseCode.SYSTEM_ERROR)):
        consumers = tuple(
            ConsumerData(f"g{number}", subscription_data_set=topics) for number in range(count)
        )
        body = HeartbeatData("c", (), consumers)
        assert rig.ask(rig.connect(), RequestCode.HEART_BEAT, body=body).code == code
