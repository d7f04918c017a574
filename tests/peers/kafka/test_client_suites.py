"""The own test suites of Kafka's clients, unchanged, once in the clear and once with TLS and logins.

- franz-go: the tests of its package kgo, from the Go module proxy. They can encrypt and show a
  certificate, but log in with a password only in the tests of SCRAM: the secured run gives them a
  certificate, without which its server allows nothing.
- kafka-python: its integration tests, from its source package on PyPI, with SCRAM-SHA-256 over TLS.
- sarama: its functional tests, from the Go module proxy, in the clear: they cannot be told to encrypt or to
  log in. They have brokers of their own, five behind Toxiproxy (proxied.py).
- aiokafka and confluent-kafka: their integration tests, from checkouts (`aiokafka` and
  `confluent-kafka-python`) in the folder that `STEELYARD_SUITES_SOURCES` names: their source
  packages lack them.

With `STEELYARD_SUITES_CONTROL=1` they also run against Apache Kafka, the control; what both have ended
with is in docs/COMPATIBILITY.md. Run with `-s` to see how many tests passed, and how long they took.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from confluent_kafka.admin import AdminClient
from tests.certificates import Authority
from tests.peers.apache import Missing
from tests.peers.kafka import builds, proxied, servers
from tests.peers.kafka.test_acls import AUTHORIZER
from tests.peers.kafka.test_logins import MECHANISMS, PASSWORDS, Place, make_users
from tests.unpacking import unpack
from tests.waiting import until

pytestmark = pytest.mark.peer

SUITES = Path(__file__).parent / "suites"
KAFKA_PYTHON = "kafka_python-3.0.12"

LIMIT_S = 400.0
"""For one run; on a quiet machine each takes less than a minute."""

RECORDS = os.environ.get("STEELYARD_SUITES_RECORDS", "5000")
"""That franz-go sends through chains of consumer groups; its own default is 500,000."""

IS_WHOLE = bool(os.environ.get("STEELYARD_SUITES_WHOLE"))
"""Also the tests of sarama that wait for a minute and a half, for sarama itself and for Java."""

SOURCES = os.environ.get("STEELYARD_SUITES_SOURCES", "")
CONTROL = ["apache"] if os.environ.get("STEELYARD_SUITES_CONTROL") else []

USER = "alice"
CERTIFIED = f"CN={USER}"
"""Who a client with the certificate is."""
KAFKA = {
    "num.partitions": 2,
    "group.min.session.timeout.ms": 1000,
}
"""What the tests of Python's clients expect of a broker beyond its defaults."""

Outcomes = Mapping[str, str]
"""How each test ended: passed, failed or skipped, by its name."""


class Cluster(NamedTuple):
    """A server, or several: one for each listener. `certificate` and `key`: those of a client."""

    kind: str
    addresses: Mapping[str, str]
    ca: Path
    certificate: Path
    key: Path


@contextmanager
def run_apache(folder: Path, authority: Authority) -> Iterator[Mapping[str, str]]:
    """One broker with a listener for each security protocol; their addresses."""
    pair = authority.sign("broker", "/CN=broker")
    both = folder / "pair.pem"
    both.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
    settings = {
        **servers.SETTINGS,
        **KAFKA,
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{USER};User:{CERTIFIED}",
        "ssl.client.auth": "requested",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
    }
    with servers.run_apache(
        folder / "server", settings=settings, certificate=both, logins=PASSWORDS
    ) as running:
        make_users(AdminClient({"bootstrap.servers": running.bootstrap}), USER)
        yield {
            "PLAINTEXT": running.bootstrap,
            "SSL": running.encrypted,
            "SASL_PLAINTEXT": running.login,
            "SASL_SSL": running.encrypted_login,
        }


