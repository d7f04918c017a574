"""Access rules with unmodified clients and Kafka's own tools; the same at Apache's broker, which is the control."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from tests.peers.apache import Missing
from tests.peers.kafka import servers
from tests.peers.kafka.test_logins import PASSWORDS, Place, make_users, run_java
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
Code = confluent_kafka.KafkaError


@pytest.fixture(scope="module", params=["apache", "steelyard"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "apache":
        settings = {
            **servers.SETTINGS,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin;User:ANONYMOUS",
        }
        try:
            with servers.run_apache(folder, settings=settings, logins=PASSWORDS) as running:
                make_users(AdminClient({"bootstrap.servers": running.bootstrap}), *PASSWORDS)
                yield Place("apache", running.login, None)
        except Missing as reason:
            pytest.skip(f"no Apache Kafka: {reason}")
        return
    (folder / "users.toml").write_text(f'[admin]\npassword = "{PASSWORDS["admin"]}"\n')
    options = ["--kafka-sasl", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"]
    options += ["--users", str(folder / "users.toml")]
    options += ["--kafka-authorizer", "acl", "--kafka-super-users", "User:admin"]
    with servers.run_steelyard(folder, *options, brokers=2, is_waited_for=False) as running:
        found = Place("steelyard", running.bootstrap, None)
        admin = admin_of(found)
        until(lambda: len(admin.list_topics(timeout=5).brokers) == 2)
        make_users(admin, "alice")
        yield found


def login(place: Place, user: str = "alice") -> dict[str, Any]:
    return place.librdkafka("SCRAM-SHA-256", user, PASSWORDS[user])


def admin_of(place: Place) -> AdminClient:
    return AdminClient(place.librdkafka("PLAIN", "admin", PASSWORDS["admin"]))


def binding(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, permission)


def grant(place: Place, *bindings: AclBinding) -> None:
    admin = admin_of(place)  # must live until its futures are done
    for future in admin.create_acls(list(bindings)).values():
        future.result(PATIENCE_S)


def make_topic(place: Place, name: str) -> None:
    admin = admin_of(place)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)


def written(place: Place, topic: str) -> int | None:
    """The error of a producer, None without one."""
    producer = confluent_kafka.Producer(login(place))
    outcomes: list[int | None] = []

    def told(error: confluent_kafka.KafkaError | None, _: object) -> None:
        outcomes.append(None if error is None else error.code())

    producer.produce(topic, b"one", on_delivery=told)
    until(lambda: producer.flush(0.2) == 0)
    return outcomes[0]


def consumed(place: Place, topic: str, group: str, protocol: str = "classic") -> bytes | int:
    """The first value, or the error of a consumer."""
    consumer = confluent_kafka.Consumer(
        {
            **login(place),
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        message = until(lambda: consumer.poll(1.0))
        error = message.error()
        return (message.value() or b"") if error is None else int(error.code())
    finally:
        consumer.close()


def test_a_producer_and_a_consumer(place: Place) -> None:
    make_topic(place, "orders")
    assert written(place, "orders") == Code.TOPIC_AUTHORIZATION_FAILED
    grant(place, binding(ResourceType.TOPIC, "orders", AclOperation.WRITE))
    assert written(place, "orders") is None
    assert consumed(place, "orders", "readers") == Code.GROUP_AUTHORIZATION_FAILED
    grant(place, binding(ResourceType.GROUP, "readers", AclOperation.READ))
    assert consumed(place, "orders", "readers") == Code.TOPIC_AUTHORIZATION_FAILED
    grant(place, binding(ResourceType.TOPIC, "orders", AclOperation.READ))
    assert consumed(place, "orders", "readers") == b"one"


def test_a_group_of_the_consumer_protocol(place: Place) -> None:
    """Its members name their topics to the coordinator, which must not tell of those they may not see."""
    make_topic(place, "secrets")
    assert consumed(place, "secrets", "spies", "consumer") == Code.GROUP_AUTHORIZATION_FAILED
    grant(place, binding(ResourceType.GROUP, "spies", AclOperation.ALL))
    assert consumed(place, "secrets", "spies", "consumer") == Code.TOPIC_AUTHORIZATION_FAILED
    settings = place.librdkafka("PLAIN", "admin", PASSWORDS["admin"])
    owner = confluent_kafka.Consumer(
        {**settings, "group.id": "spies", "group.protocol": "consumer"}
    )
    owner.subscribe(["secrets"])
    alice = AdminClient(login(place))
    try:
        until(lambda: owner.poll(0.1) is None and owner.assignment())
        assert outcome(alice.describe_consumer_groups(["spies"])) == Code.TOPIC_AUTHORIZATION_FAILED
        grant(place, binding(ResourceType.TOPIC, "secrets", AclOperation.ALL))
        assert outcome(alice.describe_consumer_groups(["spies"])) is None
    finally:
        owner.close()
    assert written(place, "secrets") is None
    assert consumed(place, "secrets", "spies", "consumer") == b"one"


def outcome(futures: dict[Any, Any]) -> int | None:
    """The error of an administrator's request about one thing, None without one."""
    (future,) = futures.values()
    try:
        future.result(PATIENCE_S)
    except confluent_kafka.KafkaException as refused:
        return int(refused.args[0].code())
    return None


