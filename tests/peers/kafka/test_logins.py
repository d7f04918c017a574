"""Logins and TLS of unmodified clients; the same at Apache's listener, which is the control."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import kafka.record.memory_records
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from tests.certificates import Authority
from tests.peers.apache import Missing, java_environment
from tests.peers.kafka import builds, servers
from tests.peers.kafka.servers import QUICK_START, QUIET
from tests.waiting import PATIENCE_S, until

from steelyard import KafkaConsumer
from steelyard.errors import AuthenticationError

pytestmark = pytest.mark.peer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}
SESSION_MS = 3_000


class Place(NamedTuple):
    """Where clients log in. `ca`: whose certificates they trust there; None without TLS."""

    kind: str
    address: str
    ca: Path | None

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.ca is None else "SASL_SSL"

    def librdkafka(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": self.protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            **({"ssl.ca.location": str(self.ca)} if self.ca else {}),
        }

    def context(self) -> ssl.SSLContext | None:
        return None if self.ca is None else ssl.create_default_context(cafile=str(self.ca))

    def properties(self, folder: Path, mechanism: str, user: str, password: str) -> Path:
        """A file for Java's clients."""
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        module = f"org.apache.kafka.common.security.{kind}LoginModule"
        lines = [
            f"security.protocol={self.protocol}",
            f"sasl.mechanism={mechanism}",
            f'sasl.jaas.config={module} required username="{user}" password="{password}";',
        ]
        if self.ca is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        path = folder / f"{user}-{mechanism}.properties"
        path.write_text("\n".join(lines))
        return path


