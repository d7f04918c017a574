"""SQL92 conditions at the broker: 46, heartbeats, pulls that find, skip, wait and wake."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig, StoreConfig
from steelyard.groups.remoting.subscriptions import Filter
from steelyard.nodes.broker import filters
from steelyard.nodes.broker.filters import read_matching
from steelyard.nodes.broker.turns import SLICE
from steelyard.sql92.parser import parse
from steelyard.types import Effort
from steelyard.wire.remoting.bodies import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records

PULL = RequestCode.PULL_MESSAGE
SUSPEND, SUBSCRIPTION = 2, 4


def bodies(answer: Command | None) -> list[bytes]:
    assert answer is not None
    return [view.body for view in decode_records(answer.body)]


def subscription(expression: str, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(TOPIC, expression, expression_type=kind, sub_version=1)


def beat(rig: Rig, link: int, expression: str, kind: str = "SQL92") -> Command:
    consumer = ConsumerData(GROUP, subscription_data_set=(subscription(expression, kind),))
    body = HeartbeatData("c1", consumer_data_set=(consumer,))
    return rig.ask(link, RequestCode.HEART_BEAT, body=body)


def fill(rig: Rig, link: int, count: int = 10) -> None:
    """Messages 0, 1, ... with their number as property `n`, and a tag."""
    for number in range(count):
        tag = "even" if number % 2 == 0 else "odd"
        rig.send(link, b"%d" % number, i=f"TAGS\x01{tag}\x02n\x01{number}\x02big\x01{number}000")


@pytest.fixture
def link(rig: Rig) -> int:
    link = rig.connect()
    fill(rig, link)
    return link


# -- asking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code", "remark"),
    [
        (None, ResponseCode.SUCCESS, ""),
        (subscription("no || matter", "TAG"), ResponseCode.SUCCESS, ""),
        (subscription("a > 1"), ResponseCode.SUCCESS, ""),
        (
            subscription("a >"),
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "SQL92: expected a property, a text, a number or a parenthesis at character 3,"
            " not the end",
        ),
        (
            subscription("a > 1", "SQL93"),
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "expressions are of type TAG or SQL92, not 'SQL93'",
        ),
    ],
)
def test_a_client_asks_whether_its_expression_can_be_used(
    rig: Rig, data: SubscriptionData | None, code: ResponseCode, remark: str
) -> None:
    body = CheckClientBody(data, "c1", GROUP)
    answer = rig.ask(rig.connect(), RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.code, answer.remark) == (code, remark)


def test_a_broker_may_filter_by_tags_only() -> None:
    rig = Rig(BrokerConfig(property_filter=False))
    link = rig.connect()
    rig.send(link)
    refusal = "The broker does not support consumer to filter message by SQL92"
    body = CheckClientBody(subscription("a > 1"), "c1", GROUP)
    answer = rig.ask(link, RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, refusal)
    assert beat(rig, link, "a > 1").code == ResponseCode.SUCCESS
    answer = rig.ask(link, PULL, pull_ext())
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, refusal)
    ext = pull_ext(sysFlag=SUBSCRIPTION, expressionType="SQL92", subscription="a > 1")
    assert rig.ask(link, PULL, ext).remark == refusal


# -- pulling ---------------------------------------------------------------------------------------


def test_the_heartbeats_condition_filters(rig: Rig, link: int) -> None:
    beat(rig, link, "TAGS = 'odd' and n between 2 and 8")
    answer = rig.ask(link, PULL, pull_ext(maxMsgNums=2))
    assert bodies(answer) == [b"3", b"5"]
    assert answer.ext["nextBeginOffset"] == "6"
    answer = rig.ask(link, PULL, pull_ext(6))
    assert (bodies(answer), answer.ext["nextBeginOffset"]) == ([b"7"], "10")


def test_the_pulls_own_condition_filters(rig: Rig, link: int) -> None:
    ext = pull_ext(sysFlag=SUBSCRIPTION, expressionType="SQL92", subscription="n > 7")
    assert bodies(rig.ask(link, PULL, ext)) == [b"8", b"9"]


def test_a_condition_that_could_not_be_read_refuses_the_pulls_not_the_heartbeat(
    rig: Rig, link: int
) -> None:
    assert beat(rig, link, "n >").code == ResponseCode.SUCCESS
    answer = rig.ask(link, PULL, pull_ext())
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "Your expression may be wrong! SQL92: " in answer.remark


def test_values_that_cannot_be_compared_do_not_match(rig: Rig) -> None:
    link = rig.connect()
    for value in ("1", "many", "3"):
        rig.send(link, value.encode(), i=f"n\x01{value}")
    beat(rig, link, "n > 0")
    assert bodies(rig.ask(link, PULL, pull_ext())) == [b"1", b"3"]


def test_nothing_that_matches_moves_the_puller_on(rig: Rig, link: int) -> None:
    beat(rig, link, "n = 77")
    answer = rig.ask(link, PULL, pull_ext(3))
    assert (answer.code, answer.remark) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
    )
    assert answer.ext["nextBeginOffset"] == "10"


def test_a_held_pull_sleeps_until_something_matches(rig: Rig, link: int) -> None:
    beat(rig, link, "n = 77")
    opaque = rig.post(link, PULL, pull_ext(10))
    rig.send(link, b"other", i="n\x0176")
    rig.send(link, b"none")
    assert rig.reply_to(link, opaque) is None
    rig.send(link, b"that", i="n\x0177")
    answer = rig.reply_to(link, opaque)
    assert (bodies(answer), answer and answer.ext["nextBeginOffset"]) == ([b"that"], "13")


def test_a_look_at_many_messages_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "SCAN_MESSAGES_MAX", 4)
    link = rig.connect()
    fill(rig, link)
    beat(rig, link, "n = 9")
    found = [rig.ask(link, PULL, pull_ext(offset)) for offset in (0, 4, 8)]
    assert [bodies(answer) for answer in found] == [[], [], [b"9"]]
    assert [answer.ext["nextBeginOffset"] for answer in found] == ["4", "8", "10"]


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(0, 39),
    st.integers(1, 10),
    st.integers(1, 900),
    st.sampled_from((150, 400, 10_000)),
)
def test_a_filtered_read_is_what_a_plain_one_would_give_filtered(
    values: list[int], offset: int, count_max: int, bytes_max: int, piece: int
) -> None:
    rig = Rig(BrokerConfig(store=StoreConfig(segment_bytes=1_000)))
    link = rig.connect()
    for number, value in enumerate(values):
        rig.send(link, b"%d" % number * (value + 1), i=f"n\x01{value}")
    offset = min(offset, len(values) - 1)
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    wanted_ones = Filter(condition=parse("n in ('1', '3')"))
    entries = {number: log.entry_at(number) for number in range(len(values))}
    wanted = [number for number in range(offset, len(values)) if values[number] in (1, 3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "_PIECE_BYTES", piece)
        found = read_matching(
            log, offset, count_max, bytes_max, wanted_ones, len(values), Effort(SLICE)
        )
    taken: list[int] = []
    for number in wanted[:count_max]:
        if taken and sum(len(entries[n]) for n in (*taken, number)) > bytes_max:
            break
        taken.append(number)
    assert found.data == b"".join(entries[number] for number in taken)
    assert (found.count, found.first_offset) == (len(taken), (taken or [len(values)])[0])
    assert not [number for number in wanted if number < found.next_offset and number not in taken]
    assert found.next_offset > offset
