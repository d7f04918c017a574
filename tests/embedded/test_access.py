"""`steelyard.Server` with TLS and accounts: it asks its own servers as their operator."""

from __future__ import annotations

import base64
from pathlib import Path

import confluent_kafka
import pytest
from tests.certificates import Authority
from tests.waiting import until

from steelyard import BrokerError, Producer, ProducerConfig, Server
from steelyard.errors import ConfigError, RouteError, SteelyardError

ACCOUNTS = """\
accounts:
- accessKey: the-brokers
  secretKey: brokers-secret
  admin: true
- accessKey: clerk-one
  secretKey: clerk-secret
  topicPerms: [orders=PUB]
"""


@pytest.mark.parametrize("in_process", [True, False])
def test_enforcing(tmp_path: Path, in_process: bool) -> None:  # a parameter
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
    clerk = ProducerConfig(access_key="clerk-one", secret_key="clerk-secret")
    with Server(brokers=2, kafka=False, in_process=in_process, settings=settings) as server:
        server.create_topic("orders")
        server.create_topic("closed")
        context = authority.client_context()
        with Producer("pg", server.nameserver, config=clerk, tls=context) as producer:
            producer.send("orders", b"hello")
            with pytest.raises((BrokerError, RouteError), match="no permission for topic closed"):
                producer.send("closed", b"hello")
        with (
            pytest.raises(SteelyardError),
            Producer("pg", server.nameserver, config=clerk) as plain,
        ):
            plain.send("orders", b"hello", timeout_ms=1_000)
        assert server.rebalances() == []


USERS = """\
[hashed]
SCRAM-SHA-512 = "salt=AAAAAAAAAAAAAAAAAAAAAA==,stored_key={key},server_key={key},iterations=4096"

[operator]
password = "operators-secret"

[clerk]
password = "clerks-secret"
"""


@pytest.mark.parametrize("in_process", [True, False])
def test_kafka_clients_that_log_in(tmp_path: Path, in_process: bool) -> None:
    """The server asks its own brokers as the first user that has a password."""
    authority = Authority(tmp_path / "tls")
    pair = authority.sign("server", "/CN=server")
    users = tmp_path / "users.toml"
    users.write_text(USERS.format(key=base64.b64encode(bytes(64)).decode()))
    settings: dict[str, str | list[str]] = {
        "kafka.ssl_certificate_file": str(pair.certificate),
        "kafka.ssl_key_file": str(pair.key),
        "kafka.sasl_enabled_mechanisms": ["SCRAM-SHA-512"],
        "kafka.authorizer": "acl",
        "kafka.super_users": ["User:operator", "User:clerk"],
        "users_file": str(users),
    }
    with Server(brokers=2, kafka=True, in_process=in_process, settings=settings) as server:
        topic = server.create_topic("orders.new", queues=1)
        client = {
            "bootstrap.servers": server.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "clerk",
            "sasl.password": "clerks-secret",
        }
        producer = confluent_kafka.Producer(client)
        producer.produce(topic, b"hello")
        assert producer.flush(60) == 0
        consumer = confluent_kafka.Consumer(
            {**client, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        assigned: list[int] = []
        consumer.subscribe([topic], on_assign=lambda _, found: assigned.append(len(found)))
        until(lambda: consumer.poll(0.2), "the message")
        server.force_rebalance("g")
        until(lambda: consumer.poll(0.2) or len(assigned) > 1, "another generation")
        server.lose_member("g")
        until(lambda: consumer.poll(0.2) or len(assigned) > 2, "it joins again")
        consumer.close()


def test_a_server_that_cannot_log_in(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("")
    for settings in (
        {"kafka.sasl_enabled_mechanisms": ["PLAIN"], "users_file": str(users)},
        {"kafka.sasl_enabled_mechanisms": ["PLAIN"]},
    ):
        with (
            pytest.raises(ConfigError, match="the first user of users_file that has a password"),
            Server(kafka=True, in_process=True, settings=settings),
        ):
            pass


def test_unsigned_tokens() -> None:
    settings: dict[str, bool | list[str]] = {
        "kafka.sasl_enabled_mechanisms": ["OAUTHBEARER"],
        "kafka.sasl_oauthbearer_unsecured": True,
    }
    with Server(kafka=True, in_process=True, settings=settings) as server:
        assert server.create_topic("orders.new", queues=1) == "orders.new"
