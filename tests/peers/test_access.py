"""Credentials and TLS, on Apache clusters of both lines that insist on the one and offer the other."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.peers.apache import NEW, NEW_SERVER, OLD_SERVER, Cluster, Peer, eventually
from tests.peers.ours import Member
from tests.peers.series import message

from steelyard import Admin, BrokerError, Producer, ProducerConfig, SteelyardError

pytestmark = pytest.mark.peer

OPERATOR = {"access_key": "operator", "secret_key": "operator-secret"}
CLERK = {"access_key": "clerk1", "secret_key": "clerk-secret"}
ACCOUNTS = """
accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: clerk1
  secretKey: clerk-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - Open=PUB|SUB
  - Closed=DENY
"""
"""conf/plain_acl.yml of 4.x; 5.x takes the accounts over from there."""

_AUTH = "org.apache.rocketmq.auth"
SETTINGS: dict[str, dict[str, object]] = {
    OLD_SERVER: {"aclEnable": "true"},
    NEW_SERVER: {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        "migrateAuthFromV1Enabled": "true",
        "innerClientAuthenticationCredentials": '{"accessKey":"operator","secretKey":"operator-secret"}',
        "initAuthenticationUser": '{"username":"operator","password":"operator-secret"}',
    },
}


class Guarded(NamedTuple):
    """A cluster that wants credentials, with the topics Open and Closed, and the certificate that it shows."""

    nameserver: str
    certificate: Path


@pytest.fixture(scope="module", params=[OLD_SERVER, NEW_SERVER])
def guarded(
    request: pytest.FixtureRequest, maven: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH: there is no certificate for the brokers to show")
    folder = tmp_path_factory.mktemp("guarded")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "conf").mkdir()
    (folder / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    options = (
        *("-Xms256m", "-Xmx512m", "-Dtls.server.mode=permissive", "-Dtls.test.mode.enable=false"),
        *(f"-Dtls.server.certPath={certificate}", f"-Dtls.server.keyPath={key}"),
    )
    version: str = request.param
    cluster = Cluster(folder, version, java_options=options, settings=SETTINGS[version])
    try:
        cluster.start().wait_ready()
        with Admin(cluster.nameserver, **OPERATOR) as admin:
            for topic in ("Open", "Closed"):
                admin.create_topic(topic, cluster="DefaultCluster", queues=4)
        yield Guarded(cluster.nameserver, certificate)
    finally:
        cluster.stop()


def producer(guarded: Guarded, *, tls: ssl.SSLContext | None = None, **keys: str) -> Producer:
    return Producer("pg", guarded.nameserver, config=ProducerConfig(**keys), tls=tls)


def test_without_credentials_nothing_goes(guarded: Guarded) -> None:
    with producer(guarded) as nobody, pytest.raises(BrokerError):
        nobody.send("Open", b"hello")
    wrong = {**CLERK, "secret_key": "some-other-secret"}
    with producer(guarded, **wrong) as liar, pytest.raises(BrokerError):
        liar.send("Open", b"hello")
    with Admin(guarded.nameserver) as admin, pytest.raises(BrokerError):
        admin.create_topic("Another", cluster="DefaultCluster")
    with Admin(guarded.nameserver, **CLERK) as admin, pytest.raises(BrokerError):
        admin.create_topic("Another", cluster="DefaultCluster")


def test_credentials_open_what_is_granted(
    guarded: Guarded, peers: dict[str, Peer], name: str
) -> None:
    """The clerk sends and consumes, in both directions with Java; a topic that is denied stays closed."""
    java = peers[NEW]
    access: dict[str, Any] = {"access": CLERK["access_key"], "secret": CLERK["secret_key"]}
    with producer(guarded, **CLERK) as clerk:
        with pytest.raises(BrokerError):
            clerk.send("Closed", b"hello")
        for index in range(4):
            clerk.send(message("Open", name, index, 60))
        with pytest.raises(SteelyardError):
            clerk.send_batch([message("Closed", name, index, 60) for index in range(2)])
    java.ask("producer", f"{name}p", guarded.nameserver, f"{name}pg", **access)
    java.ask("send", f"{name}p", "Open", name, 4, 4, 60)
    java.ask("consumer", f"{name}c", guarded.nameserver, f"{name}jg", "Open", "*", **access)
    with Member(guarded.nameserver, f"{name}g", "Open", config=Member.config(**CLERK)) as member:
        eventually(lambda: {*member.numbers()} >= {*range(8)}, member.steps)
        eventually(lambda: {*java.numbers(f"{name}c")} >= {*range(8)}, "all at Java's")
    java.ask("stop", f"{name}c")
    java.ask("stop", f"{name}p")
    with Admin(guarded.nameserver, **OPERATOR) as admin:
        eventually(lambda: admin.consumer_progress(f"{name}g", "Open").lag == 0, "all committed")


def test_tls(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """On the same ports; with credentials within. A certificate that is not trusted ends it."""
    java = peers[NEW]
    access: dict[str, Any] = {"access": CLERK["access_key"], "secret": CLERK["secret_key"]}
    trusting = ssl.create_default_context(cafile=str(guarded.certificate))
    java.ask(
        "consumer", f"{name}c", guarded.nameserver, f"{name}jg", "Open", "*", tls=True, **access
    )
    config = Member.config(**CLERK)
    member = Member(guarded.nameserver, f"{name}g", "Open", config=config, tls=trusting)
    with member, producer(guarded, tls=trusting, **CLERK) as clerk:
        for index in range(20):
            clerk.send(message("Open", name, index, 20_000 if index % 5 == 0 else 60))
        keys = {f"{name}-key-{index}" for index in range(20)}
        eventually(lambda: {view.keys for view in member.views} >= keys, "all at ours")
        eventually(
            lambda: {event["keys"] for event in java.received(f"{name}c")} >= keys, "all at Java's"
        )
    java.ask("stop", f"{name}c")
    with Admin(guarded.nameserver, **OPERATOR, tls=trusting) as admin:
        assert "Open" in admin.topics()
    with producer(guarded, tls=ssl.create_default_context(), **CLERK) as careful:
        with pytest.raises(SteelyardError):
            careful.send("Open", b"hello", timeout_ms=3_000)
