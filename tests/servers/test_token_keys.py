"""Brokers that verify signed access tokens: unmodified clients log in, and keys change while they run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.token_issuer import Issuer, key_set
from tests.waiting import until

from steelyard.config import BrokerConfig, KafkaConfig, check
from steelyard.driver.awaited_links import KafkaRequester
from steelyard.driver.loops import Background
from steelyard.errors import AuthenticationError, ConfigError
from steelyard.sasl.login import login_of
from steelyard.servers import token_keys
from steelyard.servers.server import LocalServer, serve_broker
from steelyard.wire.kafka.messages.cluster import METADATA, MetadataRequest, MetadataResponse


class Served:
    """A broker with OAUTHBEARER; `url`: of its key set."""

    def __init__(self, folder: Path, url: str, **settings: Any) -> None:
        kafka = KafkaConfig(
            sasl_enabled_mechanisms=("OAUTHBEARER",),
            sasl_oauthbearer_jwks_endpoint_url=url,
            connection_failed_authentication_delay_ms=0,
            **settings,
        )
        self._loop = Background()
        self.server: LocalServer = self._loop.wait(
            serve_broker(
                str(folder / "data"), port=0, kafka_port=0, config=BrokerConfig(kafka=kafka)
            )
        )

    def stop(self) -> None:
        self._loop.wait(self.server.stop())
        self._loop.stop()

    def accepts(self, token: str) -> bool:
        """Whether our client may log in with a token."""

        async def ask() -> bool:
            login = login_of("OAUTHBEARER", "", "", lambda: token)
            calls = KafkaRequester("test", timeout_ms=20_000, login=login)
            try:
                await calls.call(
                    self.server.kafka, METADATA, MetadataRequest(None), MetadataResponse
                )
            except AuthenticationError:
                return False
            finally:
                await calls.close()
            return True

        return asyncio.run(ask())


def written(path: Path, text: str) -> None:
    """Write the file as editors do: another one under its name."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys of tokens.json"


def test_clients_of_three_kinds(tmp_path: Path, keys: Path) -> None:
    """librdkafka, kafka-python and ours; the broker's answer to a token that is not valid is theirs to tell."""
    import kafka

    issuer, stranger = Issuer(), Issuer()
    keys.write_text(key_set(issuer))
    served = Served(tmp_path, keys.as_uri(), sasl_oauthbearer_expected_audience=("queue",))

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # no types
        def token(self) -> str:
            return issuer.token("alice", aud="queue")

    def librdkafka(token: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": served.server.kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda config: (token, 4e9),
        }

    try:
        producer = confluent_kafka.Producer(librdkafka(issuer.token("alice", aud="queue")))
        producer.produce("T", b"1")
        assert producer.flush(60) == 0
        consumer = kafka.KafkaConsumer(
            "T",
            bootstrap_servers=served.server.kafka,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            auto_offset_reset="earliest",
        )
        until(lambda: consumer.poll(timeout_ms=200), "kafka-python reads it")
        consumer.close()
        assert served.accepts(issuer.token("bob", aud=["web", "queue"]))
        for wrong in (
            issuer.token(aud="web"),
            stranger.token(aud="queue"),
            issuer.token(aud="queue", seconds=-5),
        ):
            assert not served.accepts(wrong)
        told: list[str] = []
        refused = confluent_kafka.Producer(
            {**librdkafka(stranger.token(aud="queue")), "error_cb": lambda e: told.append(str(e))}
        )
        until(lambda: refused.poll(0.1) or any("invalid_token" in each for each in told), "told")
    finally:
        served.stop()


def test_a_file_that_changes(tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Issuer(key_id="key-1"), Issuer(key_id="key-2")
    keys.write_text(key_set(first))
    served = Served(tmp_path, str(keys))
    try:
        assert served.accepts(first.token())
        assert not served.accepts(second.token())
        written(keys, key_set(first, second))
        until(lambda: served.accepts(second.token()), "the second key")
        written(keys, "nonsense")
        until(lambda: "the former keys still apply" in caplog.text, "told of the mistake")
        assert served.accepts(first.token())
        written(keys, key_set(second))
        until(lambda: not served.accepts(first.token()), "the first key is gone")
        assert served.accepts(second.token())
    finally:
        served.stop()


def test_a_file_that_cannot_be_used(tmp_path: Path, keys: Path) -> None:
    for text, why in ((None, "No such file"), ("nonsense", "it is not JSON")):
        if text is not None:
            keys.write_text(text)
        with pytest.raises(ConfigError, match=f"kafka.sasl_oauthbearer_jwks_endpoint_url .*{why}"):
            Served(tmp_path, str(keys))


class KeyServer(ThreadingHTTPServer):
    """Serves a key set, or an error if it has none."""

    def __init__(self) -> None:
        self.text: str | None = None

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = server.text
                self.send_response(503 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        server = self
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/keys"


@pytest.fixture
def key_server() -> Iterator[KeyServer]:
    server = KeyServer()
    yield server
    server.shutdown()
    server.server_close()


def test_a_url(
    tmp_path: Path,
    key_server: KeyServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker starts without its authorization server, and keeps the keys while that is away."""
    monkeypatch.setattr(token_keys, "RETRY_SECONDS", 0.1)
    first, second = Issuer(key_id="key-1"), Issuer(key_id="key-2")
    served = Served(tmp_path, key_server.url, sasl_oauthbearer_jwks_endpoint_refresh_ms=1_000)
    try:
        assert "Service Unavailable; no token is accepted" in caplog.text
        assert not served.accepts(first.token())
        key_server.text = key_set(first)
        until(lambda: served.accepts(first.token()), "the first key")
        key_server.text = None
        until(lambda: "the former keys still apply" in caplog.text, "told that it is away")
        assert served.accepts(first.token())
        key_server.text = key_set(second)
        until(lambda: served.accepts(second.token()), "the second key")
        assert not served.accepts(first.token())
    finally:
        served.stop()


def test_keys_at_the_start_are_there_when_clients_come(
    tmp_path: Path, key_server: KeyServer
) -> None:
    issuer = Issuer()
    key_server.text = key_set(issuer)
    served = Served(tmp_path, key_server.url)
    try:
        assert served.accepts(issuer.token())
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "give the key set that verifies tokens"),
        ({"jwks_endpoint_url": "k.json", "unsecured": True}, "not both"),
        ({"jwks_endpoint_url": "ftp://a/keys"}, "a URL with https, http or file"),
    ],
)
def test_settings(settings: dict[str, Any], why: str) -> None:
    named: dict[str, Any] = {f"sasl_oauthbearer_{name}": value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=why):
        check(BrokerConfig(kafka=KafkaConfig(sasl_enabled_mechanisms=("OAUTHBEARER",), **named)))
    with pytest.raises(ConfigError, match="OAUTHBEARER is not among"):
        check(BrokerConfig(kafka=KafkaConfig(sasl_oauthbearer_jwks_endpoint_url="k.json")))
