"""What users write, as what nodes take."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import ANY

import pytest

import steelyard.aio
from steelyard.client.producing import as_message
from steelyard.client.settings import client_config, nameserver_addresses, verdict
from steelyard.config import ClientConfig, ConsumerConfig, LitePullConfig, ProducerConfig
from steelyard.driver.identity import new_client_id, new_ids
from steelyard.errors import ArgumentError, ConfigError, MessageError
from steelyard.types import ConsumeStatus, Message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b:2 ;", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("http://a:1", ("a:1",)),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_nameservers(given: str | list[str], expected: tuple[str, ...]) -> None:
    assert nameserver_addresses(given) == expected


@pytest.mark.parametrize(
    "given", ["", ";", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:-1", "a:١"]
)
def test_wrong_nameservers(given: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        nameserver_addresses(given)


def test_nameservers_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "e:1;f:2")
    assert nameserver_addresses(None) == ("e:1", "f:2")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert nameserver_addresses(None) == ("127.0.0.1:9876",)


def test_a_template_is_filled_in() -> None:
    given = {"group": "g", "nameservers": "a:1"}
    config = client_config(ProducerConfig, ProducerConfig(retries=7), given)
    assert (config.group, config.nameservers, config.retries) == ("g", ("a:1",), 7)
    assert config.client_id
    assert client_config(
        ProducerConfig, None, {**given, "retries": 7, "client_id": None}
    ) == replace(config, client_id=ANY)
    named = {"group": "g", "nameservers": None, "client_id": "me"}
    assert client_config(ClientConfig, ClientConfig(nameservers=("x:1",)), named) == ClientConfig(
        nameservers=("x:1",), group="g", client_id="me"
    )
    with pytest.raises(ConfigError, match="group"):
        client_config(ProducerConfig, None, {"group": "", "nameservers": "a:1"})
    with pytest.raises(ConfigError, match="consume_batch"):
        client_config(ConsumerConfig, ConsumerConfig(consume_batch=-1), given)


def test_a_setting_is_given_once() -> None:
    given = {"group": "g", "nameservers": "a:1"}
    for config in (
        ProducerConfig(group="other"),
        ProducerConfig(nameservers=("b:1",)),
        ProducerConfig(secret_key="deep"),
    ):
        twice = {**given, "secret_key": "other"}
        name = next(name for name in twice if getattr(config, name))
        with pytest.raises(ConfigError, match=f"^{name} is given twice, as an argument and in"):
            client_config(ProducerConfig, config, twice)
    same = ProducerConfig(group="g", retries=5, nameservers=("a:1",))
    assert client_config(ProducerConfig, same, {**given, "retries": 5}).retries == 5
    assert client_config(ProducerConfig, ProducerConfig(), {**given, "retries": 0}).retries == 0
    # What differs from the defaults of its own class was given: pull_batch is 10 for a consumer that polls.
    polls = LitePullConfig(group="g")
    assert client_config(ConsumerConfig, polls, {**given, "pull_batch": 7}).pull_batch == 7


def test_messages() -> None:
    whole = Message("T", b"x")
    assert as_message(whole, None, {}) is whole
    assert as_message(whole, None, {"tags": "A", "properties": None}) == Message(
        "T", b"x", tags="A"
    )
    assert as_message("T", "ü", {"tags": "A", "keys": ["k"]}) == Message(
        "T", "ü".encode(), tags="A", keys=["k"]
    )
    assert as_message("T", bytearray(b"x"), {}) == whole  # any buffer will do


@pytest.mark.parametrize(
    ("message", "body"),
    [(Message("T", b"x"), b"y"), ("T", None), ("T", 5), (5, b"x"), (None, None)],
)
def test_wrong_messages(message: object, body: object) -> None:
    with pytest.raises((MessageError, ArgumentError)):
        as_message(message, body, {})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("returned", "success"),
    [
        (None, True),
        (True, True),
        (ConsumeStatus.CONSUME_SUCCESS, True),
        (0, True),
        ("text", True),
        (False, False),
        (ConsumeStatus.RECONSUME_LATER, False),
    ],
)
def test_verdicts(returned: object, success: bool) -> None:
    assert (verdict(returned) is ConsumeStatus.CONSUME_SUCCESS) == success


def test_client_ids_are_unique_and_shaped_as_in_java() -> None:
    ids = {new_client_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    ip, _, instance = next(iter(ids)).partition("@")
    assert ip.count(".") == 3
    assert all(part.isdigit() for part in instance.split("#"))


def test_message_ids_of_two_producers_differ() -> None:
    assert new_ids().next(1_000) != new_ids().next(1_000)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("", "the group name is empty; give group='...'"),
        ("g" * 256, "group 'gggggggggggggggggggg'… is longer than 255 characters"),
        ("my group", "group 'my group' has characters other than letters, digits and %|_-"),
        (
            "127.0.0.1:9876",
            "group '127.0.0.1:9876' has characters other than letters, digits and %|_-;"
            " did you mean nameservers='127.0.0.1:9876'?",
        ),
    ],
)
def test_a_group_that_brokers_refuse(group: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}$"):
        client_config(ProducerConfig, None, {"group": group})
    assert client_config(ProducerConfig, None, {"group": "MQ_INST_1%GID-a_b|c"}).group


@pytest.mark.parametrize("client", ["Producer", "PushConsumer", "PullConsumer", "LitePullConsumer"])
def test_an_address_given_for_a_group_is_refused_when_the_client_is_made(client: str) -> None:
    for module in (steelyard, steelyard.aio):
        with pytest.raises(ConfigError, match="did you mean nameservers='localhost:9876'"):
            getattr(module, client)("localhost:9876")