def make_users(admin: AdminClient, *names: str) -> None:
    """Give users a password for both mechanisms of SCRAM, as any administrator's client does."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(mechanism, 8192), PASSWORDS[name].encode()
            )
            for name in names
        ]
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(PATIENCE_S)


@pytest.fixture(scope="module", params=["apache", "steelyard", "steelyard-tls"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "apache":
        try:
            with servers.run_apache(
                folder,
                settings={**servers.SETTINGS, "connections.max.reauth.ms": SESSION_MS},
                logins=PASSWORDS,
            ) as running:
                make_users(AdminClient({"bootstrap.servers": running.bootstrap}), *PASSWORDS)
                yield Place("apache", running.login, None)
        except Missing as reason:
            pytest.skip(f"no Apache Kafka: {reason}")
        return
    (folder / "users.toml").write_text(f'[admin]\npassword = "{PASSWORDS["admin"]}"\n')
    options = ["--kafka-sasl", ",".join(MECHANISMS), "--users", str(folder / "users.toml")]
    options += ["--set", f"kafka.connections_max_reauth_ms={SESSION_MS}"]
    ca = None
    if request.param == "steelyard-tls":
        authority = Authority(folder / "tls")
        pair, ca = authority.sign("broker", "/CN=broker"), authority.certificate
        options += ["--kafka-tls-certificate", str(pair.certificate)]
        options += ["--kafka-tls-key", str(pair.key)]
    with servers.run_steelyard(folder, *options, brokers=2, is_waited_for=False) as running:
        found = Place(request.param, running.bootstrap, ca)
        admin = AdminClient(found.librdkafka("PLAIN", "admin", PASSWORDS["admin"]))
        until(lambda: len(admin.list_topics(timeout=5).brokers) == 2)
        make_users(admin, "alice")
        yield found


def by_librdkafka(place: Place, mechanism: str, password: str, topic: str) -> list[bytes]:
    login = place.librdkafka(mechanism, "alice", password)
    failures: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**login, "error_cb": failures.append})
    producer.produce(topic, b"one")
    until(lambda: producer.flush(0.1) == 0 or refused(failures))
    if refused(failures):
        raise PermissionError(str(failures))
    consumer = confluent_kafka.Consumer(
        {**login, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = until(lambda: consumer.poll(1.0))
        return [message.value() or b""]
    finally:
        consumer.close()


def refused(failures: list[confluent_kafka.KafkaError]) -> bool:
    return any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in failures)


def by_kafka_python(place: Place, mechanism: str, password: str, topic: str) -> list[bytes]:
    login: dict[str, Any] = {
        "bootstrap_servers": place.address,
        "security_protocol": place.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
        "ssl_context": place.context(),
    }
    try:
        producer = kafka.KafkaProducer(**login, max_block_ms=20_000)
        producer.send(topic, b"one").get(20)
    except kafka.errors.KafkaError as error:
        raise PermissionError(repr(error)) from None
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **login, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    found = [next(iter(consumer)).value]
    consumer.close()
    return found


def by_aiokafka(place: Place, mechanism: str, password: str, topic: str) -> list[bytes]:
    login: dict[str, Any] = {
        "bootstrap_servers": place.address,
        "security_protocol": place.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
        "ssl_context": place.context(),
    }

    async def exchange() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(**login)
        try:
            await producer.start()
        except aiokafka.errors.KafkaError as error:
            await producer.stop()
            raise PermissionError(repr(error)) from None
        await producer.send_and_wait(topic, b"one")
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **login, group_id=topic, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), 60)).value]
        finally:
            await consumer.stop()

    return asyncio.run(exchange())


def by_sarama(place: Place, mechanism: str, password: str, topic: str) -> list[bytes]:
    """It makes the topic itself, writes with idempotence and all acknowledgements, and commits what its group read."""
    options = {
        "bootstrap": place.address,
        "mechanism": mechanism,
        "user": "alice",
        "password": password,
        "topic": topic,
        "ca": place.ca or "",
    }
    words = [f"{key}={value}" for key, value in options.items()]
    done = subprocess.run(
        [str(builds.go_program("sarama_login")), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    *told, last = [json.loads(line) for line in done.stdout.splitlines()]
    if "SASL Authentication failed" in last.get("error", ""):
        raise PermissionError(last["error"])
    assert last == {"event": "left"}, done.stdout + done.stderr
    record, committed = told
    assert committed == {"event": "committed", "offset": 1}
    return [record["value"].encode()]


def by_our_consumer(place: Place, mechanism: str, password: str, topic: str) -> list[bytes]:
    writer = confluent_kafka.Producer(place.librdkafka("PLAIN", "admin", PASSWORDS["admin"]))
    writer.produce(topic, b"one")
    assert writer.flush(60) == 0
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=place.address,
        group_id=topic,
        security_protocol=place.protocol,  # type: ignore[arg-type]
        sasl_mechanism=mechanism,  # type: ignore[arg-type]
        sasl_username="alice",
        sasl_password=password,
        tls=place.context(),
        auto_offset_reset="earliest",
    )
    try:
        records = until(lambda: consumer.poll(1_000))
    except AuthenticationError as error:
        raise PermissionError(str(error)) from None
    finally:
        consumer.close()
    return [record.value or b"" for record in records]


CLIENTS: dict[str, Callable[[Place, str, str, str], list[bytes]]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "sarama": by_sarama,
    "steelyard": by_our_consumer,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_login(place: Place, client: str, mechanism: str) -> None:
    topic = f"{place.kind}-{client}-{mechanism}"
    assert CLIENTS[client](place, mechanism, PASSWORDS["alice"], topic) == [b"one"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password(place: Place, client: str, mechanism: str) -> None:
    with pytest.raises(PermissionError):
        CLIENTS[client](place, mechanism, "wrong", f"{place.kind}-{client}-wrong")


def test_clients_log_in_again_on_their_connections(place: Place) -> None:
    """librdkafka, over several sessions: nothing is lost, and it never has to connect again."""
    topic = f"{place.kind}-again"
    gone: list[str] = []
    producer = confluent_kafka.Producer(
        {
            **place.librdkafka("SCRAM-SHA-256", "alice", PASSWORDS["alice"]),
            "error_cb": lambda error: gone.append(str(error)),
        }
    )
    began, failed = time.monotonic(), []
    while time.monotonic() - began < 3 * SESSION_MS / 1000:
        producer.produce(
            topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0.1)
    assert producer.flush(60) == 0
    assert failed == []
    assert gone == []


def run_java(program: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    jars = builds.jars("server", builds.SERVER)
    command = ["java", *QUICK_START, QUIET, "-cp", f"{jars}/*", program, *words]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=java_environment(),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_tools(place: Place, tmp_path: Path, mechanism: str) -> None:
    """kafka-configs makes a user, who writes with the console producer, and is deleted."""
    admin = str(place.properties(tmp_path, mechanism, "admin", PASSWORDS["admin"]))
    name = f"java-{mechanism.lower()}"
    configs = (
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", place.address, "--command-config", admin),
        *("--entity-type", "users", "--entity-name", name),
    )
    made = run_java(*configs, "--alter", "--add-config", "SCRAM-SHA-512=[password=java-secret]")
    assert "Completed updating" in made.stdout, made.stdout + made.stderr
    told = run_java(*configs, "--describe")
    assert "SCRAM-SHA-512=iterations=4096" in told.stdout, told.stdout + told.stderr
    login = place.properties(tmp_path, "SCRAM-SHA-512", name, "java-secret")
    topic = f"{place.kind}-{name}"
    sent = run_java(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", place.address, "--topic", topic, "--command-config", str(login)),
        text="from java\n",
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert "Exception" not in sent.stderr
    consumer = confluent_kafka.Consumer(
        {
            **place.librdkafka("SCRAM-SHA-512", name, "java-secret"),
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = until(lambda: consumer.poll(1.0))
    assert message.value() == b"from java"
    consumer.close()
    gone = run_java(*configs, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "Completed updating" in gone.stdout, gone.stdout + gone.stderr


def test_a_client_without_a_login_gets_nothing(place: Place) -> None:
    admin = AdminClient({"bootstrap.servers": place.address, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException), suppress(TimeoutError):
        admin.list_topics(timeout=3)


def kafka_records(path: Path) -> Iterator[Any]:
    """The records of a segment, as kafka-python reads them."""
    batches = kafka.record.memory_records.MemoryRecords(path.read_bytes())
    while batches.has_next():
        yield from batches.next_batch()


def test_our_pipeline(
    place: Place, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A topic and its group are moved away and back, and committed offsets are archived, with a login."""
    pytest.importorskip("pyarrow", reason="Spark is not installed: pip install steelyard[spark]")
    from steelyard.spark import pipeline

    login = place.librdkafka("SCRAM-SHA-512", "admin", PASSWORDS["admin"])
    producer = confluent_kafka.Producer(login)
    for number in range(20):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**login, "group.id": f"{name}g"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 7)], asynchronous=False)
    consumer.close()
    tls = {} if place.ca is None else {"tls": "true", "tlsCaFile": str(place.ca)}
    named = {"saslUsername": "admin", "saslPassword": PASSWORDS["admin"], **tls}

    def move(source: str, target: str, state: str, **sides: dict[str, str]) -> int:
        words = ["move", "kafka", "--from", source, "--to", target, "-t", name, "-g", f"{name}g"]
        for side, options in sides.items():
            words += [f"--{side}-option={key}={text}" for key, text in options.items()]
        return pipeline.main([*words, "--state", str(tmp_path / state)])

    def committed(where: dict[str, Any]) -> int:
        reader = confluent_kafka.Consumer({**where, "group.id": f"{name}g"})
        (found,) = reader.committed([confluent_kafka.TopicPartition(name, 0)], 60)
        low, high = reader.get_watermark_offsets(found, 60)
        assert (low, high) == (0, 20)
        reader.close()
        return found.offset

    with servers.run_steelyard(tmp_path / "open") as other:
        away = other.bootstrap
        assert move(place.address, away, "there", **{"from": named}) == 0, capsys.readouterr()
        assert committed({"bootstrap.servers": away}) == 7
        admin = AdminClient(login)
        admin.delete_topics([name])[name].result(60)
        until(lambda: name not in admin.list_topics(timeout=60).topics)
        assert move(away, place.address, "back", to=named) == 0, capsys.readouterr()
        assert committed(login) == 7
        capsys.readouterr()
        for wrong in (
            {**named, "saslPassword": "wr0ng"},
            {key: text for key, text in named.items() if key != "saslPassword"},
            tls,
        ):
            more = {"timeoutMs": "3000", "retryTimeoutMs": "0"}
            assert move(place.address, away, "wrong", **{"from": {**wrong, **more}}) != 0
            (line,) = capsys.readouterr().err.splitlines()
            assert "wr0ng" not in line

    archive = ["archive-offsets", "--kafka", place.address, "--out", str(tmp_path / "archive")]
    archive += [f"--option={key}={text}" for key, text in tls.items()]
    assert pipeline.main(archive) != 0
    capsys.readouterr()
    monkeypatch.setenv("STEELYARD_SASL_USERNAME", "admin")
    monkeypatch.setenv("STEELYARD_SASL_PASSWORD", PASSWORDS["admin"])
    assert pipeline.main(archive) == 0, capsys.readouterr()
    kept = [
        record.key
        for path in (tmp_path / "archive").glob("__consumer_offsets-*/*.log")
        for record in kafka_records(path)
    ]
    assert any(f"{name}g".encode() in key for key in kept if key)
