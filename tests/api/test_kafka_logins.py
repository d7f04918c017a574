"""Both shells of KafkaConsumer log in at a broker with TLS, by each mechanism; and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.certificates import Authority

from steelyard import KafkaConsumer, aio
from steelyard.config import BrokerConfig, KafkaConfig, SaslMechanism
from steelyard.driver.awaited_links import KafkaRequester
from steelyard.driver.loops import Background
from steelyard.errors import AuthenticationError, ConfigError
from steelyard.sasl.login import login_of
from steelyard.servers.server import LocalServer, serve_broker
from steelyard.wire.kafka.messages.cluster import METADATA, MetadataRequest, MetadataResponse

MECHANISMS: tuple[SaslMechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "a, =secret"
RECORDS = [b"1", b"2", b"3"]


def token() -> str:
    """An unsigned access token of a minute."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "none"}, {"sub": USER, "exp": time.time() + 60})
    ]
    return ".".join([*parts, ""])


@dataclass
class Served:
    """A broker that asks for logins, with a topic; `tls`: whether it wants TLS."""

    kafka: str
    authority: Authority
    has_tls: bool

    def login(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """A consumer's arguments."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.kafka,
            "sasl_mechanism": mechanism,
            "security_protocol": "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT",
            "auto_offset_reset": "earliest",
        }
        if self.has_tls:
            found["tls"] = self.authority.client_context()
        if mechanism == "OAUTHBEARER":
            return {**found, "sasl_oauth_token": token}
        return {**found, "sasl_username": USER, "sasl_password": password}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("logins")
    authority = Authority(folder / "tls")
    pair = authority.sign("broker", "/CN=broker")
    users = folder / "users.toml"
    users.write_text(f'[{USER}]\npassword = "{PASSWORD}"\n')
    has_tls: bool = request.param
    kafka = KafkaConfig(
        ssl_certificate_file=str(pair.certificate) if has_tls else "",
        ssl_key_file=str(pair.key) if has_tls else "",
        sasl_enabled_mechanisms=MECHANISMS,
        sasl_oauthbearer_unsecured=True,
        connections_max_reauth_ms=2_000,
    )
    config = BrokerConfig(kafka=kafka, users_file=str(users))
    background = Background()
    server: LocalServer = background.wait(
        serve_broker(str(folder / "data"), port=0, kafka_port=0, config=config)
    )
    found = Served(server.kafka, authority, has_tls)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.kafka,
            "security.protocol": "SASL_SSL" if has_tls else "SASL_PLAINTEXT",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    for record in RECORDS:
        producer.produce("T", record)
    assert producer.flush(60) == 0
    yield found
    background.wait(server.stop())
    background.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_blocking(served: Served, mechanism: str) -> None:
    """It joins a group as well, whose coordinator has a connection of its own."""
    with KafkaConsumer("T", group_id=mechanism, **served.login(mechanism)) as consumer:
        found: list[bytes | None] = []
        while len(found) < len(RECORDS):
            found += [record.value for record in consumer.poll(5_000)]
        assert found == RECORDS
        consumer.commit()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_asyncio(served: Served, mechanism: str) -> None:
    async def main() -> None:
        async with aio.KafkaConsumer(
            "T", group_id=f"{mechanism}-aio", **served.login(mechanism)
        ) as consumer:
            found: list[bytes | None] = []
            while len(found) < len(RECORDS):
                found += [record.value for record in await consumer.poll(5_000)]
            assert found == RECORDS

    asyncio.run(main())


def test_it_logs_in_again_before_its_session_ends(served: Served) -> None:
    """Over three sessions no connection is lost: the broker has seen no login of a new one."""
    with KafkaConsumer("T", **{**served.login("SCRAM-SHA-256"), "group_id": "again"}) as consumer:
        consumer.poll(5_000)
        member = consumer.member_id
        until = time.monotonic() + 6
        while time.monotonic() < until:
            consumer.poll(200)
        assert consumer.member_id == member


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(served: Served, mechanism: str) -> None:
    arguments = served.login(mechanism, "wr0ng")
    starting = KafkaConsumer("T", group_id="g", **arguments)
    with pytest.raises(AuthenticationError, match="refused the login") as error:
        starting.start()
    assert "wr0ng" not in str(error.value)
    polling = KafkaConsumer("T", group_id="g", **arguments)
    with pytest.raises(AuthenticationError, match="refused the login"):
        polling.poll(60_000)
    with pytest.raises(AuthenticationError, match="refused the login"):
        polling.partitions_for_topic("T")
    polling.close()


def test_a_requester(served: Served) -> None:
    async def main() -> None:
        tls = served.authority.client_context() if served.has_tls else None
        for mechanism in MECHANISMS:
            has_token = mechanism == "OAUTHBEARER"
            login = login_of(
                mechanism,
                "" if has_token else USER,
                "" if has_token else PASSWORD,
                token if has_token else None,
            )
            calls = KafkaRequester("test", timeout_ms=20_000, tls=tls, login=login)
            for _ in range(2):
                answer = await calls.call(
                    served.kafka, METADATA, MetadataRequest(None), MetadataResponse
                )
                assert answer.brokers
                if mechanism == "PLAIN":
                    await asyncio.sleep(2.2)  # the session ends: another connection takes over
            await calls.close()
        wrong = login_of("SCRAM-SHA-512", USER, "wr0ng")
        calls = KafkaRequester("test", timeout_ms=20_000, tls=tls, login=wrong)
        with pytest.raises(AuthenticationError):
            await calls.call(served.kafka, METADATA, MetadataRequest(None), MetadataResponse)
        await calls.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
        ({"sasl_mechanism": "PLAIN"}, "needs sasl_username and sasl_password"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "needs sasl_username and"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token"),
        ({"sasl_username": "a", "sasl_password": "b"}, "without sasl_mechanism"),
        ({"sasl_oauth_token": token}, "sasl_mechanism='OAUTHBEARER'"),
        ({"security_protocol": "SASL_SSL"}, "give sasl_mechanism"),
        ({"security_protocol": "PLAINTEXT", "tls": True}, "'SSL' or 'SASL_SSL'"),
        ({"security_protocol": "SSL", "tls": False}, "tls is False"),
        (
            {
                "security_protocol": "SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "b",
            },
            "expected 'SASL_PLAINTEXT'",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        KafkaConsumer("T", **arguments)


def test_the_password_is_not_printed() -> None:
    consumer = KafkaConsumer("T", sasl_mechanism="PLAIN", sasl_username="a", sasl_password="hidden")
    assert "hidden" not in repr(consumer.config) + repr(consumer._login)
