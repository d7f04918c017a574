"""Holdings and their chart, by hand."""

from __future__ import annotations

from steelyard.ledger.events import Delivered, MemberJoined, Record
from steelyard.spark.ownership import (
    DeliverySpan,
    busiest_group,
    holdings,
    letters,
    ownership_chart,
)


def joined(*clients: str, group: str = "g") -> list[Record]:
    return [
        MemberJoined(
            at=0, broker="a", group=group, client=client, cause="heartbeat", members=clients
        )
        for client in clients
    ]


def got(
    at: int,
    until: int,
    client: str,
    queue: int = 0,
    topic: str = "T",
    group: str = "g",
    count: int = 1,
) -> Delivered:
    return Delivered(
        at=at,
        broker="a",
        group=group,
        client=client,
        topic=topic,
        queue=queue,
        until=until,
        first=0,
        next=count,
        count=count,
        stored=at,
    )


def test_holdings_end_with_another_member_or_in_silence() -> None:
    records = [
        *joined("m1", "m2"),
        got(0, 900, "m1"),
        got(1_000, 1_900, "m1"),
        got(2_000, 2_500, "m2"),
        got(7_501, 8_000, "m2"),  # 5 001 ms later
        got(100, 200, "127.0.0.1:77"),  # no member
        got(500, 600, "m2", queue=1),
        got(500, 600, "m2", group="h"),
    ]
    assert holdings(records, "g") == [
        DeliverySpan("a:0", "m1", 0, 1_900),
        DeliverySpan("a:0", "m2", 2_000, 2_500),
        DeliverySpan("a:0", "m2", 7_501, 8_000),
        DeliverySpan("a:1", "m2", 500, 600),
    ]


def test_queues_carry_the_topic_where_there_are_several() -> None:
    records = [*joined("m"), got(0, 1, "m"), got(0, 1, "m", topic="%RETRY%g")]
    assert [held.queue for held in holdings(records, "g")] == ["%RETRY%g a:0", "T a:0"]


def test_the_busiest_group_is_the_one_with_most_messages_to_members() -> None:
    records = [
        *joined("m"),
        *joined("n", group="h"),
        got(0, 1, "m", count=5),
        got(0, 1, "n", group="h", count=6),
        got(0, 1, "spark", group="spark", count=99),
    ]
    assert busiest_group(records) == "h"
    assert busiest_group([]) == ""


def test_letters_follow_the_order_of_appearance_and_run_out() -> None:
    held = [DeliverySpan("q", f"m{n}", 100 - n, 100 - n) for n in range(60)]
    found = letters(held)
    assert [found[f"m{n}"] for n in (59, 58, 34, 33, 8, 7)] == ["A", "B", "Z", "a", "z", "#"]


def test_the_chart() -> None:
    records = [
        *joined("one@1", "two@2"),
        got(0, 9_999, "one@1"),
        got(0, 4_999, "one@1", queue=1),
        got(7_000, 9_999, "two@2", queue=1),
    ]
    assert ownership_chart(records, width=10).splitlines() == [
        "group g",
        "     |00:00:00",
        "a:0  AAAAAAAAAA",
        "a:1  AAAAA··BBB",
        "A = one@1",
        "B = two@2",
        "one column is 1.0 s, times are UTC; · no member received messages",
    ]


def test_the_chart_of_nothing() -> None:
    assert ownership_chart([]) == "no member received any messages"


def test_the_chart_of_one_moment_is_one_column_wide() -> None:
    assert ownership_chart([*joined("m"), got(5, 5, "m")]).splitlines()[2] == "a:0  A"
