"""All pages, in both themes and all widths: what browsers, the policy, and axe (WCAG 2.2 AA) have to say; and what the keys do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer as KafkaProducer
from tests.peers.console.browsing import opened, violations
from tests.peers.console.serving import Served, members, served
from tests.peers.console.topics import create_topic
from tests.waiting import until

from steelyard import Producer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.peer

BODIES = {
    "json": b'{"id":9007199254740993,"tags":["a","b"],"empty":{}}',
    "text": b"first line\nsecond line",
    "bytes": bytes(range(200, 240)),
    "tombstone": None,
}
KAFKA, ROCKETMQ, GROUP = "console-orders", "console-stock", "console-group"


class Contents(NamedTuple):
    """A cluster with something of everything on it."""

    cluster: Served
    routes: dict[str, str]


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Contents]:
    with (
        served(tmp_path_factory.mktemp("pages"), "--allow-changes") as cluster,
        members(cluster) as group,
    ):
        create_topic(cluster, KAFKA, 3)
        producer = KafkaProducer({"bootstrap.servers": cluster.bootstrap})
        for key, body in BODIES.items():
            producer.produce(KAFKA, body, key=key, partition=0, headers=[("kind", key.encode())])
        producer.flush()
        with Producer("shop", cluster.nameserver) as rocketmq:
            for key, body in BODIES.items():
                if body is not None:
                    rocketmq.send(ROCKETMQ, body, tags=key, keys=key)
        for client_id in ("one", "two"):
            group.kafka(GROUP, client_id, KAFKA)
        group.rocketmq(GROUP, "three", ROCKETMQ)
        kafka, rocketmq_group = f"groups/kafka/{GROUP}", f"groups/rocketmq/{GROUP}"
        routes = {
            "overview": "",
            "groups": "groups",
            "live": f"{kafka}/live",
            "live by topic": f"{kafka}/live?view=topics",
            "live of RocketMQ": f"{rocketmq_group}/live",
            "history": f"{kafka}/history",
            "lag": f"{kafka}/lag",
            "what if": f"{kafka}/what-if?members=3",
            "what if of RocketMQ": f"{rocketmq_group}/what-if?members=3",
            "doctor": f"{kafka}/doctor",
            "topics": "topics",
            "topic": f"topics/kafka/{KAFKA}",
            "messages": "messages",
            "messages of Kafka": f"messages?dialect=kafka&topic={KAFKA}&from=earliest",
            "messages of RocketMQ": f"messages?dialect=rocketmq&topic={ROCKETMQ}&from=earliest",
            "brokers": "brokers",
            "no such page": "nothing",
        }
        yield Contents(cluster, routes)


def show(page: Page, contents: Contents, route: str) -> None:
    """Go there, and wait until nothing is loading and both kinds of lists have come."""
    page.goto(f"{contents.cluster.console}/#/{route}")
    page.wait_for_selector("main h1")
    page.wait_for_selector("main .loading", state="detached", timeout=60_000)
    assert page.locator("main .failed").count() == 0, page.locator("main").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_use_the_pages(
    contents: Contents, browser: Browser, axe: str, theme: str
) -> None:
    found = {}
    with opened(browser, contents.cluster.console, theme=theme) as (page, _):
        for name, route in contents.routes.items():
            show(page, contents, route)
            wrong = violations(page, axe)
            if wrong:
                found[name] = wrong
    assert found == {}


@pytest.mark.parametrize("width", [480, 760, 1280, 1600])
def test_no_page_is_wider_than_the_window(contents: Contents, browser: Browser, width: int) -> None:
    """Wide tables scroll in their own boxes."""
    wide = {}
    with opened(browser, contents.cluster.console, width=width) as (page, _):
        for name, route in contents.routes.items():
            show(page, contents, route)
            beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if beyond > 0:
                wide[name] = beyond
    assert wide == {}


def test_messages_are_decoded(contents: Contents, browser: Browser) -> None:
    route = f"messages?dialect=kafka&topic={KAFKA}&queue={KAFKA}%2F0&from=0"
    with opened(browser, contents.cluster.console) as (page, _):
        show(page, contents, route)
        body = page.locator("pre.body")
        assert (
            body.inner_text()
            == '{\n  "id": 9007199254740993,\n  "tags": [\n    "a",\n    "b"\n  ],\n  "empty": {}\n}'
        )
        assert "kind" in page.locator(".carried").inner_text()
        page.keyboard.press("j")
        assert body.inner_text() == "first line\nsecond line"
        page.keyboard.press("d")  # from "auto" to JSON
        until(lambda: "not JSON" in page.locator(".message").inner_text())
        page.keyboard.press("d")  # text
        until(lambda: body.inner_text() == "first line\nsecond line")
        page.keyboard.press("d")  # hexadecimal
        until(lambda: body.inner_text().startswith("0000  66 69 72 73 74"))
        page.keyboard.press("d")
        until(lambda: page.url.endswith("as=auto"))
        page.keyboard.press("j")
        assert body.inner_text().startswith("0000  c8 c9 ca")
        page.keyboard.press("j")
        assert "tombstone" in page.locator(".message").inner_text()
        page.keyboard.press("k")
        assert body.inner_text().startswith("0000  c8 c9 ca")
        show(page, contents, f"messages?dialect=rocketmq&topic={ROCKETMQ}&from=earliest&tag=text")
        assert body.inner_text() == "first line\nsecond line"
        show(page, contents, f"messages?dialect=kafka&topic={KAFKA}&from=earliest&key=nobody")
        assert "No message" in page.locator("main").inner_text()


def test_the_form_makes_the_address(contents: Contents, browser: Browser) -> None:
    with opened(browser, contents.cluster.console) as (page, _):
        show(page, contents, "messages")
        page.wait_for_selector(f"option[value='kafka/{KAFKA}']", state="attached")
        page.get_by_label("Topic").select_option(f"kafka/{KAFKA}")
        page.get_by_label("From").select_option("offset")
        page.wait_for_selector(f"option[value='{KAFKA}/0']", state="attached")
        page.get_by_label("Queue").select_option(f"{KAFKA}/0")
        page.get_by_label("Offset", exact=True).fill("1")
        page.get_by_role("button", name="Show", exact=True).click()
        page.wait_for_selector("pre.body")
        assert page.locator("pre.body").inner_text() == "first line\nsecond line"
        address = page.url
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_selector("pre.body")
        assert page.get_by_label("Offset", exact=True).input_value() == "1"


def test_keys(contents: Contents, browser: Browser) -> None:
    with opened(browser, contents.cluster.console) as (page, _):
        show(page, contents, "")
        for letter, heading in (
            ("t", "Topics"),
            ("b", "Brokers"),
            ("m", "Messages"),
            ("g", "Groups"),
        ):
            page.keyboard.press("g")
            page.keyboard.press(letter)
            page.wait_for_selector(f"h1:text-is('{heading}')")
        page.wait_for_selector("a.primary")
        page.keyboard.press("/")
        page.keyboard.type("rocketmq")
        until(lambda: page.locator("tbody tr").count() == 1, "the filtered list")
        assert page.url.endswith("#/groups?q=rocketmq")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:text-is('{GROUP}')")
        assert "/rocketmq/" in page.url
        page.keyboard.press("5")
        page.wait_for_selector("[aria-current=page]:text-is('Doctor')")
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open]")
        page.get_by_label("Single-key shortcuts").uncheck()
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("1")
        page.wait_for_timeout(100)
        assert page.url.endswith("/doctor")


def test_the_theme_is_chosen(contents: Contents, browser: Browser) -> None:
    def ground(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    with opened(browser, contents.cluster.console, theme="light") as (page, _):
        show(page, contents, "")
        light = ground(page)
        page.get_by_role("button", name="Theme of the system").click()
        assert ground(page) == light
        page.get_by_role("button", name="Light theme").click()
        dark = ground(page)
        assert dark != light
        page.reload()
        page.wait_for_selector("main h1")
        assert ground(page) == dark


def test_changes(contents: Contents, browser: Browser, name: str) -> None:
    """A topic is made, a group is set back after a look at what would change, and the topic is deleted: only after its name was typed."""
    cluster = contents.cluster
    with opened(browser, cluster.console) as (page, watcher):
        show(page, contents, "topics")
        page.get_by_role("button", name="Create topic…").click()
        page.get_by_label("Name").fill(name)
        page.get_by_label("Partitions").fill("2")
        page.get_by_role("button", name="Create", exact=True).click()
        page.wait_for_selector(f"h1:text-is('{name}')")
        until(lambda: page.locator("tbody tr").count() == 2, "two queues", 60)
        watcher.check()

        show(page, contents, f"groups/kafka/{GROUP}/live")
        page.get_by_role("button", name="Reset offsets…").click()
        page.get_by_label("Continue at").select_option("earliest")
        page.get_by_role("button", name="Show what would change").click()
        page.wait_for_selector("dialog tbody tr")
        assert page.locator(f"dialog tr:has(th:text-is('{KAFKA}/0')) td").nth(1).inner_text() == "0"
        page.get_by_role("button", name="Back").click()
        page.keyboard.press("Escape")

        show(page, contents, f"topics/kafka/{name}")
        page.get_by_role("button", name="Delete…").click()
        watcher.expected = {404}  # the page asks for its topic once more before it is left
        delete = page.get_by_role("button", name="Delete the topic")
        assert delete.is_disabled()
        page.get_by_label("Type the topic's name to confirm").fill(name)
        delete.click()
        page.wait_for_selector("h1:text-is('Topics')")
        until(lambda: page.locator(f"a:text-is('{name}')").count() == 0, "the topic is gone", 60)


def test_what_is_read_only_has_no_buttons_for_changes(
    cluster: Served, browser: Browser, name: str
) -> None:
    create_topic(cluster, name, 1)
    with opened(browser, cluster.console) as (page, _):
        for route in ("topics", f"topics/kafka/{name}"):
            page.goto(f"{cluster.console}/#/{route}")
            page.wait_for_selector(".mode:text-is('read-only')")
            page.wait_for_selector("tbody tr")
            assert page.get_by_role("button", name="topic…").count() == 0
            assert page.get_by_role("button", name="Delete…").count() == 0


def test_what_does_not_exist(contents: Contents, browser: Browser) -> None:
    with opened(browser, contents.cluster.console) as (page, watcher):
        watcher.expected = {404}
        for route in (
            "groups/kafka/nobody/live",
            "topics/kafka/nothing",
            "messages?dialect=kafka&topic=nothing",
        ):
            page.goto(f"{contents.cluster.console}/#/{route}")
            page.wait_for_selector(".failed, .empty")
            text = page.locator("main .failed, main .empty").first.inner_text()
            assert "undefined" not in text
            assert len(text) > 20


def test_a_large_group_stays_quick(contents: Contents, browser: Browser) -> None:
    """1,000 queues and 50 members: the condensed view first; all rows are reached by scrolling, and no picture blocks the page for long."""
    cluster = contents.cluster
    topic, group = "console-large", "console-large"
    create_topic(cluster, topic, 1000)
    with members(cluster) as crowd, opened(browser, cluster.console) as (page, watcher):
        watcher.expected = {404}  # the page is there before the group; it appears by itself
        crowd.crowd(group, "many", 47, topic)
        crowd.crowd(group, "few", 3, topic)
        page.goto(f"{cluster.console}/#/groups/kafka/{group}/live")
        page.wait_for_selector(".heap .squares", timeout=120_000)
        until(
            lambda: page.locator("thead th.member:not(.nobody):not(.left)").count() == 50,
            "50 members",
            150,
        )
        until(
            lambda: (
                page.locator("td.heap:not(.nobody) .heap-count").all_inner_texts() == ["20"] * 50
            ),
            "20 queues each",
            150,
        )
        page.get_by_role("button", name="By queue").click()
        page.wait_for_selector("tr.queue")
        assert page.locator("tr.queue").count() < 120
        assert page.locator("table.matrix").get_attribute("aria-rowcount") == "1002"
        page.evaluate(
            "window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration); }).observe({ entryTypes: ['longtask'] })"
        )
        for place in range(0, 26_001, 2_600):
            page.locator(".matrix-box").evaluate("(box, top) => { box.scrollTop = top; }", place)
            page.wait_for_timeout(50)
        page.wait_for_selector(f"[data-queue='{topic}/999']")
        crowd.leave("few")
        page.get_by_role("button", name="By topic").click()
        until(
            lambda: page.locator("thead th.member:not(.nobody):not(.left)").count() == 47,
            "47 members",
            150,
        )
        longest = page.evaluate("window.longest")
        print(f"longest task: {longest:.0f} ms")
        assert longest < 3000  # all rows at once would take several times as long, on any machine