@contextmanager
def run_steelyard(folder: Path, authority: Authority) -> Iterator[Mapping[str, str]]:
    """A server for each security protocol; their addresses. Only the first lets strangers do anything."""
    users = folder / "users.toml"
    users.write_text(f'[{USER}]\npassword = "{PASSWORDS[USER]}"\n')
    pair = authority.sign("broker", "/CN=broker")
    tls = ["--kafka-tls-certificate", str(pair.certificate), "--kafka-tls-key", str(pair.key)]
    shown = ["--kafka-tls-client-ca", str(authority.certificate)]
    shown += ["--kafka-tls-client-auth", "requested"]
    sasl = ["--kafka-sasl", ",".join(MECHANISMS), "--users", str(users)]
    common = [word for name, value in KAFKA.items() for word in ("--kafka-set", f"{name}={value}")]
    common += ["--kafka-authorizer", "acl", "--kafka-super-users"]
    kinds = {
        "PLAINTEXT": [*common, "User:ANONYMOUS"],
        "SSL": [*common, f"User:{CERTIFIED}", *tls, *shown],
        "SASL_PLAINTEXT": [*common, f"User:{USER}", *sasl],
        "SASL_SSL": [*common, f"User:{USER}", *tls, *sasl],
    }
    with ExitStack() as stack:
        addresses = {
            protocol: stack.enter_context(
                servers.run_steelyard(folder / protocol, *options, is_waited_for=False)
            ).bootstrap
            for protocol, options in kinds.items()
        }
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            ca = authority.certificate if protocol == "SASL_SSL" else None
            place = Place("steelyard", addresses[protocol], ca)
            admin = AdminClient(place.librdkafka("PLAIN", USER, PASSWORDS[USER]))
            until(lambda admin=admin: admin.list_topics(timeout=5).brokers)  # type: ignore[misc]
        yield addresses


RUN = {"steelyard": run_steelyard, "apache": run_apache}


@pytest.fixture(scope="module", params=["steelyard", *CONTROL])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    authority = Authority(folder / "tls")
    client = authority.sign("client", f"/{CERTIFIED}")
    files = (authority.certificate, client.certificate, client.key)
    try:
        with RUN[request.param](folder, authority) as addresses:
            yield Cluster(request.param, addresses, *files)
    except Missing as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


