from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import queues, reply, rng

from steelyard.errors import (
    CallTimeoutError,
    ConnectError,
    ProtocolError,
    RemotingError,
    RouteError,
)
from steelyard.nodes.route_cache import (
    QUEUES_MAX,
    RouteAsked,
    RouteCache,
    RouteNews,
    RoutePace,
    read_route,
)
from steelyard.nodes.seam import Effect
from steelyard.nodes.starting import COMPLAINT_MS
from steelyard.types import LogLine
from steelyard.wire.remoting.bodies import BrokerData, QueueData, TopicRouteData
from steelyard.wire.remoting.command import Command

TWO = TopicRouteData(
    (QueueData("b", 2, 1, 6), QueueData("a", 1, 2, 6)),
    (BrokerData("c", "a", {0: "a:1"}), BrokerData("c", "b", {0: "b:1", 1: "b:2"})),
)


def cache(*nameservers: str, default: str = "") -> RouteCache:
    return RouteCache(nameservers, rng(), default_topic=default, default_topic_queues=4)


def test_a_route_lists_queues_in_the_order_of_brokers() -> None:
    route = read_route("T", TWO)
    assert route.publish == queues("T", "a", 0, 1) + queues("T", "b", 0)
    assert route.subscribe == queues("T", "a", 0) + queues("T", "b", 0, 1)
    assert route.masters == {"a": "a:1", "b": "b:1"}
    assert route.readers == {"a": "a:1", "b": "b:1"}


def test_without_a_master_a_broker_can_only_be_read() -> None:
    data = TopicRouteData((QueueData("a", 1, 1, 6),), (BrokerData("c", "a", {2: "a:3", 1: "a:2"}),))
    route = read_route("T", data)
    assert (route.publish, route.subscribe) == ((), queues("T", "a", 0))
    assert (dict(route.masters), dict(route.readers)) == ({}, {"a": "a:2"})


@pytest.mark.parametrize(("perm", "published", "subscribed"), [(2, 1, 0), (4, 0, 1), (0, 0, 0)])
def test_permissions_count(perm: int, published: int, subscribed: int) -> None:
    data = TopicRouteData((QueueData("a", 1, 1, perm),), TWO.broker_datas)
    route = read_route("T", data)
    assert (len(route.publish), len(route.subscribe)) == (published, subscribed)


def test_a_strictly_ordered_topic_keeps_its_queues_while_a_broker_is_away() -> None:
    data = TopicRouteData(TWO.queue_datas[:1], TWO.broker_datas[1:], "a:2;b:1")
    assert read_route("T", data).publish == queues("T", "a", 0, 1) + queues("T", "b", 0)


@pytest.mark.parametrize(
    "data",
    [
        TopicRouteData((QueueData("a", -1, 1, 6),), ()),
        TopicRouteData((QueueData("a", 1, QUEUES_MAX, 6), QueueData("b", 1, 1, 6)), ()),
        TopicRouteData((), (), "a"),
        TopicRouteData((), (), "a:x"),
        TopicRouteData((), (), f"a:{QUEUES_MAX};b:1"),
    ],
)
def test_numbers_out_of_range_are_the_peers_fault(data: TopicRouteData) -> None:
    with pytest.raises(ProtocolError, match="route of T"):
        read_route("T", data)


def test_a_question_is_asked_once_and_its_answer_kept() -> None:
    subject = cache("n:1")
    (asked,) = subject.want("T")
    assert asked == RouteAsked("T", "T", "n:1")
    assert subject.want("T") == []
    assert subject.asking
    assert subject.answered(asked, reply(body=TWO), 0, []) == RouteNews(done="T", changed=True)
    assert not subject.asking
    assert subject.want("T") == []
    (again,) = subject.refresh()
    assert subject.answered(again, reply(body=TWO), 0, []) == RouteNews(done="T")
    assert subject.masters() == ["a:1", "b:1"]


def test_one_nameserver_is_asked_until_it_fails_then_the_next() -> None:
    subject = cache("n:1", "n:2", "n:3")
    (asked,) = subject.want("T")
    error = CallTimeoutError("late")
    order = [asked.nameserver]
    effects: list[Effect] = []
    news = subject.answered(asked, error, 0, effects)
    while news.again:
        order.append(news.again[0].nameserver)
        news = subject.answered(news.again[0], error, 0, effects)
    assert effects == [LogLine("WARNING", "late")] * 3
    assert sorted(order) == ["n:1", "n:2", "n:3"]
    assert (news.done, news.error) == ("T", error)
    (later,) = subject.want("T")
    assert later.nameserver == order[0]
    subject.answered(later, reply(body=TWO), 0, [])
    assert subject.refresh()[0].nameserver == order[0]
    subject.check()


