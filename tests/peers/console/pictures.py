"""Pictures of every page, from a real run: `python -m tests.peers.console.pictures` writes them to docs/images.

Some minutes of a shop: producers, groups of both dialects that grow and shrink, one with a member that is slow to give up its
partitions, one with 200 queues, Java's share consumers and an application of Kafka Streams. Pillow makes the pictures small,
where it is installed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer as KafkaProducer
from tests.peers.console.browsing import chromium, opened
from tests.peers.console.serving import Members, Served, members, served
from tests.peers.console.topics import create_topic
from tests.peers.kafka.members import Member
from tests.peers.kafka.servers import Running
from tests.peers.kafka.share_members import ShareGroup
from tests.peers.kafka.streams_apps import streams
from tests.waiting import until
from tests.web.console.group_members import Coordinator

from steelyard import Producer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parents[3] / "docs" / "images"
SIZES = {480: 800, 1280: 720}
"""Heights by width."""
COLOURS = 64
FAR = 40
"""Difference of a channel from which colours are not taken for each other, however rare they are."""
PAUSE_S = 0.02
TOPICS = {"orders": 12, "payments": 6, "refunds": 4, "telemetry": 200, "words": 2}
PACKERS = 6

PAGES = {
    "overview": "",
    "groups": "groups",
    "live": "groups/kafka/checkout/live",
    "live-large": "groups/kafka/telemetry/live",
    "live-share": "groups/kafka/packing/live",
    "live-streams": "groups/kafka/payment-words/live",
    "history": "groups/kafka/checkout/history",
    "lag": "groups/kafka/checkout/lag?minutes=15",
    "what-if": "groups/kafka/checkout/what-if?members=7",
    "doctor": "groups/rocketmq/stock/doctor",
    "topics": "topics",
    "topic": "topics/kafka/orders",
    "messages": "messages?dialect=kafka&topic=orders",
    "brokers": "brokers",
}


@contextmanager
def traffic(cluster: Served) -> Iterator[None]:
    """Orders and what follows from them, for both dialects, until the block ends."""
    stopping = threading.Event()
    chance = random.Random(1)

    def run() -> None:
        kafka = KafkaProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
        with Producer("shop", cluster.nameserver) as rocketmq:
            number = 0
            while not stopping.wait(PAUSE_S):
                for topic in ("orders", "orders", "payments", "refunds", "telemetry", "telemetry"):
                    number += 1
                    key, body = order(number, chance)
                    headers: list[tuple[str, str | bytes | None]] = [
                        ("source", b"shop"),
                        ("traceparent", b"00-%032x-01" % chance.getrandbits(128)),
                    ]
                    kafka.produce(topic, body, key=key, headers=headers)
                kafka.poll(0)
                rocketmq.send("Stock", body, tags=chance.choice(["reserved", "sold"]), keys=key)
        kafka.flush()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def order(number: int, chance: random.Random) -> tuple[str, bytes]:
    key = f"order-{number % 977}"
    if number % 13 == 0:
        return key, chance.randbytes(48)
    items = [
        {"sku": f"S-{chance.randrange(90):02}", "count": chance.randrange(1, 4)} for _ in range(2)
    ]
    body = {
        "order": key,
        "amount": round(chance.uniform(5, 300), 2),
        "currency": "EUR",
        "items": items,
    }
    return key, json.dumps(body).encode()


def history(group: Members) -> None:
    """Rebalances of several kinds, some seconds apart, so that each has a row of its own."""
    for number in (1, 2, 3):
        group.kafka("checkout", f"checkout-{number}", "orders,payments,refunds")
        group.rocketmq("stock", f"stock-{number}", "Stock")
    group.crowd("telemetry", "collector", 14, "telemetry")
    group.kafka("nightly-report", "report-1", "orders")
    time.sleep(20)
    for what in ("start 4", "leave 2", "start 5", "kill 4", "start 6"):
        word, number_text = what.split()
        client_id = f"checkout-{number_text}"
        if word == "start":
            group.kafka("checkout", client_id, "orders,payments,refunds", revoke_seconds=0.3)
        elif word == "leave":
            group.leave(client_id)
        else:
            group.kill(client_id)
        time.sleep(12)
    group.leave("report-1")
    group.rocketmq("stock", "stock-4", "Stock")


@contextmanager
def java_groups(cluster: Served, folder: Path) -> Iterator[None]:
    """A share group with more members than partitions, and an application with standbys of its state."""
    running = Running("steelyard", cluster.bootstrap)
    with ExitStack() as stack:
        packing = stack.enter_context(ShareGroup(running, "refunds", folder, group="packing"))
        for number in range(1, PACKERS + 1):
            packing.start(f"packer-{number}")
        group = "payment-words"
        with Coordinator(cluster.bootstrap, group, "operator") as coordinator:
            coordinator.configure(streams_num_standby_replicas="1")
        words = {"bootstrap": cluster.bootstrap, "group": group, "input": "payments"}
        for name in ("one", "two"):
            options = {**words, "output": "words", "state": folder / name}
            instance = Member(streams("WordCount"), name, options, folder / f"{group}-{name}.log")
            stack.callback(instance.kill)
        yield


def small(path: Path) -> None:
    """Keep the most frequent colours exactly, and those unlike them; the edges of letters get the nearest. Needs Pillow."""
    with suppress(ImportError):
        pictures = import_module("PIL.Image")
        picture = pictures.open(path).convert("RGB")
        found = [colour for _, colour in sorted(picture.getcolors(1 << 24), reverse=True)]
        kept = found[:COLOURS]
        for colour in found[COLOURS:]:
            if all(max(abs(a - b) for a, b in zip(colour, one, strict=True)) > FAR for one in kept):
                kept.append(colour)
        palette = pictures.new("P", (1, 1))
        palette.putpalette([channel for colour in kept for channel in colour])
        picture.quantize(palette=palette, dither=pictures.Dither.NONE).save(path, optimize=True)


def settle(page: Page) -> None:
    page.wait_for_selector("main h1")
    page.wait_for_selector("main .loading", state="detached", timeout=60_000)
    page.wait_for_timeout(700)


def take_pages(cluster: Served, browser: Browser) -> None:
    for width, height in SIZES.items():
        for theme in ("light", "dark"):
            with opened(browser, cluster.console, width, height, theme) as (page, _):
                for name, route in PAGES.items():
                    page.goto(f"{cluster.console}/#/{route}")
                    settle(page)
                    path = IMAGES / "console" / f"{name}-{width}-{theme}.png"
                    page.screenshot(path=path)
                    small(path)


def take_rebalance(cluster: Served, browser: Browser, group: Members) -> None:
    """A group of Kafka's newer protocol, in which members take seconds to give up what a new member is to get."""
    wanted = {
        IMAGES / "live-rebalance.png": (1280, 760, "light"),
        IMAGES / "console" / "rebalance-480-light.png": (480, SIZES[480], "light"),
    }
    for number in (1, 2, 3):
        group.kafka(
            "search-index", f"index-{number}", "orders,payments", "consumer", revoke_seconds=8
        )
    with ExitStack() as stack:
        pages = {}
        for path, (width, height, theme) in wanted.items():
            pages[path], _ = stack.enter_context(
                opened(browser, cluster.console, width, height, theme)
            )
            pages[path].goto(f"{cluster.console}/#/groups/kafka/search-index/live")
        page = pages[IMAGES / "live-rebalance.png"]
        until(lambda: page.locator("thead th.member:not(.nobody)").count() == 3, "three members")
        until(lambda: page.locator(".block.owner").count() > 18, "they share the queues")
        page.wait_for_selector(".banner.good", timeout=60_000)
        for each in pages.values():
            each.reload()  # members that were there before have their columns in the order of their names
            each.wait_for_selector(".block.owner")
        time.sleep(10)
        group.kafka("search-index", "index-4", "orders,payments", "consumer", revoke_seconds=8)
        page.wait_for_selector(".block.revoking", timeout=60_000)
        page.wait_for_selector(".banner .num:text-matches('for [2-9]')", timeout=60_000)
        for path, each in pages.items():
            each.screenshot(path=path)
            small(path)


def main() -> int:
    (IMAGES / "console").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        browser = stack.enter_context(chromium())
        cluster = stack.enter_context(served(folder))
        for topic, partitions in TOPICS.items():
            create_topic(cluster, topic, partitions)
        stack.enter_context(traffic(cluster))
        group = stack.enter_context(members(cluster))
        stack.enter_context(java_groups(cluster, folder))
        history(group)
        take_rebalance(cluster, browser, group)
        take_pages(cluster, browser)
    total = sum(path.stat().st_size for path in IMAGES.rglob("*.png"))
    print(f"{total / 1000:.0f} kB in {IMAGES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
