"""Credentials and TLS, on clusters that insist on the one and offer the other: Apache's of both lines, and ours."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.api.conftest import Servers
from tests.moves import contents
from tests.peers.apache import (
    NEW,
    NEW_SERVER,
    OLD_SERVER,
    QUICK_START,
    SEND_TIMEOUT_MS,
    Cluster,
    Peer,
    java_environment,
)
from tests.peers.conftest import STEELYARD, run_steelyard
from tests.peers.ours import Member
from tests.peers.series import message
from tests.waiting import until

from steelyard import Admin, BrokerError, Producer, ProducerConfig, SteelyardError
from steelyard.errors import CallTimeoutError, ConnectError, RouteError

pytestmark = pytest.mark.peer


class Keys(NamedTuple):
    access: str
    secret: str

    @property
    def of_java(self) -> dict[str, str]:
        """As options of a Java client."""
        return self._asdict()


OPERATOR = Keys("operator", "operator-secret")
CLERK = Keys("clerk-one", "clerk-secret")
NOBODY = Keys("", "")
REFUSED = (BrokerError, RouteError)
"""Of brokers, and of our nameservers, which want credentials as well."""
ACCOUNTS = """
accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: clerk-one
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

    server: str
    nameserver: str
    certificate: Path


OURS = "steelyard"