def run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """What a suite prints, to its end."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout


def judge(said: str, outcomes: Outcomes, *, skipped: set[str], at_least: int) -> None:
    """So many tests passed, these were skipped, and none failed."""
    print(dict(Counter(outcomes.values())))
    failed = sorted(name for name, outcome in outcomes.items() if outcome == "failed")
    assert failed == [], f"{failed}\n{said[-20_000:]}"
    passed_over = [name for name, outcome in outcomes.items() if outcome == "skipped"]
    assert {name.rpartition("::")[2] for name in passed_over} == skipped
    assert len(outcomes) - len(passed_over) >= at_least, said[-20_000:]


def go_outcomes(said: str) -> Outcomes:
    """How each test of Go ended, by what they printed; AssertionError if they broke off."""
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    assert re.search(r"^(PASS|FAIL)$", said, re.MULTILINE), said[-20_000:]
    ends = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)
    return {name: words[end] for end, name in ends}


def told_by(names: set[str], said: str) -> str:
    """What these tests of Go printed; tests run side by side."""
    found, is_theirs = [], False
    for line in said.splitlines():
        turn = re.match(r"=== \w+ +(\S+)", line)
        if turn is not None:
            is_theirs = turn[1] in names
        if is_theirs:
            found.append(line)
    return "\n".join(found)


@pytest.fixture(autouse=True)
def _time(request: pytest.FixtureRequest) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    print(f"{request.node.name}: {time.perf_counter() - begun:.1f} s")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_franz_go(cluster: Cluster, protocol: str) -> None:
    """Without TestIssue769 over TLS: it sets a dialer of its own, which excludes TLS in franz-go."""
    program, folder = builds.go_tests("github.com/twmb/franz-go/pkg/kgo")
    environment = {
        "KGO_SEEDS": cluster.addresses[protocol],
        "KGO_TEST_SCRAM_SEEDS": cluster.addresses["SASL_PLAINTEXT"],
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORDS[USER]}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": RECORDS,
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(program), "-test.v", "-test.parallel=8", f"-test.timeout={LIMIT_S:.0f}s"]
    if protocol == "SSL":
        paths = {"ca": cluster.ca, "cert": cluster.certificate, "key": cluster.key}
        environment["KGO_TEST_TLS"] = ",".join(f"{kind}:{path}" for kind, path in paths.items())
        command.append("-test.skip=^TestIssue769$")
    said = run(command, folder, environment)
    outcomes = go_outcomes(said)
    judge(
        told_by({name for name in outcomes if outcomes[name] == "failed"}, said),
        outcomes,
        # The test wants a broker that refuses old requests.
        skipped={"TestIssueProduceBrokerTooOldFailsRecords"},
        at_least=450,
    )


SARAMA_NEEDS_REPLICAS = (
    "TestConsumerFetchFollowerFailover",
    "TestFuncAdminAlterPartitionReassignments",
    "TestFuncAdminListConsumerGroupOffsets",
    "TestFuncTxnProduceWithBrokerFailure",
)
"""They read from a follower, move partitions, or go on at another broker while one is down."""
SARAMA_NEEDS_SETTINGS = ("TestFuncAdminIncrementalAlterConfigs",)
"""It changes `log.cleaner.backoff.ms` of a running broker."""
SARAMA_IS_SLOW = ("TestFuncJavaInteropCooperativeRebalance", "TestFuncTxnProduceAndCommitOffset")


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("kind", ["steelyard", *CONTROL])
def test_sarama(kind: str, tmp_path: Path) -> None:
    """What is left out passes on Apache Kafka only: docs/COMPATIBILITY.md."""
    program, folder = builds.go_tests("github.com/IBM/sarama", tags="functional", alone=True)
    left_out = {*SARAMA_NEEDS_REPLICAS, *SARAMA_NEEDS_SETTINGS}
    left_out |= set() if IS_WHOLE else set(SARAMA_IS_SLOW)
    names = {
        name
        for file in folder.glob("functional_*_test.go")
        for name in re.findall(r"^func (Test\w+)\(", file.read_text(), re.MULTILINE)
    }
    assert left_out < names
    command = [str(program), "-test.v", "-test.parallel=8", f"-test.timeout={LIMIT_S:.0f}s"]
    command.append(f"-test.run=^({'|'.join(sorted(names - left_out))})$")
    with proxied.run_proxied(kind, tmp_path / kind) as environment:
        said = run(command, folder, environment)
    outcomes = go_outcomes(said)
    judge(
        told_by({name for name in outcomes if outcomes[name] == "failed"}, said),
        outcomes,
        skipped={"TestReadOnlyAndAllCommittedMessages"},  # skips itself
        at_least=90,
    )


def kafka_python_source() -> Path:
    """kafka-python's unpacked source package, with the modules that its tests need besides. Raises Missing."""

    def fetch(folder: Path) -> None:
        builds.call(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--no-binary", ":all:", "--require-hashes"),
                *("-r", str(SUITES / "requirements.txt"), "-d", str(folder)),
            ],
            "pip cannot download kafka-python's source package",
        )
        (package,) = folder.glob("*.tar.gz")
        with tarfile.open(package) as archive:
            unpack(archive, folder)
        tests = folder / KAFKA_PYTHON / "test"
        (tests / "__init__.py").touch()
        shutil.copy(SUITES / "kafka_python_service.py", tests / "service.py")
        shutil.copy(SUITES / "kafka_python_cluster.py", tests / "cluster.py")

    return builds.made("client-suites", sorted(SUITES.iterdir()), fetch) / KAFKA_PYTHON