def test_who_has_no_rights_is_refused_everything(place: Place) -> None:
    make_topic(place, "vault")
    alice = AdminClient(login(place))
    at = confluent_kafka.TopicPartition("vault", 0, 0)
    topic = ConfigResource(ConfigResource.Type.TOPIC, "vault")
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        "vault",
        incremental_configs=[
            ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    group = confluent_kafka.ConsumerGroupTopicPartitions("vaulters", [at])
    refused = {
        "create a topic": outcome(alice.create_topics([NewTopic("mine", 1, 1)])),
        "delete a topic": outcome(alice.delete_topics(["vault"])),
        "add partitions": outcome(alice.create_partitions([NewPartitions("vault", 3)])),
        "delete records": outcome(alice.delete_records([at])),
        "see offsets": outcome(alice.list_offsets({at: OffsetSpec.latest()})),  # type: ignore[no-untyped-call]
        "see a topic's settings": outcome(alice.describe_configs([topic])),
        "see a broker's settings": outcome(alice.describe_configs([broker])),
        "change settings": outcome(alice.incremental_alter_configs([change])),
        "see a group": outcome(alice.describe_consumer_groups(["vaulters"])),
        "see a group's offsets": outcome(
            alice.list_consumer_group_offsets(
                [confluent_kafka.ConsumerGroupTopicPartitions("vaulters")]
            )
        ),
        "reset a group": outcome(alice.alter_consumer_group_offsets([group])),
        "delete a group": outcome(alice.delete_consumer_groups(["vaulters"])),
    }
    by_topic = dict.fromkeys(
        (
            "create a topic",
            "delete a topic",
            "add partitions",
            "see a topic's settings",
            "change settings",
        ),
        Code.TOPIC_AUTHORIZATION_FAILED,
    )
    by_group = dict.fromkeys(
        ("see a group", "see a group's offsets", "reset a group", "delete a group"),
        Code.GROUP_AUTHORIZATION_FAILED,
    )
    by_cluster = {"see a broker's settings": Code.CLUSTER_AUTHORIZATION_FAILED}
    # The client looks for the leader of a partition first, and is shown none.
    hidden = dict.fromkeys(("delete records", "see offsets"), Code._NOENT)
    assert refused == {**by_topic, **by_group, **by_cluster, **hidden}


def test_a_transaction(place: Place) -> None:
    """It needs the right to its id, and to each topic; with ours, over both brokers."""
    new = NewTopic("accounts", 4, 1)
    admin = admin_of(place)
    admin.create_topics([new])["accounts"].result(PATIENCE_S)
    settings = {**login(place), "transactional.id": "transfer"}
    stranger = confluent_kafka.Producer(settings)
    with pytest.raises(confluent_kafka.KafkaException) as tried:
        stranger.init_transactions(PATIENCE_S)
    assert tried.value.args[0].code() == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grant(
        place,
        binding(ResourceType.TRANSACTIONAL_ID, "transfer", AclOperation.WRITE),
        binding(ResourceType.TOPIC, "accounts", AclOperation.WRITE),
        binding(ResourceType.TOPIC, "accounts", AclOperation.READ),
        binding(ResourceType.GROUP, "auditors", AclOperation.READ),
    )
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(4):
        producer.produce("accounts", b"in partition %d" % partition, partition=partition)
    producer.commit_transaction(PATIENCE_S)
    consumer = confluent_kafka.Consumer(
        {**login(place), "group.id": "auditors", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["accounts"])
    try:
        values: set[bytes | None] = set()
        while len(values) < 4:
            message = until(lambda: consumer.poll(1.0))
            assert message.error() is None
            values.add(message.value())
    finally:
        consumer.close()
    assert values == {b"in partition %d" % partition for partition in range(4)}


def test_clients_in_python(place: Place) -> None:
    """kafka-python and aiokafka raise errors of their own for what is denied."""
    make_topic(place, "letters")
    settings = {
        "bootstrap_servers": place.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORDS["alice"],
    }
    producer = kafka.KafkaProducer(**settings)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("letters", b"one").get(PATIENCE_S)
    producer.close()

    async def send() -> None:
        sender = aiokafka.AIOKafkaProducer(**settings)
        await sender.start()
        try:
            await sender.send_and_wait("letters", b"two")
        finally:
            await sender.stop()

    with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
        asyncio.run(send())
    grant(place, binding(ResourceType.TOPIC, "letters", AclOperation.ALL))
    asyncio.run(send())
    consumer = kafka.KafkaConsumer(
        "letters", group_id="postmen", auto_offset_reset="earliest", **settings
    )
    with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
        consumer.poll(PATIENCE_S * 1000)
    consumer.close()
    grant(place, binding(ResourceType.GROUP, "postmen", AclOperation.READ))
    consumer = kafka.KafkaConsumer(
        "letters", group_id="postmen", auto_offset_reset="earliest", **settings
    )
    values = [each.value for batch in until(lambda: consumer.poll(1000)).values() for each in batch]
    consumer.close()
    assert values == [b"two"]


def test_rules_by_an_administrators_client(place: Place) -> None:
    prefixed = binding(
        ResourceType.TOPIC, "log-", AclOperation.ALL, pattern=ResourcePatternType.PREFIXED
    )
    denied = binding(ResourceType.TOPIC, "log-x", AclOperation.READ, AclPermissionType.DENY)
    grant(place, prefixed, denied)
    matching = AclBindingFilter(
        ResourceType.TOPIC,
        "log-x",
        ResourcePatternType.MATCH,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = admin_of(place)
    assert set(admin.describe_acls(matching).result(PATIENCE_S)) == {prefixed, denied}
    (deleted,) = admin.delete_acls([matching]).values()
    assert set(deleted.result(PATIENCE_S)) == {prefixed, denied}
    # Apache's broker answers from metadata that follow its controller's.
    until(lambda: admin.describe_acls(matching).result(PATIENCE_S) == [], "no rules are left")


def test_others_may_not_see_or_change_rules(place: Place) -> None:
    alice = AdminClient(login(place))
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    grant(place, binding(ResourceType.TOPIC, "any", AclOperation.DESCRIBE))
    # The client drops the error of this answer, and tells of no rules.
    assert alice.describe_acls(everything).result(PATIENCE_S) == []
    wish = binding(ResourceType.TOPIC, "wish", AclOperation.READ)
    with pytest.raises(confluent_kafka.KafkaException) as tried:
        alice.create_acls([wish])[wish].result(PATIENCE_S)
    assert tried.value.args[0].code() == Code.CLUSTER_AUTHORIZATION_FAILED
    make_topic(place, "hidden")
    assert "hidden" not in alice.list_topics(timeout=PATIENCE_S).topics


def test_kafka_acls(place: Place, tmp_path: Path) -> None:
    properties = place.properties(tmp_path, "PLAIN", "admin", PASSWORDS["admin"])
    base = (
        "org.apache.kafka.tools.AclCommand",
        *("--bootstrap-server", place.address, "--command-config", str(properties)),
    )
    made = run_java(*base, "--add", "--allow-principal", "User:java", "--producer", "--topic", "j")
    assert made.returncode == 0, made.stdout + made.stderr
    told = run_java(*base, "--list", "--topic", "j")
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"principal=User:java, host=*, operation={operation}" in told.stdout, told.stdout
    gone = run_java(*base, "--remove", "--force", "--topic", "j")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert "User:java" not in run_java(*base, "--list", "--topic", "j").stdout