@pytest.fixture(scope="module", params=[OLD_SERVER, NEW_SERVER, OURS])
def guarded(
    request: pytest.FixtureRequest, maven: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    certificate, key = certificate_in(folder)
    if request.param == OURS:
        with run_ours(folder, certificate, key, "permissive") as made:
            yield made
        return
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
        made = Guarded(version, cluster.nameserver, certificate)
        with administrator(made, OPERATOR) as admin:
            for topic in ("Open", "Closed"):
                admin.create_topic(topic, cluster="DefaultCluster", queues=4)
        yield made
    finally:
        cluster.stop()


@contextmanager
def run_ours(folder: Path, certificate: Path, key: Path, mode: str) -> Iterator[Guarded]:
    """`steelyard up` with the same accounts and topics; its servers reach each other with TLS."""
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    options = (
        *("--acl-file", str(accounts), "--acl-access-key", OPERATOR.access),
        *("--tls-mode", mode, "--tls-certificate", str(certificate), "--tls-key", str(key)),
        *("--tls-ca", str(certificate)),
    )
    with run_steelyard(folder / OURS, *options) as running:
        made = Guarded(OURS, running.nameserver, certificate)
        trusting = ssl.create_default_context(cafile=str(certificate))
        with administrator(made, OPERATOR, trusting) as admin:
            for topic in ("Open", "Closed"):
                admin.create_topic(topic, cluster="DefaultCluster", queues=4)
        yield made


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """Make a certificate that vouches for itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH: there is no certificate for the brokers to show")
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
    return certificate, key


def producer(guarded: Guarded, keys: Keys, tls: ssl.SSLContext | None = None) -> Producer:
    config = ProducerConfig(access_key=keys.access, secret_key=keys.secret)
    return Producer("pg", guarded.nameserver, config=config, tls=tls)


def administrator(guarded: Guarded, keys: Keys, tls: ssl.SSLContext | None = None) -> Admin:
    return Admin(guarded.nameserver, access_key=keys.access, secret_key=keys.secret, tls=tls)


def member(guarded: Guarded, group: str, keys: Keys, tls: ssl.SSLContext | None = None) -> Member:
    config = Member.config(access_key=keys.access, secret_key=keys.secret)
    return Member(guarded.nameserver, group, "Open", config=config, tls=tls)


def test_without_credentials_nothing_goes(guarded: Guarded) -> None:
    liar = CLERK._replace(secret="some-other-secret")
    for keys in (NOBODY, liar):
        with producer(guarded, keys) as refused, pytest.raises(REFUSED):
            refused.send("Open", b"hello")
    for keys in (NOBODY, liar, CLERK):
        with administrator(guarded, keys) as refused, pytest.raises(REFUSED):
            refused.create_topic("Another", cluster="DefaultCluster")


def test_credentials_open_what_is_granted(
    guarded: Guarded, peers: dict[str, Peer], name: str
) -> None:
    """The clerk sends and consumes, in both directions with Java; a topic that is denied stays closed."""
    java = peers[NEW]
    with producer(guarded, CLERK) as clerk:
        for index in range(4):
            clerk.send(message("Open", name, index, 60))
        with pytest.raises(REFUSED):
            clerk.send("Closed", b"hello")
    java.ask("producer", f"{name}p", guarded.nameserver, f"{name}pg", **CLERK.of_java)
    java.ask("send", f"{name}p", "Open", name, 4, 4, 60)
    words = (f"{name}c", guarded.nameserver, f"{name}jg", "Open", "*")
    java.ask("consumer", *words, **CLERK.of_java)
    with member(guarded, f"{name}g", CLERK) as ours:
        until(lambda: {*ours.numbers()} >= {*range(8)}, ours.steps)
        until(lambda: {*java.numbers(f"{name}c")} >= {*range(8)}, "all at Java's")
    java.ask("stop", f"{name}c")
    java.ask("stop", f"{name}p")
    with administrator(guarded, OPERATOR) as admin:
        progress = admin.consumer_progress(f"{name}g", "Open")
    assert progress.lag == 0, progress


def test_tls(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """On the same ports; with credentials within. A certificate that is not trusted ends it."""
    java = peers[NEW]
    trusting = ssl.create_default_context(cafile=str(guarded.certificate))
    words = (f"{name}c", guarded.nameserver, f"{name}jg", "Open", "*")
    java.ask("consumer", *words, tls=True, **CLERK.of_java)
    with (
        member(guarded, f"{name}g", CLERK, trusting) as ours,
        producer(guarded, CLERK, trusting) as clerk,
    ):
        for index in range(20):
            clerk.send(message("Open", name, index, 20_000 if index % 5 == 0 else 60))
        keys = {f"{name}-key-{index}" for index in range(20)}
        until(lambda: {view.keys for view in ours.views} >= keys, "all at ours")
        until(
            lambda: {event["keys"] for event in java.received(f"{name}c")} >= keys, "all at Java's"
        )
    java.ask("stop", f"{name}c")
    with administrator(guarded, OPERATOR, trusting) as admin:
        assert "Open" in admin.topics()
    careful = producer(guarded, CLERK, ssl.create_default_context())
    with careful, pytest.raises(SteelyardError):
        careful.send("Open", b"hello", timeout_ms=3_000)


def test_spark(guarded: Guarded, name: str) -> None:
    """The source reads with credentials, plain and encrypted; without, it says which broker refused it."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install steelyard[spark]")
    from steelyard.spark.options.reading import read_options
    from steelyard.spark.source import RocketMQReader

    def keys_of(topic: str, **options: str) -> set[str]:
        given = {"nameservers": guarded.nameserver, "subscribe": topic, "retryTimeoutMs": "5000"}
        reader = RocketMQReader(read_options(given | options))
        return {
            key
            for part in reader.partitions()
            for batch in reader.read(part)
            for key in batch.column("keys").to_pylist()  # type: ignore[attr-defined]
        }

    with producer(guarded, CLERK) as clerk:
        for index in range(8):
            clerk.send(message("Open", name, index, 60))
    # 5.x lets the clerk consume, but not ask where queues begin and end.
    signed = {"accessKey": OPERATOR.access, "secretKey": OPERATOR.secret}
    encrypted = {"tls": "true", "tlsCaFile": str(guarded.certificate)}
    sent = {f"{name}-key-{index}" for index in range(8)}
    until(lambda: keys_of("Open", **signed) >= sent, "all readable")
    assert keys_of("Open", **signed, **encrypted) >= sent
    for options in ({}, signed | {"secretKey": "some-other-secret"}, encrypted):
        with pytest.raises(REFUSED, match=r"127\.0\.0\.1:\d+"):
            keys_of("Open", **options)
    with pytest.raises(ConnectError, match=r"certificate verify failed"):
        keys_of("Open", **signed, tls="true", retryTimeoutMs="0")


