"""What users write, as what nodes take."""

from __future__ import annotations

import pytest

from steelyard.client.settings import as_message, client_config, nameserver_addresses, verdict
from steelyard.config import ClientConfig, ConsumerConfig, ProducerConfig
from steelyard.driver.identity import new_client_id, new_ids
from steelyard.errors import ConfigError, MessageError
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
    config = client_config(ProducerConfig(retries=7), "g", "a:1", None)
    assert (config.group, config.nameservers, config.retries) == ("g", ("a:1",), 7)
    assert config.client_id
    assert client_config(ClientConfig(nameservers=("x:1",)), "g", None, "me") == ClientConfig(
        nameservers=("x:1",), group="g", client_id="me"
    )
    with pytest.raises(ConfigError, match="group"):
        client_config(ProducerConfig(), "", "a:1", None)
    with pytest.raises(ConfigError, match="consume_batch"):
        client_config(ConsumerConfig(consume_batch=-1), "g", "a:1", None)


def test_messages() -> None:
    whole = Message("T", b"x")
    assert as_message(whole, None) is whole
    assert as_message("T", "ü", tags="A", keys=["k"]) == Message(
        "T", "ü".encode(), tags="A", keys=["k"]
    )
    assert as_message("T", bytearray(b"x")) == whole  # type: ignore[arg-type]  # any buffer will do


@pytest.mark.parametrize(
    ("message", "body"),
    [(Message("T", b"x"), b"y"), ("T", None), ("T", 5), (5, b"x"), (None, None)],
)
def test_wrong_messages(message: object, body: object) -> None:
    with pytest.raises(MessageError):
        as_message(message, body)  # type: ignore[arg-type]  # wrong on purpose


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
