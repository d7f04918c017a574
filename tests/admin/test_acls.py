"""`steelyard admin acl` against a broker with access rules, and one without."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.admin.main import main
from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background
from steelyard.servers.server import LocalServer, serve_broker


def serve(folder: Path, kafka: KafkaConfig) -> Iterator[str]:
    background = Background()
    config = BrokerConfig(kafka=kafka)
    server: LocalServer = background.wait(
        serve_broker(str(folder), port=0, kafka_port=0, config=config)
    )
    yield server.kafka
    background.wait(server.stop())
    background.stop()


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = KafkaConfig(authorizer="acl", super_users=("User:ANONYMOUS",))
    yield from serve(tmp_path_factory.mktemp("ruled"), config)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serve(tmp_path_factory.mktemp("plain"), KafkaConfig())


def run(capsys: pytest.CaptureFixture[str], kafka: str, *arguments: str) -> tuple[int, str, str]:
    code = main(["admin", "acl", *arguments, "--kafka", kafka])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def listed(capsys: pytest.CaptureFixture[str], kafka: str, *arguments: str) -> list[list[str]]:
    code, out, err = run(capsys, kafka, "list", "--json", *arguments)
    assert code == 0, err
    return [list(each.values()) for each in json.loads(out)["acls"]]


def test_rules_come_are_listed_and_go(ruled: str, capsys: pytest.CaptureFixture[str]) -> None:
    orders = ("--allow", "User:alice", "--operation", "read,write", "--topic", "orders")
    code, out, _ = run(capsys, ruled, "add", *orders)
    assert code == 0
    assert out == (
        "added: User:alice may READ topic orders\nadded: User:alice may WRITE topic orders\n"
    )
    run(
        capsys, ruled, "add", "--deny", "User:*", "--operation", "all", "--group", "x-",
        "--prefixed", "--host", "10.0.0.1",
    )  # fmt: skip
    run(capsys, ruled, "add", "--allow", "User:bob", "--operation", "alter", "--cluster")
    read = ["TOPIC", "orders", "LITERAL", "ALLOW", "READ", "User:alice", "*"]
    write = ["TOPIC", "orders", "LITERAL", "ALLOW", "WRITE", "User:alice", "*"]
    denied = ["GROUP", "x-", "PREFIXED", "DENY", "ALL", "User:*", "10.0.0.1"]
    cluster = ["CLUSTER", "kafka-cluster", "LITERAL", "ALLOW", "ALTER", "User:bob", "*"]
    assert listed(capsys, ruled) == [read, write, denied, cluster]
    assert listed(capsys, ruled, "--topic", "orders", "--operation", "write") == [write]
    assert listed(capsys, ruled, "--deny", "User:*") == [denied]
    code, out, _ = run(capsys, ruled, "list", "--cluster")
    assert out.split() == [
        *("#Type", "#Name", "#Pattern", "#Permission", "#Operation", "#Principal", "#Host"),
        *cluster,
    ]
    code, out, _ = run(capsys, ruled, "delete", "--topic", "orders", "--operation", "read")
    assert (code, out) == (0, "deleted: User:alice may READ topic orders\n")
    code, out, _ = run(capsys, ruled, "delete", "--topic", "orders", "--operation", "read")
    assert (code, out) == (0, "deleted: nothing\n")
    assert listed(capsys, ruled) == [write, denied, cluster]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("add", "--allow", "alice", "--operation", "read", "--topic", "t"), "not a principal"),
        (("add", "--allow", "User:a", "--operation", "reed", "--topic", "t"), "unknown operation"),
        (("add", "--allow", "User:a", "--operation", "any", "--topic", "t"), "unknown operation"),
        (("add", "--allow", "User:a", "--operation", "read", "--topic", ""), "empty resource name"),
        (
            ("add", "--allow", "User:a", "--operation", "read", "--cluster", "--prefixed"),
            "one cluster only",
        ),
        (
            (
                "add",
                "--deny",
                "User:a",
                "--operation",
                "read",
                "--topic",
                "t",
                "--host",
                "10.0.0.0/8",
            ),
            "--host is '10.0.0.0/8'; expected one IP address",
        ),
        (
            ("add", "--deny", "User:a", "--operation", "read", "--topic", "t*"),
            "no topic is called 't*'; --prefixed selects",
        ),
        (
            ("add", "--allow", "User:a", "--operation", "all,write", "--group", "g"),
            "there is no operation write of a group; expected one of: all, read, describe,",
        ),
        (("delete",), "would delete all rules"),
        (("delete", "--prefixed"), "--prefixed needs"),
    ],
)
def test_wrong_arguments(
    ruled: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    code, out, err = run(capsys, ruled, *arguments)
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


def test_without_an_authorizer(plain: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("list",),
        ("add", "--allow", "User:a", "--operation", "read", "--topic", "t"),
        ("delete", "--topic", "t"),
    ):
        code, out, err = run(capsys, plain, *arguments)
        assert (code, out) == (1, ""), err
        assert err.count("\n") == 1
        assert "the brokers have no authorizer; start them with --kafka-authorizer acl" in err


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = KafkaConfig(authorizer="acl", super_users=("User:admin",))
    yield from serve(tmp_path_factory.mktemp("guarded"), config)


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (("acl", "list"), "DESCRIBE"),
        (("acl", "add", "--allow", "User:a", "--operation", "read", "--topic", "t"), "ALTER"),
        (("acl", "delete", "--topic", "t"), "ALTER"),
        (("user", "list"), "DESCRIBE"),
        (("user", "delete", "a"), "DESCRIBE"),
        (("user", "add", "a"), "ALTER"),
    ],
)
def test_who_may_not_is_told_which_right_is_missing(
    guarded: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    right: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    code = main(["admin", *arguments, "--kafka", guarded])
    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "")
    words = f"the login must be a super user's, or have the right {right} to the cluster"
    assert words in printed.err
    assert printed.err.count("\n") == 1
