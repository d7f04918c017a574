"""`steelyard admin user`, and `consume --kafka` with a login, against a broker that asks for one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from steelyard.admin.main import main
from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background
from steelyard.errors import ConfigError
from steelyard.servers.server import LocalServer, serve_broker
from steelyard.servers.users import read_users

USERS = '[admin]\npassword = "first secret"\n'


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("users")
    (folder / "users.toml").write_text(USERS)
    config = BrokerConfig(
        kafka=KafkaConfig(sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        users_file=str(folder / "users.toml"),
    )
    background = Background()
    server: LocalServer = background.wait(
        serve_broker(str(folder / "data"), port=0, kafka_port=0, config=config)
    )
    yield server.kafka
    background.wait(server.stop())
    background.stop()


class Terminal:
    """Runs commands as somebody, and has what they print."""

    def __init__(
        self, kafka: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._kafka = kafka
        self._patch = patch
        self._capsys = capsys
        self.log_in("admin", "first secret")

    def log_in(self, user: str, password: str, mechanism: str = "") -> None:
        self._patch.setenv("STEELYARD_SASL_USERNAME", user)
        self._patch.setenv("STEELYARD_SASL_PASSWORD", password)
        self._patch.setenv("STEELYARD_SASL_MECHANISM", mechanism)

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._patch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(["admin", "user", *arguments, "--kafka", self._kafka])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err

    def users(self) -> dict[str, Any]:
        code, out, _ = self.run("list", "--json")
        assert code == 0
        return {each["user"]: each["mechanisms"] for each in json.loads(out)["users"]}


@pytest.fixture
def terminal(
    kafka: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(kafka, monkeypatch, capsys)


def test_a_user_from_beginning_to_end(terminal: Terminal) -> None:
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert terminal.users() == {"admin": both}
    code, out, _ = terminal.run("add", "alice", stdin="alice's\n")
    assert (code, out) == (0, "user alice: SCRAM-SHA-256, SCRAM-SHA-512\n")
    assert terminal.users() == {"admin": both, "alice": both}
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        terminal.log_in("alice", "alice's", mechanism)
        assert "alice" in terminal.run("list")[1]
    options = ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192")
    assert terminal.run("add", "bob", *options, stdin="bob's\n")[0] == 0
    assert terminal.users()["bob"] == {"SCRAM-SHA-256": 8192}
    assert terminal.run("add", "alice", stdin="new\n")[0] == 0
    code, _, err = terminal.run("list")
    assert code == 1
    assert "refused the login" in err
    terminal.log_in("alice", "new")
    for name in ("bob", "alice"):
        assert terminal.run("delete", name)[:2] == (0, f"user {name} is deleted\n")
    terminal.log_in("admin", "first secret")
    assert terminal.users() == {"admin": both}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("delete", "nobody"), 1, "there is no user 'nobody'"),
        (("add", "carol"), 2, "the password is empty"),
        (("add", "carol", "--iterations", "1"), 2, "expected 4096 to 16384"),
        (("add", ""), 1, "Username must not be empty"),
    ],
)
def test_what_is_wrong_takes_one_line(
    terminal: Terminal, arguments: tuple[str, ...], code: int, words: str
) -> None:
    stdin = "x\n" if arguments[1] == "" else ""
    found, out, err = terminal.run(*arguments, stdin=stdin)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_incomplete_login(terminal: Terminal) -> None:
    terminal.log_in("admin", "")
    code, _, err = terminal.run("list")
    assert code == 2
    assert "STEELYARD_SASL_PASSWORD" in err


def test_a_login_that_is_missing(terminal: Terminal, kafka: str) -> None:
    terminal.log_in("", "")
    advice = (
        "; if this port wants a login, set STEELYARD_SASL_USERNAME and STEELYARD_SASL_PASSWORD\n"
    )
    code, _, err = terminal.run("list")
    assert (code, err[-len(advice) :]) == (1, advice)


def test_a_login_that_nobody_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    background = Background()
    server: LocalServer = background.wait(
        serve_broker(str(tmp_path), port=0, kafka_port=0, config=BrokerConfig())
    )
    try:
        Terminal(server.kafka, monkeypatch, capsys)
        for command in (("admin", "user", "list"), ("consume", "-t", "T", "-g", "g")):
            assert main([*command, "--kafka", server.kafka]) == 1
            line = capsys.readouterr().err.splitlines()[-1]
            assert "the broker does not ask for a login here" in line
            assert line.endswith(
                "; unset STEELYARD_SASL_USERNAME, STEELYARD_SASL_PASSWORD and"
                " STEELYARD_SASL_MECHANISM"
            )
    finally:
        background.wait(server.stop())
        background.stop()


def test_consume_logs_in(kafka: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "first secret",
        }
    )
    producer.produce("Consumed", b"a record")
    assert producer.flush(60) == 0
    login = {"STEELYARD_SASL_USERNAME": "admin", "STEELYARD_SASL_PASSWORD": "first secret"}
    command = [sys.executable, "-m", "steelyard", "consume", "--kafka", kafka]
    read = subprocess.run(
        [*command, "-t", "Consumed", "-g", "g", "--from", "earliest", "--count", "1"],
        env=os.environ | login,
        capture_output=True,
        timeout=100,
    )
    assert (read.returncode, read.stdout) == (0, b"a record\n"), read.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[admin\n", "not TOML"),
        ("admin = 1\n", "not a table"),
        ("[admin]\n", "no password"),
        ("[admin]\npasswort = 'secret'\n", "passwort"),
        ("[admin]\npassword = ''\n", "empty"),
        ("[admin]\npassword = 7\n", "not a text"),
        ("[admin]\npassword = 'secret'\n'SCRAM-SHA-256' = 'secret'\n", "either"),
        ("[admin]\n'SCRAM-SHA-256' = 'secret'\n", "salt=BASE64"),
        ("['']\npassword = 'secret'\n", "name of a user"),
    ],
)
def test_wrong_files_of_users(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as error:
        read_users(str(path))
    assert "secret" not in str(error.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_users(str(tmp_path / "nowhere"))
