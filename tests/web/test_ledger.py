"""The rows of a cluster whose brokers are read one earlier, one later: they are right, or it is said that they are not."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.api.kafka import KafkaServers
from tests.certificates import Authority
from tests.ledger.records import got, joined, left
from tests.waiting import until

from steelyard import Producer, PushConsumer, Server
from steelyard.client.aio.admin import Admin
from steelyard.config import ConsumerConfig, HttpConfig
from steelyard.driver.loops import Background
from steelyard.ledger.cost import costs
from steelyard.ledger.events import LEDGER_TOPIC, Record, encode
from steelyard.types import MessageQueue
from steelyard.web import catching_up, ledger
from steelyard.web.console.answers import RebalanceView
from steelyard.web.console.history import LedgerHistory, remoting_key
from steelyard.web.ledger import LedgerFollower

ONE, OTHER = "broker-0", "broker-1"


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaServers]:
    monkeypatch.setattr(ledger, "COMPUTE_SECONDS", 0.1)
    monkeypatch.setattr(ledger, "LOOK_SECONDS", 0.5)
    servers = KafkaServers(tmp_path)
    yield servers
    servers.stop()


def story(began: int) -> list[Record]:
    """A and B read a queue of each broker. B dies; what it read stands still for 12 s, then A reads it again."""
    records: list[Record] = [
        joined(began, "A", "A", ONE),
        joined(began, "B", "AB", ONE),
        joined(began + 5, "A", "A", OTHER),
        joined(began + 5, "B", "AB", OTHER),
    ]
    for second in range(1, 30):
        at = began + 1_000 * second
        records.append(got(at, "A", second, second + 1, broker=ONE))
        if second < 10:
            records.append(got(at, "B", second, second + 1, broker=OTHER))
    died = began + 9_000
    records.append(left(died + 10_000, "B", "A", ONE, "expired", died))
    records.append(left(died + 10_003, "B", "A", OTHER, "expired", died))
    records.append(got(died + 12_000, "A", 3, 21, stored=died - 6_000, broker=OTHER))
    return records


def write(servers: KafkaServers, records: list[Record]) -> None:
    """Have each record where its broker would have written it."""
    with Producer("writers", servers.nameservers) as producer:
        for broker in (ONE, OTHER):
            queue = MessageQueue(LEDGER_TOPIC, broker, 0)
            mine = [one for one in records if one.broker == broker]
            for first in range(0, len(mine), 5):
                producer.send(LEDGER_TOPIC, encode(mine[first : first + 5]), queue=queue)


@contextmanager
def following(
    nameservers: str,
    *brokers: str,
    access_key: str = "",
    secret_key: str = "",
    tls: ssl.SSLContext | None = None,
) -> Iterator[tuple[LedgerFollower, LedgerHistory]]:
    """The ledger is followed, as the HTTP server does it."""
    background = Background()
    history = LedgerHistory(time.time_ns() // 1_000_000 - 3_600_000)
    config = HttpConfig(nameservers=(nameservers,), brokers=brokers, rebalance_settle_ms=100)
    admin = Admin(config.nameservers, access_key=access_key, secret_key=secret_key, tls=tls)

    async def start() -> tuple[LedgerFollower, asyncio.Task[None]]:
        await admin.start()
        follower = LedgerFollower(admin, config, history, tls=tls)
        return follower, asyncio.create_task(follower.run())

    async def stop(task: asyncio.Task[None]) -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await admin.close()

    follower, task = background.wait(start(), 60)
    yield follower, history
    background.wait(stop(task), 60)
    background.loop.call_soon_threadsafe(background.loop.stop)


def truth(records: list[Record]) -> list[tuple[str, int, int, int]]:
    return [
        (row.rebalance, row.queues_moved, row.pause_max_ms, row.reprocessed_max)
        for row in reversed(costs(records).rebalances)
        if row.queues_moved
    ]


def shown(history: LedgerHistory) -> list[tuple[str, int, int | None, int | None]]:
    def row(one: RebalanceView) -> tuple[str, int, int | None, int | None]:
        return one.id, one.moved, one.pause_ms, one.reprocessed_upper

    return [row(one) for one in every(history) if one.moved]


def every(history: LedgerHistory) -> list[RebalanceView]:
    return history.rebalances("g", 99, remoting_key)


def test_nothing_is_shown_before_every_broker_that_must_be_there_was_read(
    servers: KafkaServers,
) -> None:
    records = story(time.time_ns() // 1_000_000 - 600_000)
    write(servers, records)
    ports = servers.stop_broker(OTHER)
    with following(servers.nameservers, ONE, OTHER) as (follower, history):
        until(lambda: OTHER in (history.incomplete or ""))
        assert "shown when all is read" in (history.incomplete or "")
        assert every(history) == []
        servers.start_broker(OTHER, *ports)
        until(lambda: shown(history), lambda: history.incomplete)
        assert shown(history) == truth(records)
        until(lambda: history.incomplete is None, lambda: history.incomplete)
        assert follower.costs.late == 0
    assert truth(records)[0][1:] == (1, 12_000, 7)


def test_a_broker_that_comes_later_with_a_past_has_the_ledger_read_again(
    servers: KafkaServers,
) -> None:
    """Nobody knows of the broker at first: the rows lack what it recorded, until it is there."""
    records = story(time.time_ns() // 1_000_000 - 600_000)
    write(servers, records)
    ports = servers.stop_broker(OTHER)
    with following(servers.nameservers) as (follower, history):
        until(lambda: every(history))
        assert shown(history) == []
        servers.start_broker(OTHER, *ports)
        until(lambda: shown(history) == truth(records), lambda: shown(history))
        until(lambda: history.incomplete is None, lambda: history.incomplete)
        assert follower.costs.late == 0


def test_what_came_too_late_is_told_until_it_was_read_again(
    servers: KafkaServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late records soon after others wait for their turn; they are counted, and the console says what is missing."""
    monkeypatch.setattr(ledger, "AGAIN_MS", 15_000)
    began = time.time_ns() // 1_000_000 - 600_000
    write(servers, story(began))
    with following(servers.nameservers) as (follower, history):
        until(lambda: shown(history) == truth(story(began)))
        first: list[Record] = [got(began + 21_100, "A", 18, 30, broker=OTHER)]
        second: list[Record] = [got(began + 21_500, "A", 10, 30, broker=OTHER)]
        write(servers, first)  # are read again at once
        until(lambda: shown(history) == truth(story(began) + first))
        until(lambda: history.incomplete is None)
        assert follower.costs.late == 0
        write(servers, second)
        until(lambda: history.incomplete is not None)
        assert "Records came too late: 1 of broker-1" in str(history.incomplete)
        assert "until the ledger is read again at" in str(history.incomplete)
        assert follower.costs.late == 1
        records = story(began) + first + second
        until(lambda: history.incomplete is None, lambda: history.incomplete)
        assert shown(history) == truth(records) != truth(story(began) + first)


