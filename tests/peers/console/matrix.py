"""What the page of a group shows, with the time since when; and the same as the members' own cluster says it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka.admin import AdminClient
from tests.waiting import until

from steelyard import PushConsumer
from steelyard.errors import ClosedError

if TYPE_CHECKING:
    from playwright.sync_api import Page

Owners = Mapping[str, str | None]
"""Member id by queue key."""

WATCH = """
() => {
  const look = () => {
    const rows = [...document.querySelectorAll("tr.queue")];
    const owner = (row) => row.querySelector(".block.owner, .block.revoking")?.dataset.member ?? null;
    return JSON.stringify(rows.map((row) => [row.dataset.queue, owner(row)]));
  };
  window.seen = [];
  const note = () => {
    const now = look();
    if (now !== window.seen.at(-1)?.[1]) window.seen.push([Date.now(), now]);
  };
  new MutationObserver(note).observe(document.querySelector("main"), { subtree: true, childList: true, attributes: true });
  note();
}
"""


def watch(page: Page) -> None:
    """Note each change of the matrix from now on. All rows must be in the document: so few that none is left out."""
    page.wait_for_selector("tr.queue")
    page.evaluate(WATCH)


def shown(page: Page) -> list[tuple[float, Owners]]:
    """What the page has shown, with the times in seconds since the epoch."""
    return [(ms / 1000, dict(json.loads(text))) for ms, text in page.evaluate("window.seen")]


class Truth:
    """What the cluster has said, with the times; asked again and again in a thread."""

    def __init__(self) -> None:
        self.said: list[tuple[float, Owners]] = []

    def latest(self) -> Owners:
        return self.said[-1][1] if self.said else {}


@contextmanager
def truth(ask: Callable[[], Owners]) -> Iterator[Truth]:
    found = Truth()
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            owners = ask()
            if owners != found.latest():
                found.said.append((time.time(), owners))
            stopping.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stopping.set()
        thread.join()


def of_kafka(bootstrap: str, group: str) -> Callable[[], Owners]:
    """Asks the group's coordinator, by librdkafka."""
    client = AdminClient({"bootstrap.servers": bootstrap})

    def ask() -> Owners:
        described = client.describe_consumer_groups([group])[group].result(30)
        return {
            f"{each.topic}/{each.partition}": member.member_id
            for member in described.members
            for each in member.assignment.topic_partitions
        }

    return ask


def of_rocketmq(consumers: Mapping[str, PushConsumer], topic: str) -> Callable[[], Owners]:
    """Asks the members themselves: RocketMQ has nobody else who knows. Each also holds queues of messages to retry."""

    def ask() -> Owners:
        found: dict[str, str | None] = {}
        for client_id, consumer in list(consumers.items()):
            with suppress(ClosedError):  # one that is leaving
                for queue in consumer.state().held:
                    if queue.topic == topic:
                        found[f"{topic}/{queue.broker_name}/{queue.queue_id}"] = client_id
        return found

    return ask


class Difference(NamedTuple):
    """Says for a failed test what the page shows, and what it should."""

    page: Page
    cluster: Truth

    def __str__(self) -> str:
        return f"{shown(self.page)[-1][1]} as {self.cluster.latest()}"


def delay(page: Page, cluster: Truth, wanted: Callable[[Owners], bool]) -> float:
    """Wait until the cluster says what is wanted and the page shows the same; how much later the page did, in seconds.

    Negative if the page was first: it and the thread ask independently of each other.
    """

    def agreed() -> tuple[float, float] | None:
        since, owners = cluster.said[-1]
        at, found = shown(page)[-1]
        same = {key: owner for key, owner in found.items() if owner} == owners
        return (since, at) if same and wanted(owners) else None

    since, at = until(agreed, Difference(page, cluster))
    return at - since
