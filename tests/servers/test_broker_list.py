"""The list of a cluster's brokers: what is wrong with one is said before anything starts."""

from __future__ import annotations

import pytest

from steelyard.config import BrokerConfig, KafkaConfig, check
from steelyard.errors import ConfigError

NAMESERVER = ("127.0.0.1:9876",)


@pytest.mark.parametrize(
    ("brokers", "nameservers", "text"),
    [
        (("broker-b",), NAMESERVER, "must include this broker, broker-a"),
        (("broker-a", "broker-a"), NAMESERVER, "each name must appear only once"),
        (("broker-a", ""), NAMESERVER, "each name must appear only once"),
        (("broker-a", "broker-b"), (), "through a nameserver"),
        (("broker-a", *map(str, range(1_001))), NAMESERVER, "more than 1000"),
    ],
)
def test_a_list_that_cannot_be_right_is_refused(
    brokers: tuple[str, ...], nameservers: tuple[str, ...], text: str
) -> None:
    config = BrokerConfig(nameservers=nameservers, kafka=KafkaConfig(brokers=brokers))
    with pytest.raises(ConfigError, match=text):
        check(config)


def test_a_list_that_may_be_right_is_taken() -> None:
    check(BrokerConfig(kafka=KafkaConfig(brokers=("broker-a",))))
    kafka = KafkaConfig(brokers=("broker-b", "broker-a"))
    check(BrokerConfig(nameservers=NAMESERVER, kafka=kafka))
