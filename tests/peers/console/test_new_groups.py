"""A Kafka Streams application and Java's share consumers on the pages, beside what the API and they themselves say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.peers.apache import Missing
from tests.peers.console.browsing import opened, violations
from tests.peers.console.serving import Served
from tests.peers.console.topics import create_topic
from tests.peers.kafka import builds
from tests.peers.kafka.servers import Running
from tests.peers.kafka.share_members import ShareGroup
from tests.peers.kafka.streams_apps import WordCount, all_tasks
from tests.waiting import until
from tests.web.console.asking import ask, read
from tests.web.console.group_members import Coordinator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

LOOKS = [("light", 1280), ("dark", 1280), ("light", 480), ("dark", 480)]

CELLS = """
() => Object.fromEntries([...document.querySelectorAll("tr.queue")].map((row) => {
  const cells = [...row.querySelectorAll(".block[data-member]")];
  return [row.dataset.queue, cells.map((cell) => [cell.dataset.member, cell.className.split(" ")[1], cell.innerText.trim()])];
}))
"""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    try:
        builds.streams_classes(builds.SERVER)
        builds.share_classes()
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def running(cluster: Served) -> Running:
    return Running("steelyard", cluster.bootstrap, 2, cluster.nameserver)


def address_of(cluster: Served) -> str:
    return cluster.console.removeprefix("http://")


def cells(page: Page) -> dict[str, set[tuple[str, str]]]:
    """Members by queue with how they stand to it; words of cells say so without their colours."""
    found: dict[str, Any] = page.evaluate(CELLS)
    for each in found.values():
        for _, stands, text in each:
            assert ("standby" in text.splitlines()) == (stands == "standby"), text
    return {key: {(member, stands) for member, stands, _ in each} for key, each in found.items()}


def shows(page: Page, wanted: dict[str, set[tuple[str, str]]]) -> bool:
    return cells(page) == wanted


def check_looks(page: Page, axe: str) -> None:
    assert violations(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_streams_application(
    cluster: Served, running: Running, browser: Browser, axe: str, name: str, tmp_path: Path
) -> None:
    address = address_of(cluster)
    with Coordinator(cluster.bootstrap, name, "operator") as operator:
        operator.configure(streams_num_standby_replicas="1")
    with WordCount(running, name, tmp_path) as app:
        app.send()
        app.start("one")
        app.start("two")
        app.wait_shared(all_tasks(4), "one", "two")
        app.wait_counted()

        def picture() -> Any:
            """The API's answer when it is what the instances say."""
            found = ask(address, f"groups/kafka/{name}")
            if found.status != 200 or len(found.body["members"]) != 2:
                return None
            active, standby = app.tasks(), app.tasks("standby")
            owned: dict[str, set[str]] = {one["id"]: set() for one in found.body["members"]}
            copies: dict[str, set[str]] = {one["id"]: set() for one in found.body["members"]}
            for queue in found.body["queues"]:
                owned.setdefault(queue["owner"], set()).add(queue["task"])
                for each in queue["standbys"]:
                    copies[each].add(queue["task"])
            pairs = [(owned[each], copies.get(each)) for each in sorted(owned, key=str)]
            wanted = [(active[each], standby[each]) for each in active]
            return pairs in (wanted, wanted[::-1]) and all(standby.values()) and found.body

        told = until(picture, app)
        wanted = {
            queue["key"]: {(queue["owner"], "owner")}
            | {(each, "standby") for each in queue["standbys"]}
            for queue in told["queues"]
        }
        for theme, width in LOOKS:
            with opened(browser, cluster.console, width, theme=theme) as (page, _):
                page.goto(f"{cluster.console}/#/groups/kafka/{name}/live")
                until(partial(shows, page, wanted), wanted)
                check_looks(page, axe)
                assert f"assignment epoch {told['assignment_epoch']}" in page.inner_text(
                    "header.page-head"
                )
                for one in told["members"]:
                    text = page.inner_text(f"table.members tr[data-member='{one['id']}']")
                    assert "active " in text
                    assert "standby 1_" in text
                legend = page.inner_text(".legend")
                assert "standby" in legend
                assert "warm-up" in legend
                topology = page.locator("[data-subtopology]").all_inner_texts()
                assert [text.split()[0] for text in topology] == ["0", "1"]
                assert app.source in topology[0]
                assert f"{name}-counts-changelog" in topology[1]
        with opened(browser, cluster.console, 480) as (page, _):
            page.goto(f"{cluster.console}/#/groups")
            row = page.locator(f"tr:has(a:text-is('{name}'))")
            row.wait_for()
            assert "streams" in row.inner_text().split()
            page.goto(f"{cluster.console}/#/groups/kafka/{name}/what-if")
            page.wait_for_selector("text=assigns tasks instead of partitions")
            check_looks(page, axe)


def test_a_share_group(
    cluster: Served, running: Running, browser: Browser, axe: str, name: str, tmp_path: Path
) -> None:
    address = address_of(cluster)
    create_topic(cluster, name, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        producer.produce(name, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    earliest = "share.auto.offset.reset:earliest"
    with ShareGroup(running, name, tmp_path, settings=earliest) as group:
        path = f"groups/kafka/{group.group}"
        members = [group.start(each) for each in ("one", "two", "three")]
        group.until_all(20)

        def picture() -> Any:
            found = read(address, path)
            assigned = [one["assigned"] for one in found["members"]]
            done = [(q["share_start"], q["lag"]) for q in found["queues"]] == [(10, 0)] * 2
            return len(assigned) == 3 and min(assigned) > 0 and done and found

        told = until(picture)
        assert {one["client_id"] for one in told["members"]} == {each.name for each in members}
        assert max(len(queue["readers"]) for queue in told["queues"]) > 1

        def shows_readers(page: Page) -> bool:
            """Whether the page has what the API tells: the assignment may still change."""
            queues = read(address, path)["queues"]
            wanted = {each["key"]: {(one, "owner") for one in each["readers"]} for each in queues}
            return shows(page, wanted)

        for theme, width in LOOKS:
            with opened(browser, cluster.console, width, theme=theme) as (page, _):
                page.goto(f"{cluster.console}/#/{path}/live")
                until(partial(shows_readers, page), path)
                check_looks(page, axe)
                assert "2 queues shared by 3 members." in page.inner_text(".banner")
                assert "together with the others" in page.inner_text(".legend")
        with opened(browser, cluster.console) as (page, _):
            page.goto(f"{cluster.console}/#/{path}/live")
            until(partial(shows_readers, page), path)
            members[0].leave()
            page.wait_for_selector(".lines li:has-text('one left')", timeout=60_000)
            page.keyboard.press("3")  # the lag, with the start offsets
            page.wait_for_selector("th:has-text('Start offset')", timeout=60_000)
            row = page.locator(f"tr:has(label:text-is('{name}/0'))")
            assert row.locator("td").all_inner_texts()[-2] == "10"
            page.keyboard.press("2")
            page.wait_for_selector("text=read partitions together")
            check_looks(page, axe)
