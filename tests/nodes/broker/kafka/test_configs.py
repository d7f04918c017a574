"""32, 33, 44: what topics are set to; 35 and 46."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing

from steelyard.config import BrokerConfig, KafkaConfig, StoreConfig
from steelyard.nodes.broker.kafka.cluster.topic_settings import TopicSettings
from steelyard.nodes.broker.retention import log_configs
from steelyard.nodes.seam import Opened, Received
from steelyard.store.log_config import LogConfig
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import configs as messages
from steelyard.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from steelyard.wire.kafka.messages.data import (
    ProduceResponse,
)
from steelyard.wire.kafka.messages.logs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import TopicConfigList
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command

E = ErrorCode
TOPIC_KIND, BROKER_KIND = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def described(
    rig: KafkaRig, kind: int, name: str, *keys: str, version: int = 4, all_of_it: bool = True
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(kind, name, keys or None)
    request = DescribeConfigsRequest([resource], all_of_it, all_of_it)
    (result,) = rig.ask(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, {config.name: config for config in result.configs}


def value(rig: KafkaRig, name: str) -> str | None:
    return described(rig, TOPIC_KIND, TOPIC, name)[1][name].value


def alter(
    rig: KafkaRig, *operations: tuple[str, int, str | None], kind: int = 2, topic: str = TOPIC
) -> int:
    configs = [messages.ConfigOperation(*each) for each in operations]
    resource = messages.IncrementalAlterConfigsResource(kind, topic, configs)
    request = messages.IncrementalAlterConfigsRequest([resource])
    (result,) = rig.ask(request, 1, messages.IncrementalAlterConfigsResponse).responses
    assert (result.resource_type, result.resource_name) == (kind, topic)
    assert bool(result.error_message) == bool(result.error_code)
    return result.error_code


def replace_all(rig: KafkaRig, settings: dict[str, str], *, version: int = 2) -> int:
    configs = [messages.AlterableConfig(name, text) for name, text in settings.items()]
    resource = messages.AlterConfigsResource(TOPIC_KIND, TOPIC, configs)
    request = messages.AlterConfigsRequest([resource])
    return rig.ask(request, version, messages.AlterConfigsResponse).responses[0].error_code


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_is_described_in_every_version(rig: KafkaRig, version: int) -> None:
    rig.create_topic(settings={"max.message.bytes": "77"})
    error, configs = described(rig, TOPIC_KIND, TOPIC, version=version)
    assert error == 0
    size = configs["max.message.bytes"]
    assert (size.value, size.config_source, size.read_only) == ("77", 1, False)
    assert [(s.name, s.value, s.source) for s in size.synonyms] == [
        ("max.message.bytes", "77", 1),
        ("message.max.bytes", "1048588", 5),
    ]
    policy = configs["cleanup.policy"]
    assert (policy.value, policy.config_source) == ("delete", 5)
    if version >= 3:
        assert (size.config_type, policy.config_type) == (3, 7)
        assert size.documentation


def test_only_what_is_asked_for_is_told(rig: KafkaRig) -> None:
    rig.create_topic()
    error, configs = described(rig, TOPIC_KIND, TOPIC, "retention.ms", "no.such", all_of_it=False)
    assert (error, list(configs)) == (0, ["retention.ms"])
    assert configs["retention.ms"].synonyms == ()
    assert configs["retention.ms"].documentation is None


def test_the_broker_is_described(rig: KafkaRig) -> None:
    error, configs = described(rig, BROKER_KIND, "1")
    assert error == 0
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.read_only, partitions.config_source) == ("1", True, 5)
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["node.id"].value == "1"
    assert [name for name, each in configs.items() if not each.documentation] == []
    assert partitions.documentation == "Partitions of topics that are created without a number."
    assert described(rig, BROKER_KIND, "") == (0, {})


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC_KIND, "never", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_KIND, "no name", E.INVALID_TOPIC_EXCEPTION),
        (BROKER_KIND, "2", E.INVALID_REQUEST),
        (BROKER_KIND, "me", E.INVALID_REQUEST),
        (BROKER_KIND, "²", E.INVALID_REQUEST),
        (
            BROKER_KIND,
            "00",
            E.INVALID_REQUEST,
        ),  # one name only: the others have the same long answer
        (BROKER_KIND, "9" * 5_000, E.INVALID_REQUEST),
        (8, "2", E.INVALID_REQUEST),
        (99, "x", E.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_not_described(
    rig: KafkaRig, kind: int, name: str, error: ErrorCode
) -> None:
    assert described(rig, kind, name) == (error, {})


def test_settings_are_changed_one_by_one_and_outlive_the_broker(rig: KafkaRig) -> None:
    rig.create_topic(settings={"retention.bytes": "9"})
    assert alter(rig, ("retention.ms", SET, "5"), ("min.insync.replicas", SET, "2")) == 0
    assert alter(rig, ("min.insync.replicas", DELETE, None)) == 0
    rig.restart()
    assert value(rig, "retention.ms") == "5"
    assert value(rig, "retention.bytes") == "9"
    assert value(rig, "min.insync.replicas") == "1"


def test_lists_take_more_and_less(rig: KafkaRig) -> None:
    rig.create_topic()
    assert alter(rig, ("cleanup.policy", APPEND, "compact,delete")) == 0
    assert value(rig, "cleanup.policy") == "delete,compact"
    assert alter(rig, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert value(rig, "cleanup.policy") == "compact"
    assert alter(rig, ("retention.ms", APPEND, "5")) == E.INVALID_CONFIG


@pytest.mark.parametrize("version", range(3))
def test_settings_are_replaced_all_at_once(rig: KafkaRig, version: int) -> None:
    rig.create_topic(settings={"retention.bytes": "9"})
    assert replace_all(rig, {"retention.ms": "5"}, version=version) == 0
    assert (value(rig, "retention.ms"), value(rig, "retention.bytes")) == ("5", "-1")
    assert replace_all(rig, {"no.such": "5"}) == E.INVALID_CONFIG
    assert value(rig, "retention.ms") == "5"


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (("no.such", SET, "1"), E.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), E.INVALID_CONFIG),
        (("retention.ms", SET, "-2"), E.INVALID_CONFIG),
        (("retention.ms", SET, str(2**63)), E.INVALID_CONFIG),
        (("max.message.bytes", SET, str(2**31)), E.INVALID_CONFIG),
        (("message.timestamp.type", SET, "Now"), E.INVALID_CONFIG),
        (("cleanup.policy", SET, "keep"), E.INVALID_CONFIG),
        (("preallocate", SET, "maybe"), E.INVALID_CONFIG),
        (("min.cleanable.dirty.ratio", SET, "2"), E.INVALID_CONFIG),
        (("min.cleanable.dirty.ratio", SET, "nan"), E.INVALID_CONFIG),
        (("retention.ms", SET, None), E.INVALID_REQUEST),
        (("retention.ms", 9, "1"), E.INVALID_REQUEST),
    ],
)
def test_bad_settings_change_nothing(
    rig: KafkaRig, operation: tuple[str, int, str | None], error: ErrorCode
) -> None:
    rig.create_topic(settings={"retention.ms": "5"})
    assert alter(rig, ("retention.bytes", SET, "9"), operation) == error
    assert value(rig, "retention.ms") == "5"
    assert value(rig, "retention.bytes") == "-1"


def test_what_cannot_be_altered_is_refused(rig: KafkaRig) -> None:
    rig.create_topic()
    one = ("retention.ms", SET, "1")
    assert alter(rig, one, topic="never") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(rig, ("num.partitions", SET, "1"), kind=BROKER_KIND, topic="1") == (
        E.INVALID_REQUEST
    )
    assert alter(rig, one, kind=16, topic="g") == E.INVALID_REQUEST
    assert alter(rig, one, one) == E.INVALID_REQUEST


def test_a_trial_changes_nothing_and_a_topic_twice_is_refused(rig: KafkaRig) -> None:
    rig.create_topic()
    config = messages.ConfigOperation("retention.ms", SET, "5")
    resource = messages.IncrementalAlterConfigsResource(2, TOPIC, [config])
    kind = messages.IncrementalAlterConfigsResponse
    for resources, trial, error in (([resource], True, 0), ([resource] * 2, False, 42)):
        request = messages.IncrementalAlterConfigsRequest(resources, trial)
        assert {each.error_code for each in rig.ask(request, 0, kind).responses} == {error}
        assert value(rig, "retention.ms") != "5"


# -- what settings come to -------------------------------------------------------------------------


def test_settings_come_to_what_the_parts_of_the_broker_need(rig: KafkaRig) -> None:
    rig.create_topic()
    cluster = rig.node._kafka
    assert cluster is not None
    assert cluster.cluster.settings_of(TOPIC) == TopicSettings(
        1_048_588, False, True, False, 72 * 3_600_000, -1
    )
    alter(
        rig,
        ("max.message.bytes", SET, "10"),
        ("message.timestamp.type", SET, "LogAppendTime"),
        ("cleanup.policy", SET, "compact"),
        ("retention.ms", SET, "11"),
        ("retention.bytes", SET, "12"),
    )
    assert cluster.cluster.settings_of(TOPIC) == TopicSettings(10, True, False, True, 11, 12)


def test_logs_are_kept_as_their_topic_or_the_broker_says(rig: KafkaRig) -> None:
    rig.create_topic("usual")
    settings = {"retention.ms": "7", "retention.bytes": "9", "segment.bytes": "1048576"}
    rig.create_topic("short", settings={**settings, "segment.ms": "5"})
    rig.create_topic("forever", settings={"retention.ms": "-1"})
    rig.create_topic("compacted", settings={"cleanup.policy": "compact", "retention.ms": "7"})
    of = log_configs(
        rig.node._parts.topics,
        StoreConfig(segment_bytes=99, segment_ms=0, retention_ms=1000, retention_bytes=50),
    )
    assert of("usual") == of("never heard of") == LogConfig(99, -1, 1000, 50)
    assert of("short") == LogConfig(1048576, 5, 7, 9)
    assert of("forever") == LogConfig(99, -1, -1, 50)
    assert of("compacted") == LogConfig(99, -1, -1, -1, compacts=True)
    assert (
        log_configs(rig.node._parts.topics, StoreConfig(retention_ms=0))("usual").retention_ms == -1
    )


def test_new_settings_hold_for_what_is_written_after_the_next_check(rig: KafkaRig) -> None:
    rig.create_topic(TOPIC)
    rig.ask(producing(TOPIC, 0, batch(b"x")), 9, ProduceResponse)
    assert alter(rig, ("segment.ms", SET, "60000"), ("retention.bytes", SET, "0")) == 0
    rig.advance(70_000)
    for _ in range(2):
        rig.ask(producing(TOPIC, 0, batch(b"x")), 9, ProduceResponse)
    rig.advance(70_000)
    assert (rig.log(TOPIC).min_offset, rig.log(TOPIC).max_offset) == (1, 3)


def test_old_records_go_when_their_topic_says_so() -> None:
    config = BrokerConfig(kafka=KafkaConfig(), store=StoreConfig(retention_ms=0))
    rig = KafkaRig(config)
    rig.create_topic("short", settings={"retention.ms": "1000"})
    rig.create_topic("long")
    for topic in ("short", "long"):
        rig.ask(producing(topic, 0, batch(b"x")), 9, ProduceResponse)
    rig.advance(1_300_000)
    assert [(rig.log(t).min_offset, rig.log(t).max_offset) for t in ("short", "long")] == [
        (1, 1),
        (0, 1),
    ]


# -- disks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_the_log_directory_is_described(rig: KafkaRig, version: int) -> None:
    rig.create_topic(partitions=2)
    rig.ask(producing(TOPIC, 1, batch(b"x" * 100)), 9, ProduceResponse)
    for topics in (None, [DescribableLogDirTopic(TOPIC, [0, 1])]):
        answer = rig.ask(DescribeLogDirsRequest(topics), version, DescribeLogDirsResponse)
        (result,) = answer.results
        sizes = {
            (topic.name, part.partition_index): part.partition_size
            for topic in result.topics
            for part in topic.partitions
        }
        assert sizes[TOPIC, 1] >= 100
        assert sizes[TOPIC, 0] == 0
    none = DescribeLogDirsRequest([DescribableLogDirTopic("never", [0])])
    assert rig.ask(none, version, DescribeLogDirsResponse).results[0].topics == []


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), [(8, "1"), (4, "1"), (2, TOPIC)]),
        ((TOPIC_KIND, TOPIC_KIND), [(2, TOPIC)]),
        ((BROKER_KIND,), [(4, "1")]),
        ((16, 32), []),
    ],
)
def test_what_has_settings_is_listed(
    rig: KafkaRig, kinds: tuple[int, ...], expected: list[tuple[int, str]]
) -> None:
    rig.create_topic()
    request = messages.ListConfigResourcesRequest(kinds)
    answer = rig.ask(request, 1, messages.ListConfigResourcesResponse)
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert [each for each in found if not each[1].startswith("RMQ_SYS_")] == expected


def test_other_kinds_of_resources_are_not_listed(rig: KafkaRig) -> None:
    request = messages.ListConfigResourcesRequest((TOPIC_KIND, 99))
    answer = rig.ask(request, 1, messages.ListConfigResourcesResponse)
    assert answer.error_code == E.UNSUPPORTED_VERSION
    old = rig.ask(messages.ListConfigResourcesRequest(), 0, messages.ListConfigResourcesResponse)
    assert list(old.config_resources) == []  # subscriptions to clients' metrics


def test_a_list_of_topics_of_rocketmq_leaves_the_settings_alone(rig: KafkaRig) -> None:
    """Its attributes are changes of RocketMQ's own."""
    rig.create_topic(settings={"retention.ms": "-1", "cleanup.policy": "compact"})
    known = rig.node._parts.topics.get(TOPIC)
    assert known is not None
    link = rig.links = rig.links + 1
    rig.event(Opened(link, "10.0.0.7:5000"))
    asked = replace(known, attributes={"+message.type": "NORMAL", "+cleanup.policy": "DELETE"})
    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    body = fastjson.write(TopicConfigList((asked,)))
    rig.event(Received(link, Command(code, 1, ONEWAY_FLAG, body=body)))
    assert rig.node._parts.topics.get(TOPIC) == known


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("preallocate", "True", "true"),
        ("message.timestamp.type", " LogAppendTime ", "LogAppendTime"),
        ("retention.ms", " 5", "5"),
        ("min.cleanable.dirty.ratio", "1e-1", "1e-1"),
    ],
)
def test_values_are_read_as_kafka_reads_them(
    rig: KafkaRig, name: str, given: str, stored: str
) -> None:
    rig.create_topic(settings={name: given})
    rig.create_topic("other")
    assert alter(rig, (name, SET, given), topic="other") == 0
    for topic in (TOPIC, "other"):
        assert described(rig, TOPIC_KIND, topic, name)[1][name].value == stored


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "1_000"},
        {"retention.ms": "١"},
        {"min.cleanable.dirty.ratio": "nan"},
        {"preallocate": "yes"},
        {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"},
    ],
)
def test_values_that_kafka_refuses_are_refused(rig: KafkaRig, settings: dict[str, str]) -> None:
    rig.create_topic()
    assert replace_all(rig, settings) == E.INVALID_CONFIG
    configs = [CreatableTopicConfig(*each) for each in settings.items()]
    request = CreateTopicsRequest([CreatableTopic("other", 1, 1, (), configs)], 1000)
    created = rig.ask(request, 7, CreateTopicsResponse)
    assert created.topics[0].error_code == E.INVALID_CONFIG
