"""Options: what is understood, and that what is wrong is named with what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

import steelyard.spark.options.reading
from steelyard.errors import ConfigError
from steelyard.spark.options.access import Access
from steelyard.spark.options.positions import COMMITTED, EARLIEST, LATEST, ReadPosition
from steelyard.spark.options.reading import Options, read_options
from steelyard.spark.options.table import OPTIONS, Reads, markdown

GUIDE = Path(__file__).parents[2] / "docs" / "SPARK_SOURCE.md"
NEEDED = {"nameservers": "127.0.0.1:9876", "subscribe": "T"}


def test_defaults() -> None:
    for name in ("subscribe", "topic", "topics"):
        assert read_options({"nameservers": "127.0.0.1:9876", name: "T"}) == Options(
            nameservers=("127.0.0.1:9876",), topics=("T",)
        )
    stream = read_options(NEEDED, "stream")
    assert stream.starting == ReadPosition(LATEST)
    assert not stream.commit_offsets


def test_everything_set_in_any_case_of_letters() -> None:
    given = {
        "NAMESERVER": "one:1; two:2,[::1]:3",
        "Subscribe": "T, U",
        "startingoffsets": '{"T": {"broker-a": {"0": 23, "1": -2}}}',
        "startingOffsetsByTimestamp": '{"T": {"broker-a": {"2": 1700}}}',
        "startingOffsetsByTimestampStrategy": "LATEST",
        "endingOffsets": '{"U": {"b": {"3": -1, "4": 9}}}',
        "endingTimestamp": "1800",
        "queues": "broker-a:0, b",
        "failOnDataLoss": "False",
        "minPartitions": "9",
        "maxRecordsPerPartition": "100",
        "columns": "body, TOPIC",
        "tags": "a || b",
        "consumerGroup": "readers",
        "tls": "true",
        "tlsCaFile": "ca.pem",
        "tlsCheckHostname": "false",
        "tlsCertFile": "cert.pem",
        "tlsKeyFile": "key.pem",
        "accessKey": "me",
        "secretKey": "hush",
        "securityToken": "token",
        "pullBatchSize": "32",
        "timeoutMs": "500",
        "retryTimeoutMs": "0",
    }
    options = read_options(given)
    assert options == Options(
        nameservers=("one:1", "two:2", "[::1]:3"),
        topics=("T", "U"),
        queues=frozenset({("broker-a", 0), ("b", None)}),
        starting=ReadPosition(
            EARLIEST,
            {("T", "broker-a", 0): 23, ("T", "broker-a", 1): -2},
            {("T", "broker-a", 2): 1700},
        ),
        latest_if_no_later=True,
        ending=ReadPosition(LATEST, {("U", "b", 3): -1, ("U", "b", 4): 9}, time=1800),
        fail_on_data_loss=False,
        partitions_min=9,
        partition_records_max=100,
        columns=("body", "topic"),
        tags=frozenset({"a", "b"}),
        consumer_group="readers",
        access=Access(
            tls=True,
            ca_file="ca.pem",
            check_hostname=False,
            cert_file="cert.pem",
            key_file="key.pem",
            access_key="me",
            secret_key="hush",
            security_token="token",
        ),
        pull_messages_max=32,
        timeout_ms=500,
        retry_timeout_ms=0,
    )
    assert "hush" not in repr(options)
    assert "'token'" not in repr(options)


def test_options_of_streams() -> None:
    given = {
        "nameservers": "h:1",
        "subscribePattern": "Orders.*",
        "startingOffsets": "committed",
        "maxOffsetsPerTrigger": "1000",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "30s",
        "group": "g",
        "sql": "a > 1",
    }
    assert read_options(given, "stream") == Options(
        nameservers=("h:1",),
        pattern="Orders.*",
        starting=ReadPosition(COMMITTED),
        trigger_offsets_max=1000,
        trigger_offsets_min=10,
        trigger_delay_max_ms=30_000,
        consumer_group="g",
        commit_offsets=True,
        condition="a > 1",
    )
    assert not read_options(given | {"commitOffsets": "false"}, "stream").commit_offsets


def test_assigned_queues() -> None:
    options = read_options(
        {"nameservers": "h:1", "assign": '{"T": {"b": [0, 2]}, "S": {"c": [1]}}'}
    )
    assert options.assigned == {("T", "b", 0), ("T", "b", 2), ("S", "c", 1)}
    assert options.topics == ("S", "T")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("5ms", 5), ("5s", 5_000), ("5 m", 300_000), ("5min", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)  # fmt: skip
def test_durations(text: str, milliseconds: int) -> None:
    options = read_options(NEEDED | {"maxTriggerDelay": text}, "stream")
    assert options.trigger_delay_max_ms == milliseconds


def test_the_documentation_has_the_table() -> None:
    """Generated: paste the output of `python -m steelyard.spark.options.table`."""
    assert markdown(OPTIONS) in GUIDE.read_text()
    assert markdown(OPTIONS) in (steelyard.spark.options.reading.__doc__ or "")


@pytest.mark.parametrize("name", ["nameServer", "nameservers", "nameServers", "nameserver"])
def test_names_of_the_nameservers(name: str) -> None:
    assert read_options({name: "h:1", "topic": "T"}).nameservers == ("h:1",)


WRONG = [
    ({"topic": "T"}, "option 'nameservers' is missing; give it as 'host:port;host:port'"),
    ({"nameservers": "h:1"}, "option 'subscribe' is missing; give the topics to read, or 'subscribePattern'"),
    (NEEDED | {"group": "a b"}, "option 'group' is 'a b'; it must have letters, digits and %|_- only"),
    (NEEDED | {"nameservers": "localhost"}, "option 'nameservers' has 'localhost'; give each one as 'host:port'"),
    (NEEDED | {"nameservers": "h:70000"}, "option 'nameservers' has 'h:70000'"),
    (NEEDED | {"topicc": "T"}, "unknown option 'topicc'; did you mean 'topic'?"),
    (NEEDED | {"zzz": "1"}, "unknown option 'zzz'; known: nameservers, subscribe,"),
    (NEEDED | {"failOnDataLoss": "no"}, "option 'failOnDataLoss' is 'no'; it must be true or false"),
    (NEEDED | {"pullBatchSize": "0"}, "option 'pullBatchSize' is '0'; it must be a number from 1 to 65536"),
    (NEEDED | {"pullBatchSize": "many"}, "option 'pullBatchSize' is 'many'"),
    (NEEDED | {"timeoutMs": "-1"}, "option 'timeoutMs' is '-1'"),
    (NEEDED | {"queues": "a:x"}, "option 'queues' has 'a:x'; give each one as 'broker:0'"),
    (NEEDED | {"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest'; here it must be 'earliest', 'committed', or JSON like"),
    (NEEDED | {"endingOffsets": "earliest"}, "option 'endingOffsets' is 'earliest'; here it must be 'latest', or JSON like"),
    (NEEDED | {"startingOffsets": "12"}, "option 'startingOffsets' has 12 where an object belongs; it must be 'earliest', 'committed', or JSON like"),
    (NEEDED | {"startingOffsets": "{"}, "option 'startingOffsets' is '{'; it must be 'earliest', 'committed', or JSON like"),
    (NEEDED | {"startingOffsets": '{"U": {}}'}, "option 'startingOffsets' names the topic 'U'; the topics read are 'T'"),
    (NEEDED | {"startingOffsets": '{"T": {"a": 3}}'}, "has 3 where an object belongs"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"x": 3}}}'}, "has the queue 'x'; it must be a queue's number"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": -3}}}'}, "has the offset -3; it must be 0 or more"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": true}}}'}, "has the offset true"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": "3"}}}'}, 'has the offset "3"'),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": -1}}}'}, "has the offset -1 (latest), which is not possible here"),
    (NEEDED | {"endingOffsets": '{"T": {"a": {"0": -2}}}'}, "has the offset -2 (earliest), which is not possible here"),
    (NEEDED | {"topic": "U"}, "options 'subscribe' and 'topic' are the same option; give one of them"),
    (NEEDED | {"subscribePattern": "U"}, "options 'subscribe' and 'subscribePattern' exclude each other"),
    (NEEDED | {"subscribe": ","}, "option 'subscribe' names no topic"),
    ({"nameservers": "h:1", "topics": ","}, "option 'topics' names no topic"),
    ({"nameservers": "h:1", "subscribePattern": "("}, "option 'subscribePattern' is no regular expression"),
    ({"nameservers": "h:1", "assign": "[]"}, "option 'assign' is '[]'; it must be JSON like"),
    ({"nameservers": "h:1", "assign": '{"T": {"b": [true]}}'}, "option 'assign' is"),
    ({"nameservers": "h:1", "assign": '{"T": {}}'}, "option 'assign' names no queue"),
    ({"nameservers": "h:1", "assign": '{"T": {"b": [0]}}', "queues": "b"}, "option 'queues' is for topics; 'assign' names"),
    (NEEDED | {"columns": "bodyy"}, "option 'columns' has 'bodyy'; the columns are topic, brokerName,"),
    (NEEDED | {"columns": "body,Body"}, "option 'columns' names a column twice"),
    (NEEDED | {"tags": "a", "sql": "b = 1"}, "options 'tags' and 'sql' exclude each other"),
    (NEEDED | {"tags": "||"}, "option 'tags' names no tag; give it as 'TagA || TagB'"),
    (NEEDED | {"sql": "a >"}, "option 'sql' is 'a >'"),
    (NEEDED | {"startingOffsets": "committed"}, "option 'startingOffsets' is 'committed', but needs the option 'consumerGroup'"),
    (NEEDED | {"startingTimestamp": "noon"}, "option 'startingTimestamp' is 'noon'; it must be a number from 0"),
    (NEEDED | {"endingOffsetsByTimestamp": '{"T": {"b": {"0": -1}}}'}, "option 'endingOffsetsByTimestamp' has the time -1"),
    (NEEDED | {"startingOffsetsByTimestampStrategy": "none"}, "is 'none'; it must be error or latest"),
    (NEEDED | {"minPartitions": "0"}, "option 'minPartitions' is '0'; it must be a number from 1 to 100000"),
    (NEEDED | {"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for spark.readStream only"),
    (NEEDED | {"accessKey": "a"}, "option 'accessKey' needs the option 'secretKey'"),
    (NEEDED | {"secretKey": "a"}, "option 'secretKey' needs the option 'accessKey'"),
    (NEEDED | {"securityToken": "a"}, "option 'securityToken' needs the options 'accessKey' and 'secretKey'"),
    (NEEDED | {"tlsCaFile": "a"}, "option 'tlsCaFile' is given, but 'tls' is not true"),
    (NEEDED | {"tls": "true", "tlsKeyFile": "a"}, "option 'tlsKeyFile' needs the option 'tlsCertFile'"),
    (NEEDED | {"retryTimeoutMs": "soon"}, "option 'retryTimeoutMs' is 'soon'; it must be a number from 0 to 86400000"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(given)
    assert words in str(caught.value)


WRONG_IN_STREAMS = [
    ({"endingoffsets": "latest"}, "option 'endingOffsets' is for spark.read only; leave it out here"),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is 5; it must not be more than maxOffsetsPerTrigger, which is 4"),
    ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay' is 'soon'; it must be a number with ms, s, m, h or d: '15m'"),
    ({"commitOffsets": "true"}, "option 'commitOffsets' is true, but needs the option 'consumerGroup'"),
    ({"startingOffsets": "now"}, "is 'now'; it must be 'earliest', 'latest', 'committed', or JSON like"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), WRONG_IN_STREAMS)
def test_wrong_options_of_streams_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(NEEDED | given, "stream")
    assert words in str(caught.value)


@pytest.mark.parametrize("reads", ["batch", "stream", None])
def test_names_are_told_as_they_are_documented(reads: Reads | None) -> None:
    """Spark passes names in lower case."""
    with pytest.raises(ConfigError, match="option 'failOnDataLoss' is 'no'"):
        read_options(NEEDED | {"failondataloss": "no"}, reads)
