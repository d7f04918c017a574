"""33 and 44 of brokers and groups: settings that are changed at run time, and apply at once."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.test_configs import (
    BROKER_KIND,
    DELETE,
    SET,
    TOPIC_KIND,
    described,
)

from steelyard.config import StoreConfig
from steelyard.nodes.broker import dynamic_configs as module
from steelyard.nodes.broker.dynamic_configs import DynamicConfigs, effective
from steelyard.nodes.broker.kafka.cluster.spreading import COMPARE_MS
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import CONFIGS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import configs as messages
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.data import ProduceResponse
from steelyard.wire.remoting.codes import ResponseCode

E = ErrorCode
LOGGER_KIND, METRICS_KIND, GROUP_KIND = 8, 16, 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
Operation = tuple[str, int, str | None]


def asked(
    kind: int, name: str, *operations: Operation, validate_only: bool = False
) -> messages.IncrementalAlterConfigsRequest:
    configs = [messages.ConfigOperation(*each) for each in operations]
    resource = messages.IncrementalAlterConfigsResource(kind, name, configs)
    return messages.IncrementalAlterConfigsRequest([resource], validate_only)


def alter(
    rig: KafkaRig, kind: int, name: str, *operations: Operation, validate_only: bool = False
) -> tuple[int, str | None]:
    request = asked(kind, name, *operations, validate_only=validate_only)
    (result,) = rig.ask(request, 1, messages.IncrementalAlterConfigsResponse).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def told(rig: KafkaRig, kind: int, name: str, setting: str) -> tuple[str | None, int, bool]:
    """Its value, where that comes from, and whether it is read-only."""
    found = described(rig, kind, name, setting)[1][setting]
    return found.value, found.config_source, found.read_only


# -- brokers -------------------------------------------------------------------------------------------


def test_a_brokers_setting_is_changed_and_outlives_it(rig: KafkaRig) -> None:
    """Its own value counts more than that of all brokers; both are the default of topics."""
    rig.create_topic()
    name, usual = "message.max.bytes", str(1024 * 1024 + 12)
    assert told(rig, BROKER_KIND, "1", name) == (usual, 5, False)
    assert alter(rig, BROKER_KIND, "", (name, SET, "2000")) == (0, None)
    assert told(rig, BROKER_KIND, "1", name) == ("2000", 3, False)
    assert alter(rig, BROKER_KIND, "1", (name, SET, "1000")) == (0, None)
    rig.restart()
    assert told(rig, BROKER_KIND, "1", name) == ("1000", 2, False)
    assert told(rig, BROKER_KIND, "", name) == ("2000", 3, False)
    found = described(rig, BROKER_KIND, "1", name)[1][name]
    assert [(each.value, each.source) for each in found.synonyms] == [
        ("1000", 2),
        ("2000", 3),
        (usual, 5),
    ]
    assert told(rig, TOPIC_KIND, TOPIC, "max.message.bytes") == ("1000", 2, False)

    def stored(size: int) -> int:
        request = producing(TOPIC, 0, batch(bytes(size)))
        return rig.ask(request, 9, ProduceResponse).responses[0].partition_responses[0].error_code

    assert stored(1_000) == E.MESSAGE_TOO_LARGE
    assert alter(rig, BROKER_KIND, "1", (name, DELETE, None)) == (0, None)
    assert (stored(1_000), stored(2_000)) == (0, E.MESSAGE_TOO_LARGE)
    assert alter(rig, BROKER_KIND, "", (name, DELETE, None)) == (0, None)
    assert stored(2_000) == 0
    assert described(rig, BROKER_KIND, "")[1] == {}


def test_a_new_retention_of_the_broker_deletes_what_is_old(rig: KafkaRig) -> None:
    rig.create_topic()
    rig.ask(producing(TOPIC, 0, batch(b"x")), 9, ProduceResponse)
    rig.advance(3_600_000)
    assert rig.log().min_offset == 0
    assert alter(rig, BROKER_KIND, "", ("log.retention.ms", SET, "1000")) == (0, None)
    rig.advance(60_000)
    assert (rig.log().min_offset, rig.log().max_offset) == (1, 1)


def test_what_a_broker_does_not_have_may_be_removed(rig: KafkaRig) -> None:
    """As kafka-reassign-partitions.sh does with throttles."""
    operation = ("leader.replication.throttled.rate", DELETE, None)
    assert alter(rig, BROKER_KIND, "1", operation) == (0, None)
    assert alter(rig, BROKER_KIND, "", ("node.id", DELETE, None)) == (0, None)


def test_all_of_a_brokers_settings_are_replaced(rig: KafkaRig) -> None:
    alter(rig, BROKER_KIND, "", ("log.roll.ms", SET, "5000"), ("log.retention.ms", SET, "-1"))
    config = [messages.AlterableConfig("log.roll.ms", "6000")]
    resource = messages.AlterConfigsResource(BROKER_KIND, "", config)
    request = messages.AlterConfigsRequest([resource])
    (result,) = rig.ask(request, 2, messages.AlterConfigsResponse).responses
    assert result.error_code == 0
    assert set(described(rig, BROKER_KIND, "")[1]) == {"log.roll.ms"}
    assert told(rig, BROKER_KIND, "1", "log.roll.ms") == ("6000", 3, False)


@pytest.mark.parametrize(
    ("name", "operation", "code", "text"),
    [
        ("1", ("node.id", SET, "2"), 42, "Cannot update these configs dynamically: [node.id]"),
        ("", ("num.partitions", SET, "3"), 42, "dynamically: [num.partitions]"),
        ("", ("nope", SET, "3"), 42, "dynamically: [nope]"),
        ("2", ("log.roll.ms", SET, "2"), 42, "Unexpected broker id, expected 1"),
        ("x", ("log.roll.ms", SET, "2"), 42, "must be an integer, but it is: x"),
        ("", ("log.roll.ms", SET, "x"), 42, "Invalid value x for configuration log.roll.ms"),
        ("", ("log.retention.ms", SET, "0"), 42, "Invalid value 0 for configuration log.ret"),
        ("", ("log.retention.ms", SET, "-2"), 42, "Invalid value -2 for configuration"),
        ("", ("log.roll.ms", SET, None), 42, "Null value not supported for : log.roll.ms"),
        ("", ("log.roll.ms", 2, "1"), 40, "because its type is not LIST"),
    ],
)
def test_what_a_broker_refuses(
    rig: KafkaRig, name: str, operation: Operation, code: int, text: str
) -> None:
    found, why = alter(rig, BROKER_KIND, name, operation)
    assert found == code
    assert text in (why or "")
    assert described(rig, BROKER_KIND, "")[1] == {}


# -- groups --------------------------------------------------------------------------------------------


def beat(rig: KafkaRig, member: str = "", epoch: int = 0) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        "g",
        member or "m" * 22,
        epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=(TOPIC,),
        topic_partitions=(),
    )
    return rig.ask(request, 1, ConsumerGroupHeartbeatResponse)


def test_a_groups_setting_applies_at_once_and_outlives_the_broker(rig: KafkaRig) -> None:
    assert told(rig, GROUP_KIND, "g", SESSION) == ("45000", 5, False)
    assert alter(rig, GROUP_KIND, "g", (SESSION, SET, "7000"), (HEARTBEAT, SET, "400")) == (0, None)
    assert told(rig, GROUP_KIND, "g", SESSION) == ("7000", 8, False)
    assert told(rig, GROUP_KIND, "other", SESSION) == ("45000", 5, False)
    rig.restart()
    assert told(rig, GROUP_KIND, "g", SESSION) == ("7000", 8, False)
    request = messages.ListConfigResourcesRequest((GROUP_KIND,))
    listed = rig.ask(request, 1, messages.ListConfigResourcesResponse).config_resources
    assert [each.resource_name for each in listed] == ["g"]
    assert alter(rig, GROUP_KIND, "g", (SESSION, DELETE, None)) == (0, None)
    assert told(rig, GROUP_KIND, "g", SESSION) == ("45000", 5, False)


def test_members_are_told_the_groups_interval_and_expire_after_its_session(rig: KafkaRig) -> None:
    rig.create_topic()
    assert alter(rig, GROUP_KIND, "g", (SESSION, SET, "2000"), (HEARTBEAT, SET, "300")) == (0, None)
    answer = beat(rig)
    assert (answer.error_code, answer.heartbeat_interval_ms <= 300) == (0, True)
    rig.advance(1_900)
    assert members(rig) == 1
    rig.advance(300)
    assert members(rig) == 0


def members(rig: KafkaRig) -> int:
    request = ConsumerGroupDescribeRequest(("g",))
    (group,) = rig.ask(request, 1, ConsumerGroupDescribeResponse).groups
    return len(group.members)


@pytest.mark.parametrize(
    ("name", "operation", "code", "text"),
    [
        ("", (SESSION, SET, "7000"), 42, "Default group resources are not allowed."),
        ("g", ("nope", SET, "1"), 40, "Unknown group config name: nope"),
        ("g", (SESSION, SET, "x"), 40, f"Invalid value x for configuration {SESSION}"),
        ("g", (SESSION, SET, "1"), 40, f"Invalid value 1 for configuration {SESSION}"),
        ("g", (HEARTBEAT, SET, "50000"), 40, f"{SESSION} must be greater than {HEARTBEAT}"),
        ("g", (HEARTBEAT, SET, None), 42, f"Null value not supported for : {HEARTBEAT}"),
        ("g", (HEARTBEAT, 2, "7000"), 40, f"Can't APPEND to key {HEARTBEAT}"),
        ("g", ("share.auto.offset.reset", SET, "none"), 40, "either 'earliest', 'latest' or"),
        ("g", ("share.isolation.level", SET, "dirty"), 40, "String must be one of: read_unc"),
        ("g", ("share.renew.acknowledge.enable", SET, "maybe"), 40, "either true or false"),
        ("g", ("share.delivery.count.limit", SET, "1"), 40, "Value must be between 2 and 25"),
        (
            "g",
            ("share.heartbeat.interval.ms", SET, "50000"),
            40,
            "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
        ),
    ],
)
def test_what_a_group_cannot_have(
    rig: KafkaRig, name: str, operation: Operation, code: int, text: str
) -> None:
    """With the codes of a broker of Apache Kafka 4.3."""
    found, why = alter(rig, GROUP_KIND, name, operation)
    assert found == code
    assert text in (why or "")


# -- others --------------------------------------------------------------------------------------------


def test_there_are_no_loggers_and_no_metrics_of_clients(rig: KafkaRig) -> None:
    assert described(rig, LOGGER_KIND, "1") == (0, {})
    assert described(rig, LOGGER_KIND, "2")[0] == E.INVALID_REQUEST
    assert alter(rig, LOGGER_KIND, "1", ("kafka", SET, "DEBUG")) == (
        E.INVALID_CONFIG,
        "Logger kafka does not exist!",
    )
    error, found = described(rig, METRICS_KIND, "m")
    values = {name: each.value for name, each in found.items()}
    assert (error, values) == (0, {"interval.ms": "300000", "match": "", "metrics": ""})
    assert described(rig, METRICS_KIND, "")[0] == E.INVALID_REQUEST
    assert alter(rig, METRICS_KIND, "m", ("interval.ms", SET, "1000"))[0] == E.INVALID_REQUEST
    assert alter(rig, 99, "x", ("a", SET, "1"))[0] == E.INVALID_REQUEST


def test_nothing_is_changed_to_validate(rig: KafkaRig) -> None:
    change = (SESSION, SET, "7000")
    assert alter(rig, GROUP_KIND, "g", change, validate_only=True) == (0, None)
    assert told(rig, GROUP_KIND, "g", SESSION) == ("45000", 5, False)


def test_resources_are_limited_in_number(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFIGS_MAX", 1)
    assert alter(rig, GROUP_KIND, "g", (SESSION, SET, "7000")) == (0, None)
    assert alter(rig, GROUP_KIND, "h", (SESSION, SET, "7000"))[0] == E.POLICY_VIOLATION
    assert alter(rig, GROUP_KIND, "g", (SESSION, SET, "8000")) == (0, None)


def test_an_empty_cleanup_policy_keeps_everything(rig: KafkaRig) -> None:
    rig.create_topic(settings={"cleanup.policy": "", "retention.ms": "1000"})
    assert told(rig, TOPIC_KIND, TOPIC, "cleanup.policy") == ("", 1, False)
    rig.ask(producing(TOPIC, 0, batch(b"x")), 9, ProduceResponse)
    rig.advance(1_300_000)
    assert (rig.log().min_offset, rig.log().max_offset) == (0, 1)
    operation = ("cleanup.policy", SET, "delete,")
    assert alter(rig, TOPIC_KIND, TOPIC, operation)[0] == E.INVALID_CONFIG


# -- of several brokers --------------------------------------------------------------------------------


def configs(brokers: Brokers, name: str) -> DynamicConfigs:
    node = brokers.processes[name].node
    assert isinstance(node, BrokerNode)
    return node._parts.configs


def test_any_broker_changes_what_all_have() -> None:
    brokers = Brokers("broker-a", "broker-b")
    for kind, name, operation in (
        (GROUP_KIND, "g", (SESSION, SET, "7000")),
        (BROKER_KIND, "2", ("log.roll.ms", SET, "5000")),
    ):
        request = asked(kind, name, operation)
        answer = brokers.ask("broker-b", request, 1, messages.IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0
    for name in ("broker-a", "broker-b"):
        assert configs(brokers, name).of(GROUP_KIND, "g") == {SESSION: "7000"}
        assert configs(brokers, name).of_broker(2) == {"log.roll.ms": "5000"}
        assert configs(brokers, name).of_broker(1) == {}
    brokers.kill("broker-b")
    request = asked(GROUP_KIND, "g", (SESSION, DELETE, None))
    brokers.ask("broker-a", request, 1, messages.IncrementalAlterConfigsResponse)
    brokers.start("broker-b")
    brokers.advance(2 * COMPARE_MS)
    assert configs(brokers, "broker-b").of(GROUP_KIND, "g") == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"records":[{"kind":2,"resource":"t","version":1}]}',
        b'{"records":[{"kind":32,"resource":"g","version":-1}]}',
    ],
)
def test_nonsense_of_other_brokers(body: bytes) -> None:
    brokers = Brokers("broker-a")
    assert brokers.command("broker-a", CONFIGS, {}, body).code != ResponseCode.SUCCESS
    assert configs(brokers, "broker-a").all() == []


def test_values_that_this_version_does_not_know_are_left_out() -> None:
    given = {"log.roll.ms": "nonsense", "log.retention.ms": "-1", "never.heard.of": "5"}
    assert effective(StoreConfig(), given) == StoreConfig(retention_ms=0)
    unchanged = StoreConfig()
    assert effective(unchanged, {}) is unchanged
