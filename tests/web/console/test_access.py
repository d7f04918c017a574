"""Who may ask the console, and what its answers tell browsers."""

from __future__ import annotations

import pytest
from tests.web.console.asking import ask
from tests.web.console.conftest import Consoles, console

from steelyard.config import HttpConfig
from steelyard.web.console.access import refusal


@pytest.mark.parametrize(
    ("host", "ok"),
    [
        ("127.0.0.1:9470", True),
        ("localhost:9470", True),
        ("LOCALHOST", True),
        ("console.localhost", True),
        ("[::1]:9470", True),
        ("10.1.2.3", True),
        ("mq.example.com:9470", True),
        ("evil.example:9470", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[", False),
        ("localhost:99999999", True),
    ],
)
def test_hosts(host: str, ok: bool) -> None:
    found = refusal({"host": host}, {"mq.example.com"}, is_page=True)
    assert (found is None) == ok
    assert ok or (found is not None and found[0] == 421)


@pytest.mark.parametrize(
    ("headers", "is_page", "ok"),
    [
        ({}, False, True),
        ({"origin": "http://127.0.0.1:9470"}, False, True),
        ({"origin": "https://127.0.0.1:9470"}, False, True),  # behind a proxy with TLS
        ({"origin": "http://127.0.0.1:9471"}, False, False),
        ({"origin": "http://evil.example"}, False, False),
        ({"origin": "null"}, False, False),
        ({"sec-fetch-site": "cross-site"}, False, False),
        ({"sec-fetch-site": "cross-site"}, True, True),  # a link to the pages
        ({"sec-fetch-site": "same-origin"}, False, True),
    ],
)
def test_origins(headers: dict[str, str], is_page: bool, ok: bool) -> None:
    found = refusal({"host": "127.0.0.1:9470", **headers}, (), is_page=is_page)
    assert (found is None) == ok
    assert ok or (found is not None and found[0] == 403)


def test_foreign_pages_are_refused_everywhere(consoles: Consoles) -> None:
    for path in ("cluster", "events", "/openapi.json", "/"):
        rebound = ask(consoles.http, path, headers={"Host": "evil.example"})
        assert rebound.status == 421, path
        assert "evil.example" in rebound.body["error"]
        foreign = ask(consoles.http, path, headers={"Origin": "http://evil.example"})
        assert foreign.status == 403, path
        assert "access-control-allow-origin" not in foreign.headers
    change = ask(
        consoles.changing,
        "topics",
        method="POST",
        body={"dialect": "kafka", "name": "stolen", "queues": 1},
        headers={"Origin": "http://evil.example"},
    )
    assert change.status == 403
    form = ask(consoles.changing, "topics", method="POST", headers={"Content-Type": "text/plain"})
    assert form.status == 415


def test_metrics_may_have_any_name(consoles: Consoles) -> None:
    assert ask(consoles.http, "/metrics", headers={"Host": "prometheus.target:80"}).status == 200
    assert ask(consoles.http, "/healthz", headers={"Host": "x"}).status == 200
    assert ask(consoles.kafka, "/healthz").status == 200
    assert ask(consoles.kafka, "/metrics").status != 200


def test_names_that_are_configured() -> None:
    config = HttpConfig(nameservers=("127.0.0.1:1",), hosts=("Mq.Example.com",))
    with console(config) as address:
        path = "/openapi.json"
        assert ask(address, path, headers={"Host": "mq.example.com"}).status == 200
        assert ask(address, path, headers={"Host": "example.com"}).status == 421


def test_headers_of_all_answers(consoles: Consoles) -> None:
    for path in ("cluster", "nothing", "/openapi.json", "/no.such"):
        found = ask(consoles.http, path)
        policy = found.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["cache-control"] == "no-store"
        assert "server" not in found.headers


def test_without_the_console(consoles: Consoles) -> None:
    config = HttpConfig(nameservers=(consoles.servers.nameservers,), console=False)
    with console(config) as address:
        for path in ("cluster", "/", "/openapi.json"):
            assert ask(address, path).status == 404
        assert ask(address, "/metrics").status == 200


def test_a_cluster_that_is_down_is_told() -> None:
    config = HttpConfig(nameservers=("127.0.0.1:1",), timeout_ms=2_000)
    with console(config) as address:
        view = ask(address, "cluster").body
        assert view["brokers"] == []
        assert view["nameservers"][0]["error"]
        for path in ("groups", "topics", "groups/rocketmq/g", "groups/kafka/g", "topics/kafka/t"):
            found = ask(address, path)
            assert found.status == 502, (path, found)
            assert "127.0.0.1:1" in found.body["error"]
    with console(config, "127.0.0.1:1") as address:
        (broker,) = ask(address, "cluster").body["brokers"]
        assert "cannot connect to 127.0.0.1:1" in broker["error"]
        assert ask(address, "groups").status == 502