def run_pytest(
    place: Path, cluster: Cluster, protocol: str, *arguments: str
) -> tuple[str, Outcomes]:
    """Run tests in a folder with their project; what they print, and how each ended."""
    shutil.copy(cluster.ca, place / "ca-cert")
    report = place / "report.xml"
    client = {"bootstrap.servers": cluster.addresses[protocol]}
    if protocol == "SASL_SSL":
        place_of = Place(cluster.kind, cluster.addresses[protocol], cluster.ca)
        client = place_of.librdkafka("SCRAM-SHA-256", USER, PASSWORDS[USER])
    environment = {
        "SUITE_LISTENERS": json.dumps(cluster.addresses),
        "SUITE_PROTOCOL": protocol,
        "SUITE_CERTIFICATES": str(place),
        "SUITE_CLIENT": json.dumps(client),
        "PYTHONPATH": str(place),
        "KAFKA_VERSION": "4.3",
        "KAFKA_ROOT": str(place),  # kafka-python wants it to be there
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["-q", "--tb=short", "-W", "ignore", "-c", os.devnull, "--rootdir", str(place)]
    said = run([*command, f"--junitxml={report}", *arguments], place, environment)
    assert report.exists(), said[-20_000:]
    return said, {
        f"{case.get('classname')}::{case.get('name')}": outcome(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def outcome(case: ElementTree.Element) -> str:
    """How a test of pytest ended, by its report."""
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


SECURED = pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])


@SECURED
def test_kafka_python(cluster: Cluster, protocol: str, tmp_path: Path) -> None:
    """Its tests of SASL and TLS ask for their listeners themselves, in both runs.

    Without test_create_partitions, which places a partition on broker 0: brokers begin with 1 here.
    """
    place = tmp_path / "suite"
    shutil.copytree(kafka_python_source(), place)
    said, outcomes = run_pytest(
        *(place, cluster, protocol, "-p", "test.cluster", "test/integration"),
        *("-k", "not test_create_partitions"),
    )
    judge(
        said,
        outcomes,
        skipped={
            "test_kafka_consumer_offsets_for_time_old",  # for brokers before 0.10.1
            "test_end_to_end[snappy]",  # wants the package python-snappy
            "test_kafka_producer_proper_record_metadata[snappy]",
        },
        at_least=60,
    )


def checkout(name: str, place: Path) -> Path:
    """A copy of a project's tests, where somebody has them: what it publishes on PyPI lacks them."""
    if not SOURCES:
        pytest.skip(f"no tests of {name}: STEELYARD_SUITES_SOURCES names no folder with a checkout")
    shutil.copytree(Path(SOURCES) / name / "tests", place / "tests")
    return place


@SECURED
def test_aiokafka(cluster: Cluster, protocol: str, tmp_path: Path) -> None:
    """Without its own tests of TLS, which write at one listener and read at another, and one that names broker 0."""
    place = checkout("aiokafka", tmp_path)
    shutil.copy(SUITES / "aiokafka_conftest.py", place / "tests" / "conftest.py")
    files = ["admin", "client", "consumer", "coordinator", "fetcher", "producer", "sender"]
    files += ["transactional_consumer", "transactional_producer"]
    left_out = "not test_ssl_consume and not test_producer_ssl and not handler_base_do"
    said, outcomes = run_pytest(
        *(place, cluster, protocol, "-k", left_out),
        *(f"tests/test_{file}.py" for file in files),
    )
    judge(said, outcomes, skipped=set(), at_least=150)


@SECURED
def test_confluent_kafka(cluster: Cluster, protocol: str, tmp_path: Path) -> None:
    """What docs/COMPATIBILITY.md says is left out needs more than a cluster, or many minutes."""
    place = checkout("confluent-kafka-python", tmp_path)
    shutil.copy(SUITES / "confluent_kafka_cluster.py", place)
    kinds = ("admin", "consumer", "producer", "serialization")
    said, outcomes = run_pytest(
        *(place, cluster, protocol, "-p", "confluent_kafka_cluster"),
        *("-k", "not describe_operations and not incremental_alter"),
        *(f"tests/integration/{kind}" for kind in kinds),
    )
    judge(
        said,
        outcomes,
        skipped={"test_consumer_upgrade_downgrade"},  # wants KIP-848 by an environment variable
        at_least=25,
    )
