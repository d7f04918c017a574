"""What happens in a cluster is on the page within a second: groups that grow and shrink, and a broker that dies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.peers.console import matrix
from tests.peers.console.browsing import opened
from tests.peers.console.serving import Members, Served, members, served
from tests.peers.console.topics import create_topic
from tests.waiting import until

from steelyard import PushConsumer
from steelyard.client.blocking.admin import Admin

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.peer

WITHIN_S = 1.0
"""What is promised. The median must keep it; a busy machine may be late now and then."""
LATE_S = 10.0

PARTITIONS = 12


def go(page: Page, cluster: Served, route: str) -> None:
    page.goto(f"{cluster.console}/#/{route}")


def check(delays: list[float]) -> None:
    print(f"delays in s: {', '.join(f'{each:.2f}' for each in delays)}")
    assert statistics.median(delays) <= WITHIN_S, delays
    assert max(delays) <= LATE_S, delays


def test_a_kafka_group_grows_and_shrinks(
    cluster: Served, browser: Browser, group_members: Members, name: str
) -> None:
    create_topic(cluster, name, PARTITIONS)
    group_members.kafka(name, "one", name)
    wanted = [
        (("two", "start"), 2),
        (("three", "start"), 3),
        (("two", "leave"), 2),
        (("three", "leave"), 1),
    ]
    with (
        opened(browser, cluster.console) as (page, _),
        matrix.truth(matrix.of_kafka(cluster.bootstrap, name)) as truth,
    ):
        until(lambda: len(truth.latest()) == PARTITIONS, "the first member")
        go(page, cluster, f"groups/kafka/{name}/live")
        matrix.watch(page)
        delays = []
        for (client_id, what), count in wanted:
            if what == "start":
                group_members.kafka(name, client_id, name)
            else:
                group_members.leave(client_id)

            def settled(owners: matrix.Owners, count: int = count) -> bool:
                sizes = [list(owners.values()).count(member) for member in set(owners.values())]
                return sorted(sizes) == [PARTITIONS // count] * count

            delays.append(matrix.delay(page, truth, settled))
        lines = page.locator(".lines li").all_inner_texts()
    check(delays)
    for event in ("two joined", "three joined", "two left", "three left"):
        assert any(event in line for line in lines), (event, lines)


def test_a_rocketmq_group_grows_and_shrinks(cluster: Served, browser: Browser, name: str) -> None:
    queues = 8
    with Admin(cluster.nameserver) as admin:
        admin.create_topic(name, queues=queues // 2)
    with ExitStack() as stack:
        consumers: dict[str, PushConsumer] = {}

        def start(client_id: str) -> None:
            consumer = PushConsumer(
                name, cluster.nameserver, lambda message: None, client_id=client_id
            )
            consumers[client_id] = stack.enter_context(consumer.subscribe(name, "*"))

        start("one")
        page, _ = stack.enter_context(opened(browser, cluster.console))
        truth = stack.enter_context(matrix.truth(matrix.of_rocketmq(consumers, name)))
        until(lambda: len(truth.latest()) == queues, "the first member")
        go(page, cluster, f"groups/rocketmq/{name}/live")
        matrix.watch(page)
        delays = []
        for client_id, count in (("two", 2), ("three", 3), ("two", 2), ("three", 1)):
            if client_id in consumers:
                consumers.pop(client_id).close()
            else:
                start(client_id)

            def settled(owners: matrix.Owners, count: int = count) -> bool:
                return len(owners) == queues and len(set(owners.values())) == count

            delays.append(matrix.delay(page, truth, settled))
    check(delays)


def test_whom_a_rebalance_waits_for(
    cluster: Served, browser: Browser, group_members: Members, name: str
) -> None:
    """A member that takes seconds to give up its partitions is named, and so is who joined; both go away again."""
    create_topic(cluster, name, PARTITIONS)
    group_members.kafka(name, "quick", name, "range")
    group_members.kafka(name, "slow", name, "range", revoke_seconds=5)
    ask = matrix.of_kafka(cluster.bootstrap, name)
    until(lambda: len(set(ask().values())) == 2, "two members")
    with opened(browser, cluster.console) as (page, _):
        go(page, cluster, f"groups/kafka/{name}/live")
        page.wait_for_selector(".banner.good")
        group_members.kafka(name, "newcomer", name, "range")
        page.wait_for_selector(".banner.warn .waited-for", timeout=60_000)
        page.wait_for_function(
            "document.querySelectorAll('.banner .waited-for').length === 1", timeout=60_000
        )
        banner = page.locator(".banner").inner_text()
        assert "Rebalancing for" in banner
        assert "newcomer joined" in banner
        assert "slow has not rejoined" in " ".join(banner.split())
        assert page.locator("thead th.waited .name").inner_text() == "slow"
        page.wait_for_selector(".banner.good", timeout=60_000)
        until(lambda: page.locator("thead th.member:not(.nobody)").count() == 3, "three columns")
        # What it cost comes when the ledger knows it, and leads to the history.
        page.wait_for_selector(".banner a:text('What it cost')", timeout=60_000)


@pytest.fixture
def mortal(tmp_path: Path, browser: Browser) -> Iterator[Served]:
    """A cluster of its own, whose servers may be killed."""
    with served(tmp_path) as cluster:
        yield cluster


def test_a_broker_dies_and_comes_back(mortal: Served, browser: Browser) -> None:
    state = "tr:has(th:text-is('broker-b')) .badge"
    delays = []
    with opened(browser, mortal.console) as (page, _):
        go(page, mortal, "brokers")
        page.wait_for_selector(f"{state}:text-is('up')")
        for _ in range(3):
            killed = time.time()
            mortal.kill("broker-b")
            page.wait_for_selector(f"{state}:text-is('down')", timeout=60_000)
            delays.append(time.time() - killed)
            mortal.start("broker-b")
            page.wait_for_selector(f"{state}:text-is('up')", timeout=60_000)
        mortal.kill("broker-b")
        go(page, mortal, "")
        page.wait_for_selector("[data-broker=broker-b] .badge.bad")
        assert page.locator(".figure.bad dd").inner_text().startswith("1 of ")
    check(delays)


def test_a_member_is_killed(mortal: Served, browser: Browser, name: str) -> None:
    """Its queues are shown as its own until the brokers give them away, then with their new owner."""
    create_topic(mortal, name, PARTITIONS)
    with members(mortal) as group, opened(browser, mortal.console) as (page, _):
        group.kafka(name, "stays", name)
        group.kafka(name, "dies", name)
        with matrix.truth(matrix.of_kafka(mortal.bootstrap, name)) as truth:
            until(lambda: len(set(truth.latest().values())) == 2, "two members")
            go(page, mortal, f"groups/kafka/{name}/live")
            matrix.watch(page)
            group.kill("dies")
            check(
                [
                    matrix.delay(
                        page,
                        truth,
                        lambda owners: len(owners) == PARTITIONS and len(set(owners.values())) == 1,
                    )
                ]
            )


def test_the_console_goes_away_and_comes_back(mortal: Served, browser: Browser, name: str) -> None:
    """The page says so, keeps what it has, and goes on by itself."""
    create_topic(mortal, name, 3)
    producer = Producer({"bootstrap.servers": mortal.bootstrap})
    producer.produce(name, b"1")
    producer.flush()
    with opened(browser, mortal.console) as (page, watcher):
        go(page, mortal, "brokers")
        page.wait_for_selector("tr:has(th:text-is('broker-a'))")
        watcher.check()
        mortal.kill("console")
        page.wait_for_selector("text=Connection to the console lost", timeout=60_000)
        assert page.locator("tr:has(th:text-is('broker-a'))").count() == 1
        page.evaluate("location.hash = '#/topics'")
        page.wait_for_selector("text=The console does not answer")
        page.evaluate("location.hash = '#/brokers'")
        mortal.start("console")
        page.wait_for_selector(
            "text=Connection to the console lost", state="hidden", timeout=60_000
        )
        page.wait_for_selector("tr:has(th:text-is('broker-a')) .badge:text-is('up')")
        watcher.complaints = [
            each
            for each in watcher.complaints
            if "ERR_CONNECTION" not in each and "ERR_INCOMPLETE" not in each
        ]
