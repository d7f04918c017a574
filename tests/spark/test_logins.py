"""Logins at Kafka listeners that options and the environment give to commands of the pipeline."""

from __future__ import annotations

import argparse

import pytest

from steelyard.errors import ConfigError
from steelyard.sasl.login import Login
from steelyard.spark.incidents.reaching import access_of
from steelyard.spark.options.access import Access
from steelyard.spark.options.logins import login_among


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERNAME", "PASSWORD", "MECHANISM"):
        monkeypatch.delenv(f"STEELYARD_SASL_{name}", raising=False)


def test_options() -> None:
    others, login = login_among(
        [
            ("tls", "true"),
            ("SaslUsername", "anna"),
            ("saslPassword", "s"),
            ("saslMechanism", "PLAIN"),
        ]
    )
    assert others == [("tls", "true")]
    assert login == Login("PLAIN", "anna", "s")
    assert login_among([("tls", "true")]) == ([("tls", "true")], None)


def test_a_password_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_SASL_PASSWORD", "from-there")
    assert login_among([("saslUsername", "anna")])[1] == Login(
        "SCRAM-SHA-512", "anna", "from-there"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([("saslUsername", "anna")], "needs sasl_username and sasl_password"),
        ([("saslPassword", "s")], "needs sasl_username and sasl_password"),
        ([("saslMechanism", "GSSAPI")], "expected one of"),
        ([("saslMechanism", "OAUTHBEARER")], "needs sasl_oauth_token"),
    ],
)
def test_logins_that_are_not_complete(given: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.*saslUsername, saslPassword, saslMechanism"):
        login_among(given)


def test_an_incidents_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options count before the environment."""
    assert access_of(argparse.Namespace(option=[])).login is None
    monkeypatch.setenv("STEELYARD_SASL_USERNAME", "operator")
    monkeypatch.setenv("STEELYARD_SASL_PASSWORD", "secret")
    access = access_of(argparse.Namespace(option=[("tls", "true")]))
    assert (access.tls, access.login) == (True, Login("SCRAM-SHA-512", "operator", "secret"))
    access = access_of(argparse.Namespace(option=[("saslUsername", "anna")]))
    assert access.login == Login("SCRAM-SHA-512", "anna", "secret")
    assert access.consumer_login() == {
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "anna",
        "sasl_password": "secret",
    }
    assert Access().consumer_login() == {}
    assert "secret" not in repr(access)
    with pytest.raises(ConfigError, match="tlsKeyFile, saslUsername"):
        access_of(argparse.Namespace(option=[("nope", "1")]))
