"""Users of RocketMQ 5.x on a cluster that runs: through `Admin` and commands, and when servers die."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.admin.processes import COMMAND, run
from tests.waiting import until

from steelyard import Admin, Producer, ProducerConfig, PullConsumer
from steelyard.acl.policies import PolicyDecision, UserStatus, UserType
from steelyard.errors import BrokerError, ConfigError, RemotingError, RouteError, SteelyardError

ACCOUNTS = """\
accounts:
- accessKey: the-brokers
  secretKey: brokers-secret
  admin: true
"""
REFUSED = (BrokerError, RouteError)


class GuardedCluster:
    """`steelyard up` with two brokers and a file of accounts."""

    def __init__(self, folder: Path) -> None:
        file = folder / "plain_acl.yml"
        file.write_text(ACCOUNTS)
        self.process = subprocess.Popen(
            [
                *(*COMMAND, "up", "--brokers", "2", "--data", str(folder / "data"), "--json"),
                *("--nameserver-port", "0", "--broker-port", "0"),
                *("--acl-file", str(file), "--acl-access-key", "the-brokers"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.nameserver: str = json.loads(self.process.stdout.readline())["nameserver"]

    def kill_servers(self) -> None:
        """Kill the nameserver and both brokers, which the supervisor starts again."""
        for child in psutil.Process(self.process.pid).children():
            child.send_signal(signal.SIGKILL)

    def admin(self) -> Admin:
        return Admin(self.nameserver, access_key="the-brokers", secret_key="brokers-secret")

    def sends(self, name: str, secret: str, topic: str = "orders") -> bool:
        """Whether this user may send, to both brokers."""
        config = ProducerConfig(access_key=name, secret_key=secret, retries=0)
        with Producer("pg", self.nameserver, config=config) as producer:
            try:
                sent = {producer.send(topic, b"hello").queue.broker_name for _ in range(8)}
            except REFUSED:
                return False
        return sent == {"broker-a", "broker-b"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedCluster]:
    made = GuardedCluster(tmp_path_factory.mktemp("cluster"))
    try:
        with made.admin() as admin:
            admin.create_topic("orders", queues=2)
        yield made
    finally:
        made.process.terminate()
        made.process.communicate(timeout=60)


def test_a_user_is_made_used_and_deleted(cluster: GuardedCluster) -> None:
    with cluster.admin() as admin:
        assert len(admin.create_user("anna", "annas-secret")) == 2
        assert not cluster.sends("anna", "annas-secret")
        admin.update_acl("anna", ["Topic:ord*"], ["Pub"])
        assert cluster.sends("anna", "annas-secret")
        assert not cluster.sends("anna", "another-secret")
        config = {"access_key": "anna", "secret_key": "annas-secret"}
        with (
            PullConsumer("billing", cluster.nameserver, **config) as consumer,  # type: ignore[arg-type]
            pytest.raises(REFUSED),
        ):
            consumer.pull(consumer.queues("orders")[0], 0)
        (user,) = admin.users("ann")
        assert (user.name, user.password, user.type, user.status) == (
            "anna",
            "annas-secret",
            UserType.NORMAL,
            UserStatus.ENABLE,
        )
        ((entry,),) = [user.entries]
        assert (entry.resource, entry.actions, entry.decision) == (
            "Topic:ord*",
            ("Pub",),
            PolicyDecision.ALLOW,
        )
        admin.update_user("anna", password="another-secret")
        assert cluster.sends("anna", "another-secret")
        admin.update_user("anna", user_status="disable")
        assert not cluster.sends("anna", "another-secret")
        admin.update_user("anna", user_status="enable", user_type="Super")
        admin.delete_acl("anna", "Topic:ord*")
        assert cluster.sends("anna", "another-secret")
        with pytest.raises(BrokerError, match="The acl is not exist"):
            admin.delete_acl("anna")
        admin.delete_user("anna")
        assert not cluster.sends("anna", "another-secret")
        assert admin.users() == ()
        with pytest.raises(ConfigError, match="not an action"):
            admin.update_acl("anna", ["Topic:orders"], ["Fly"])
        with pytest.raises(BrokerError, match="The user is not exist"):
            admin.update_acl("anna", ["Topic:orders"], ["Pub"])


def test_users_survive_what_kills_all_servers(cluster: GuardedCluster) -> None:
    """Also the nameserver knows them again, which keeps nothing: brokers tell it."""
    with cluster.admin() as admin:
        admin.create_user("carl", "carls-secret")
        admin.update_acl("carl", ["Topic:orders"], ["Pub"])
    for _ in range(3):
        cluster.kill_servers()
        until(lambda: _answered(lambda: cluster.sends("carl", "carls-secret")), "carl sends again")
        assert not _answered(lambda: cluster.sends("carl", "another-secret"))
    with cluster.admin() as admin:
        until(lambda: _answered(lambda: len(admin.users("carl")) == 1), "all brokers answer")
        admin.delete_user("carl")
    # Refusals come later each time, at last after a client's time-out.
    assert not _answered(lambda: cluster.sends("carl", "carls-secret"))


def _answered(ask: Callable[[], bool]) -> bool:
    """Whether it is so; False while a server does not answer."""
    try:
        return ask()
    except (RemotingError, SteelyardError):
        return False


def test_the_commands(cluster: GuardedCluster) -> None:
    keys = {"STEELYARD_ACCESS_KEY": "the-brokers", "STEELYARD_SECRET_KEY": "brokers-secret"}

    def told(command: str, *words: str, text: str = "", code: int = 0) -> str:
        where = ("-n", cluster.nameserver, "-c", "DefaultCluster")
        done = run("admin", command, *where, *words, text=text, **keys)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done
        return done.stdout if code == 0 else done.stderr

    made = told("createUser", "-u", "dora", text="doras-secret\n").splitlines()
    assert [line.partition(" to ")[0] for line in made] == ["create user"] * 2
    assert "existed" in told("createUser", "-u", "dora", "-p", "doras-secret", code=1)
    acl = ("-s", "User:dora", "-r", "Topic:orders,Group:b*", "-a", "Pub,Sub", "-d", "Allow")
    assert "update acl to" in told("createAcl", *acl, "-i", "127.0.0.1,10.0.0.0/8")
    assert cluster.sends("dora", "doras-secret")
    rows = [line.split() for line in told("listAcl", "-s", "dora", "-r", "Topic").splitlines()]
    assert rows[0][0] == "#Subject"
    assert rows[1:] == [
        ["User:dora", "Custom", "Topic:orders", "Pub,Sub", "127.0.0.1,10.0.0.0/8", "Allow"]
    ]
    shown = json.loads(told("getAcl", "-s", "User:dora", "--json"))["entries"]
    assert [each["entry"]["resource"] for each in shown] == ["Topic:orders", "Group:b*"]
    told("updateUser", "-u", "dora", "-s", "disable", "-t", "Super")
    assert told("getUser", "-u", "dora").splitlines()[1].split() == ["dora", "Super", "disable"]
    assert "secret" not in told("listUser", "--json")
    told("deleteAcl", "-s", "User:dora")
    told("updateAcl", *acl[:-1], "Deny")
    told("deleteUser", "-u", "dora")
    for command, words, why in (
        ("getUser", ("-u", "dora"), "there is no user dora"),
        ("getAcl", ("-s", "User:dora"), "there is no user dora"),
        ("getAcl", ("-s", "dora"), "expected User:NAME"),
        ("updateUser", ("-u", "dora"), "nothing to change"),
        ("createUser", ("-u", "dora"), "the password is empty"),
        ("createAcl", (*acl[:3], "orders", *acl[4:]), "not a resource"),
    ):
        assert why in told(command, *words, code=2), command
