"""Options: what is understood, and that what is wrong is named with what would be right."""

from __future__ import annotations

import pytest

from steelyard.errors import ConfigError
from steelyard.spark.options import Options, read_options

NEEDED = {"nameservers": "127.0.0.1:9876", "topic": "T"}


def test_defaults() -> None:
    assert read_options(NEEDED) == Options(
        nameservers=("127.0.0.1:9876",),
        topics=("T",),
        starting={},
        ending={},
        queues=frozenset(),
        fail_on_data_loss=True,
        pull_messages_max=8192,
        consumer_group="spark-rocketmq",
        timeout_ms=10_000,
    )


def test_everything_set_in_any_case_of_letters() -> None:
    given = {
        "NAMESERVER": "one:1; two:2,[::1]:3",
        "Topic": "T, U",
        "startingoffsets": '{"T": {"broker-a": {"0": 23, "1": -2}}}',
        "endingOffsets": '{"U": {"b": {"3": -1, "4": 9}}}',
        "queues": "broker-a:0, b",
        "failOnDataLoss": "False",
        "pullBatchSize": "32",
        "consumerGroup": "readers",
        "timeoutMs": "500",
    }
    assert read_options(given) == Options(
        nameservers=("one:1", "two:2", "[::1]:3"),
        topics=("T", "U"),
        starting={("T", "broker-a", 0): 23, ("T", "broker-a", 1): -2},
        ending={("U", "b", 3): -1, ("U", "b", 4): 9},
        queues=frozenset({("broker-a", 0), ("b", None)}),
        fail_on_data_loss=False,
        pull_messages_max=32,
        consumer_group="readers",
        timeout_ms=500,
    )


@pytest.mark.parametrize("name", ["nameServer", "nameservers", "nameServers", "nameserver"])
def test_names_of_the_nameservers(name: str) -> None:
    assert read_options({name: "h:1", "topic": "T"}).nameservers == ("h:1",)


WRONG = [
    ({"topic": "T"}, "option 'nameservers' is missing; give it as 'host:port;host:port'"),
    ({"nameservers": "h:1"}, "option 'topic' is missing"),
    (NEEDED | {"nameservers": "localhost"}, "option 'nameservers' has 'localhost'; give each one as 'host:port'"),
    (NEEDED | {"nameservers": "h:70000"}, "option 'nameservers' has 'h:70000'"),
    (NEEDED | {"topicc": "T"}, "unknown option 'topicc'; did you mean 'topic'?"),
    (NEEDED | {"zzz": "1"}, "unknown option 'zzz'; known: nameservers, topic,"),
    (NEEDED | {"failOnDataLoss": "no"}, "option 'failOnDataLoss' is 'no'; it must be true or false"),
    (NEEDED | {"pullBatchSize": "0"}, "option 'pullBatchSize' is '0'; it must be a number from 1 to 65536"),
    (NEEDED | {"pullBatchSize": "many"}, "option 'pullBatchSize' is 'many'"),
    (NEEDED | {"timeoutMs": "-1"}, "option 'timeoutMs' is '-1'"),
    (NEEDED | {"queues": "a:x"}, "option 'queues' has 'a:x'; give each one as 'broker:0'"),
    (NEEDED | {"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest'; a batch read starts at 'earliest'"),
    (NEEDED | {"endingOffsets": "earliest"}, "option 'endingOffsets' is 'earliest'; a batch read ends at 'latest'"),
    (NEEDED | {"startingOffsets": "12"}, "option 'startingOffsets' has 12 where an object belongs; it must be JSON like"),
    (NEEDED | {"startingOffsets": "{"}, "option 'startingOffsets' is '{'; it must be 'earliest', or JSON like"),
    (NEEDED | {"startingOffsets": '{"U": {}}'}, "option 'startingOffsets' names the topic 'U'; option 'topic' is 'T'"),
    (NEEDED | {"startingOffsets": '{"T": {"a": 3}}'}, "has 3 where an object belongs"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"x": 3}}}'}, "has the queue 'x'; it must be a queue's number"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": -3}}}'}, "has the offset -3; it must be 0 or more"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": true}}}'}, "has the offset true"),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": "3"}}}'}, 'has the offset "3"'),
    (NEEDED | {"startingOffsets": '{"T": {"a": {"0": -1}}}'}, "has the offset -1; a batch read starts at"),
    (NEEDED | {"endingOffsets": '{"T": {"a": {"0": -2}}}'}, "has the offset -2; a batch read ends at"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options(given)
    assert words in str(caught.value)