def test_move(guarded: Guarded, name: str, tmp_path: Path, capsys: Any) -> None:
    """A topic goes there and back with credentials, encrypted; without them one line says who refused it."""
    pytest.importorskip("pyarrow", reason="Spark is not installed: pip install steelyard[spark]")
    from steelyard.spark import pipeline

    given = {"accessKey": OPERATOR.access, "secretKey": OPERATOR.secret}
    given |= {"tls": "true", "tlsCaFile": str(guarded.certificate)}

    def move(source: str, target: str, state: str, **options: Mapping[str, str]) -> int:
        command = ["move", "rocketmq", "--from", source, "--to", target, "-t", name]
        for side, named in options.items():
            command += [f"--{side}-option={key}={text}" for key, text in named.items()]
        return pipeline.main([*command, "--state", str(tmp_path / state)])

    home, third = Servers(tmp_path / "home"), Servers(tmp_path / "third")
    try:
        with Admin(home.nameservers) as admin:
            admin.create_topic(name, queues=2)
        with Producer(f"{name}p", home.nameservers, send_timeout_ms=SEND_TIMEOUT_MS) as sender:
            for index in range(20):
                sender.send(message(name, "s", index, 60))
        away = guarded.nameserver
        assert move(home.nameservers, away, "there", to=given) == 0, capsys.readouterr()
        assert move(away, third.nameservers, "back", **{"from": given}) == 0, capsys.readouterr()
        sent, returned = (
            [[view[0] for view in one] for _, one in sorted(contents(where, name).items())]
            for where in (home.nameservers, third.nameservers)
        )
        assert [one for one in returned if one] == sent
        capsys.readouterr()
        refused = {"retryTimeoutMs": "0"}
        assert move(away, home.nameservers, "other", **{"from": refused}) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "127.0.0.1:" in line
    finally:
        home.stop()
        third.stop()