def test_a_late_failure_does_not_move_on_twice() -> None:
    """Two questions failed at one nameserver: the next one gets both, and stays."""
    subject = cache("n:1", "n:2", "n:3")
    (one,), (two,) = subject.want("T"), subject.want("U")
    following = subject.answered(one, CallTimeoutError("late"), 0, []).again[0].nameserver
    assert subject.answered(two, CallTimeoutError("late"), 0, []).again[0].nameserver == following
    assert subject.want("V")[0].nameserver == following


@pytest.mark.parametrize("answer", [reply(1, "oops"), reply(body=b"{"), reply(body=b'{"a":1}')])
def test_a_nameserver_that_talks_nonsense_has_failed(answer: object) -> None:
    subject = cache("n:1")
    (asked,) = subject.want("T")
    effects: list[Effect] = []
    news = subject.answered(asked, answer, 0, effects)  # type: ignore[arg-type]
    assert news.done == "T"
    assert isinstance(news.error, RouteError)
    (told,) = effects
    assert isinstance(told, LogLine)
    assert "n:1" in told.text


def test_an_unknown_topic_borrows_the_default_topics_brokers() -> None:
    subject = cache("n:1", default="TBW102")
    (asked,) = subject.want("T")
    (again,) = subject.answered(asked, reply(17), 0, []).again
    assert again == RouteAsked("T", "TBW102", "n:1")
    data = TopicRouteData((QueueData("a", 8, 2, 7),), TWO.broker_datas)
    assert subject.answered(again, reply(body=data), 0, []).changed
    route = subject.route("T")
    assert route is not None
    assert route.publish == queues("T", "a", 0, 1, 2, 3)


def test_a_route_stays_when_the_nameserver_forgets_it() -> None:
    subject = cache("n:1")
    subject.answered(subject.want("T")[0], reply(body=TWO), 0, [])
    before = subject.route("T")
    news = subject.answered(subject.refresh()[0], reply(17), 0, [])
    assert news == RouteNews(done="T")
    assert subject.route("T") == before


def test_no_route_and_none_wanted() -> None:
    subject = cache("n:1")
    (asked,) = subject.want("T")
    news = subject.answered(asked, reply(17), 0, [])
    assert isinstance(news.error, RouteError)
    assert [item.topic for item in subject.missing()] == ["T"]
    subject.forget("T")
    assert subject.missing() == subject.refresh() == []
    assert cache().want("T") == []


def test_the_pace_quickens_in_a_hurry_and_slows_down_again() -> None:
    pace = RoutePace(30_000)
    assert pace.next(0) == 30_000
    assert pace.hurry(10_000) == 10_500
    assert pace.hurry(10_100) is None
    now, waits = 10_500, []
    while now < 200_000:
        following = pace.next(now)
        waits.append(following - now)
        now = following
    a_minute_of_restarts = [1_000] + 31 * [2_000]
    assert waits[:38] == [*a_minute_of_restarts, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


def test_a_nameserver_that_fails_is_told_once_and_then_every_half_minute() -> None:
    """1. It fails 10,000 times within a second. 2. It fails again half a minute later. 3. It answers, and fails again."""
    subject = cache("n:1")
    told: list[Effect] = []

    def ask(answer: Command | RemotingError, now: int) -> None:
        (asked,) = subject.renew("T")
        subject.answered(asked, answer, now, told)

    refused = ConnectError("cannot connect to n:1: Connection refused")
    for number in range(10_000):
        ask(refused, number // 10)
    assert told == [LogLine("WARNING", str(refused))]
    ask(refused, COMPLAINT_MS)
    since = "it failed 10000 times since the last warning"
    assert told.pop() == LogLine("WARNING", f"{refused}; {since}")
    ask(reply(body=TWO), COMPLAINT_MS + 1)
    assert told.pop() == LogLine("INFO", "nameserver n:1 answers again")
    ask(reply(17), COMPLAINT_MS + 1)
    ask(refused, COMPLAINT_MS + 2)
    assert told == [LogLine("WARNING", str(refused))] * 2
