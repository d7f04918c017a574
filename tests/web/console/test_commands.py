"""`steelyard console` and `steelyard up --http` as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until
from tests.web.console.asking import Events, ask, read
from tests.web.scrapes import readiness
from tests.web.test_commands import failed, running

from steelyard import Server
from steelyard.admin.main import main


def test_consoles_of_a_cluster_by_both_ways(tmp_path: Path) -> None:
    ports = ("--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0", "--http", "0")
    with running("up", "--data", str(tmp_path), *ports, "--allow-changes") as (ready, _):
        beside = ready["http"]
        read(beside, "cluster")  # which may come before the broker's Kafka listener
        until(lambda: readiness(beside) == (200, []))
        assert read(beside, "cluster")["allow_changes"]
        with (
            running("console", "-n", ready["nameserver"], "--http", "0") as (one, _),
            running("console", "--kafka", ready["kafka"], "--http", "0") as (other, _),
        ):
            assert read(one["http"], "cluster")["kind"] == "steelyard"
            assert read(other["http"], "cluster")["kind"] == "apache-kafka"
            assert not read(one["http"], "cluster")["allow_changes"]
            body = {"dialect": "kafka", "name": "made", "queues": 2}
            for address in (one["http"], other["http"]):
                assert ask(address, "topics", method="POST", body=body).status == 403
            assert ask(beside, "topics", method="POST", body=body).status == 200
            for address in (beside, one["http"], other["http"]):
                until(lambda at=address: ask(at, "topics/kafka/made").status == 200)  # type: ignore[misc]
            watching = Events(one["http"])
            next(iter(watching))
        # The consoles have ended although somebody watched: `running` has seen their exit code.
        assert watching.response.read() is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["console", "--kafka", "nowhere"], "'nowhere' is not an address"),
        (["console", "--kafka", " , "], "no Kafka broker given"),
        (["console", "-n", "x"], "'x' is not an address"),
        (["console", "-n", "h:1", "--kafka", "h:1"], "not allowed with argument"),
        (["console", "--http", "70000"], "70000"),
        (["console", "--port", "1"], "the port is given with --http here, not with --port"),
        (["http", "--http", "1"], "the port is given with --port here, not with --http"),
        (["console", "--set", "hots=a"], "unknown setting 'hots'"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr().err
    assert code == 2, said
    assert words in said
    assert said.count("\n") == 1


def first_lines(*command: str, **environment: str) -> list[str]:
    """What a console has logged when it is stopped after its first line."""
    with subprocess.Popen(
        [sys.executable, "-m", "steelyard", "console", "--http", "0", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
        finally:
            process.terminate()
        return [first, *process.stderr.readlines()]


@pytest.mark.parametrize("way", ["--kafka", "-n"])
def test_a_cluster_that_does_not_answer_is_told_once(way: str) -> None:
    (line,) = first_lines(way, "127.0.0.1:1")
    assert "WARNING steelyard.console: the cluster does not answer: " in line
    assert "Connection refused; trying again" in line


def test_a_cluster_that_wants_an_account_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- {accessKey: brokers, secretKey: the-secret, admin: true}\n")
    settings = {"acl_file": str(file), "acl_access_key": "brokers"}
    with Server(kafka=False, in_process=True, settings=settings) as server:
        (line,) = first_lines("-n", server.nameserver, STEELYARD_ACCESS_KEY="")
    assert "WARNING steelyard.console: the cluster refuses to answer: code 16 from" in line
    assert "not signed" in line


def test_another_server_at_the_address(tmp_path: Path) -> None:
    ports = ("--nameserver-port", "0", "--broker-port", "0")
    with running("up", "--data", str(tmp_path), *ports) as (ready, _):
        said = failed("console", "--kafka", ready["nameserver"], "--http", "0", code=1)
        assert f"{ready['nameserver']} is the port of a RocketMQ nameserver" in said