def test_spark_sink(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """The sink writes with credentials, plain and encrypted, what Java consumes; else it says which broker refused it."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install steelyard[spark]")
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from steelyard.spark.writing.sink import batch_writer

    schema = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])

    def write(key: str, topic: str = "Open", **options: str) -> None:
        given = {"nameservers": guarded.nameserver, "topic": topic, "retryTimeoutMs": "5000"}
        writer = batch_writer(given | options, schema, overwrite=False)
        rows = pa.RecordBatch.from_pydict({"body": [b"a row"] * 2, "keys": [f"{name}-{key}"] * 2})
        writer.write(iter([rows]))

    java = peers[NEW]
    words = (f"{name}c", guarded.nameserver, f"{name}jg", "Open", "*")
    java.ask("consumer", *words, **CLERK.of_java)
    signed = {"accessKey": CLERK.access, "secretKey": CLERK.secret}
    encrypted = {"tls": "true", "tlsCaFile": str(guarded.certificate)}
    write("plain", **signed)
    write("encrypted", **signed, **encrypted)
    wrong = signed | {"secretKey": "some-other-secret"}
    refused_ones = [wrong, wrong | encrypted, encrypted, {}]
    if guarded.server != OLD_SERVER:  # 4.9 does not look at the topic of a batch
        refused_ones.append(signed | {"topic": "Closed"})
    for options in refused_ones:
        with pytest.raises(REFUSED, match=r"127\.0\.0\.1:\d+") as refused:
            write("refused", **options)
        assert "secret" not in str(refused.value).replace(wrong["secretKey"], "secret")
    with pytest.raises(ConnectError, match=r"certificate verify failed"):
        write("refused", **signed, tls="true")

    def keys() -> list[str]:
        found = [event["keys"] for event in java.received(f"{name}c")]
        return sorted(key for key in found if str(key).startswith(name))

    until(lambda: len(keys()) >= 4, "all at Java's")
    assert keys() == [f"{name}-encrypted"] * 2 + [f"{name}-plain"] * 2
    java.ask("stop", f"{name}c")


def test_java_is_told_why(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """A wrong key and a missing permission are errors of the client's own, with the server's code.

    Our nameserver wants credentials, too: without them, its clients find no route.
    """
    wrong = CLERK._replace(secret="some-other-secret")
    code = "CODE: 1 " if guarded.server == OLD_SERVER else "CODE: 16 "
    for number, (keys, topic) in enumerate(((wrong, "Open"), (NOBODY, "Open"), (CLERK, "Closed"))):
        for version, java in peers.items():
            producer_name = f"{name}{number}{version}"
            options = keys.of_java if keys.access else {}
            java.ask("producer", producer_name, guarded.nameserver, f"{name}pg", **options)
            words = "No route info" if guarded.server == OURS and keys != CLERK else code
            with pytest.raises(AssertionError, match=words) as caught:
                java.ask("send", producer_name, topic, name, 0, 1, 60)
            assert "secret" not in str(caught.value)
            java.ask("stop", producer_name)


def test_mqadmin(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """With the operator's keys, as in its tools.yml, mqadmin works; with a clerk's it creates no topic."""
    java = peers[NEW]
    words = ("updateTopic", "-n", guarded.nameserver, "-c", "DefaultCluster", "-t", name)
    for keys in (CLERK, OPERATOR._replace(secret="some-other-secret")):
        with pytest.raises(AssertionError):
            java.mqadmin(*words, **keys.of_java)
    with administrator(guarded, OPERATOR) as admin:
        assert name not in admin.topics()
    assert "create topic to" in java.mqadmin(*words, **OPERATOR.of_java)
    with administrator(guarded, OPERATOR) as admin:
        until(lambda: name in admin.topics(), "the topic")


def test_users_of_5x(guarded: Guarded, peers: dict[str, Peer], name: str) -> None:
    """mqadmin makes a user and says what it may; Java's clients of both lines, and ours, are bound by it."""
    if guarded.server == OLD_SERVER:
        pytest.skip("RocketMQ 4.9 has accounts in a file only")
    java, user = peers[NEW], Keys(f"{name}-user", "users-secret")
    where = ("-n", guarded.nameserver, "-c", "DefaultCluster")

    def told(*words: str) -> str:
        return java.mqadmin(*words, *where, **OPERATOR.of_java)

    def allow(
        resources: str, actions: str, decision: str = "Allow", command: str = "createAcl"
    ) -> str:
        words = ("-s", f"User:{user.access}", "-r", resources, "-a", actions, "-d", decision)
        return told(command, *words)

    assert "success" in told("createUser", "-u", user.access, "-p", user.secret)
    assert user.access in told("getUser", "-u", user.access)
    assert user.access in told("listUser", "-f", name)
    with producer(guarded, user) as refused, pytest.raises(REFUSED):
        refused.send("Open", b"hello")
    # Apache's brokers ask for the group's retry topic as a topic, when a client looks for its route.
    assert "success" in allow(f"Topic:Open,Topic:%RETRY%{name}*", "Pub,Sub,Get")
    assert "success" in allow(f"Group:{name}*,Topic:TBW102", "Sub,Get")
    shown = told("getAcl", "-s", f"User:{user.access}")
    assert "Topic:Open" in shown
    assert f"Group:{name}*" in shown
    assert user.access in told("listAcl", "-s", name)
    with producer(guarded, user) as sender:
        for index in range(4):
            sender.send(message("Open", name, index, 60))
        with pytest.raises(REFUSED):
            sender.send("Closed", b"hello")
    for number, (version, client) in enumerate(peers.items(), 1):
        member_name = f"{name}{version}"
        client.ask("producer", f"{member_name}p", guarded.nameserver, f"{name}pg", **user.of_java)
        client.ask("send", f"{member_name}p", "Open", name, 4 * number, 4, 60)
        with pytest.raises(AssertionError, match=r"No route info|CODE: 16 "):
            client.ask("send", f"{member_name}p", "Closed", name, 0, 1, 60)
        client.ask("stop", f"{member_name}p")
        words = (f"{member_name}c", guarded.nameserver, f"{name}g{number}", "Open", "*")
        client.ask("consumer", *words, **user.of_java)
    sent = {f"{name}-key-{index}" for index in range(4 * (len(peers) + 1))}
    with member(guarded, f"{name}g", user) as ours:
        until(lambda: {view.keys for view in ours.views} >= sent, "all at ours")
    until(
        lambda: all(
            {event["keys"] for event in client.received(f"{name}{version}c")} >= sent
            for version, client in peers.items()
        ),
        "all at Java's",
    )
    for version, client in peers.items():
        client.ask("stop", f"{name}{version}c")
    with pytest.raises(AssertionError):
        java.mqadmin("updateTopic", *where, "-t", f"{name}-topic", **user.of_java)
    allow("Topic:Open", "Pub", "Deny", "updateAcl")
    with producer(guarded, user) as denied, pytest.raises(REFUSED):
        denied.send("Open", b"hello")
    told("deleteAcl", "-s", f"User:{user.access}", "-r", "Topic:Open")
    assert "Topic:Open" not in told("getAcl", "-s", f"User:{user.access}")
    told("updateUser", "-u", user.access, "-s", "disable")
    assert "disable" in told("getUser", "-u", user.access)
    told("deleteUser", "-u", user.access)
    assert user.access not in told("listUser", "-f", name)
    # Our servers' answers to an unknown key come later and later.
    with producer(guarded, user) as unknown, pytest.raises((*REFUSED, CallTimeoutError)):
        unknown.send("Open", b"hello")


def test_our_commands_for_users(guarded: Guarded, name: str) -> None:
    """The same commands of `steelyard admin`, at Apache's brokers and ours."""
    if guarded.server == OLD_SERVER:
        pytest.skip("RocketMQ 4.9 has accounts in a file only")
    user = f"{name}-user"
    environment = java_environment() | {
        "STEELYARD_ACCESS_KEY": OPERATOR.access,
        "STEELYARD_SECRET_KEY": OPERATOR.secret,
    }

    def told(command: str, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [
                *(str(STEELYARD), "admin", command, "-n", guarded.nameserver),
                *("-c", "DefaultCluster", *words),
            ],
            input="users-secret\n",
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == code, done
        return done.stdout + done.stderr

    assert "create user to 127.0.0.1:" in told("createUser", "-u", user)
    assert "existed" in told("createUser", "-u", user, code=1)
    words = ("-s", f"User:{user}", "-r", "Topic:Open,Topic:O*", "-a", "Pub,Sub", "-d", "Allow")
    told("createAcl", *words, "-i", "127.0.0.1,10.0.0.0/8")
    rows = [line.split() for line in told("getAcl", "-s", f"User:{user}").splitlines()[1:]]
    assert sorted(rows) == [
        [f"User:{user}", "Custom", each, "Pub,Sub", "127.0.0.1,10.0.0.0/8", "Allow"]
        for each in ("Topic:O*", "Topic:Open")
    ]
    with producer(guarded, Keys(user, "users-secret")) as sender:
        sender.send("Open", b"hello")
    told("deleteAcl", "-s", f"User:{user}", "-r", "Topic:O*")
    assert "Topic:O*" not in told("listAcl", "-s", user)
    told("updateUser", "-u", user, "-t", "Super", "-s", "disable")
    assert told("listUser", "-f", name).splitlines()[1].split() == [user, "Super", "disable"]
    told("deleteUser", "-u", user)
    assert f"there is no user {user}" in told("getUser", "-u", user, code=2)


@pytest.fixture(scope="module")
def enforcing(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Our servers, to which nobody connects without TLS."""
    folder = tmp_path_factory.mktemp("enforcing")
    certificate, key = certificate_in(folder)
    with run_ours(folder, certificate, key, "enforcing") as made:
        yield made


def test_nobody_connects_without_tls(
    enforcing: Guarded, peers: dict[str, Peer], name: str, tmp_path: Path
) -> None:
    """Java's clients of both lines and mqadmin work with TLS, and not without; so does our command line.

    A client of 4.9 may not notice that the server has closed its connection, and wait for an answer
    until its time is up, as with Apache's servers.
    """
    refused = r"No route info|send request to|wait response on the channel"
    for version, java in peers.items():
        member_name = f"{name}{version}"
        java.ask("producer", f"{member_name}p", enforcing.nameserver, f"{name}pg", **CLERK.of_java)
        with pytest.raises(AssertionError, match=refused):
            java.ask("send", f"{member_name}p", "Open", name, 0, 1, 60)
        java.ask("stop", f"{member_name}p")
        words = (f"{member_name}t", enforcing.nameserver, f"{name}pt")
        java.ask("producer", *words, tls=True, **CLERK.of_java)
        java.ask("send", f"{member_name}t", "Open", member_name, 0, 4, 60)
        java.ask("stop", f"{member_name}t")
    with Peer(NEW, tmp_path, java_options=(*QUICK_START, "-Dtls.enable=true")) as java:
        listed = java.mqadmin("clusterList", "-n", enforcing.nameserver, **OPERATOR.of_java)
        assert "broker-a" in listed
        assert "broker-b" in listed
    environment = java_environment() | {
        "STEELYARD_ACCESS_KEY": OPERATOR.access,
        "STEELYARD_SECRET_KEY": OPERATOR.secret,
        "SSL_CERT_FILE": str(enforcing.certificate),
    }
    command = [str(STEELYARD), "admin", "topicList", "-n", enforcing.nameserver]
    for options in ([], ["--tls"]):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=environment, check=False
        )
        assert (done.returncode == 0) == ("Open" in done.stdout) == bool(options), done