def test_a_broker_that_stays_away_does_not_hide_the_others_for_ever(
    servers: KafkaServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "PATIENCE_MS", 500)
    records = story(time.time_ns() // 1_000_000 - 600_000)
    write(servers, records)
    servers.stop_broker(OTHER)
    with following(servers.nameservers, ONE, OTHER) as (_, history):
        until(lambda: every(history), lambda: history.incomplete)
        until(lambda: history.incomplete == "Not read to the end: broker-1.", history.incomplete)
        assert shown(history) == []


ACCOUNTS = """\
accounts:
- accessKey: the-brokers
  secretKey: brokers-secret
  admin: true
"""


def test_it_is_read_with_the_access_of_the_administrator(tmp_path: Path) -> None:
    """Servers that answer only over TLS, and only signed requests."""
    authority = Authority(tmp_path / "tls")
    pair = authority.sign("server", "/CN=server")
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server_cert_file": str(pair.certificate),
        "tls.server_key_file": str(pair.key),
        "tls_client.trust_file": str(authority.certificate),
        "acl_file": str(file),
        "acl_access_key": "the-brokers",
    }
    key, secret = "the-brokers", "brokers-secret"
    config = ConsumerConfig(access_key=key, secret_key=secret)
    tls = authority.client_context()
    with Server(kafka=False, in_process=True, settings=settings) as server:
        server.create_topic("T")
        with (
            following(server.nameserver, access_key=key, secret_key=secret, tls=tls) as (
                follower,
                history,
            ),
            PushConsumer("g", server.nameserver, lambda _: None, config=config, tls=tls).subscribe(
                "T"
            ),
        ):
            until(lambda: every(history), lambda: history.incomplete)
            assert every(history)[0].trigger == "joined"
            assert follower.costs.errors == 0
