"""The pytest plugin, registered by the entry point `pytest11`.

Every run of pytest in an environment with Steelyard imports this module: it loads nothing else of
Steelyard before one of its fixtures is used or an option is given, and changes nothing for tests
that use none. It keeps to what pytest has had since 6.2.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pluggy import Result

    from steelyard.embedded.attached import AttachedServer
    from steelyard.embedded.faults import ServerFaults
    from steelyard.embedded.server import Server

SESSION, WORKER = "session", "worker"

LOG_MAX = 20_000
"""Characters of the server's log that the report of a failed test has."""

_topic_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options, each of which an ini file can have, too."""
    group = parser.getgroup("steelyard", "servers of Steelyard for tests")
    group.addoption(
        "--steelyard-server",
        choices=(WORKER, SESSION),
        help="with pytest-xdist: a server for each worker (the default), or one for the session",
    )
    group.addoption(
        "--steelyard-brokers", type=int, metavar="N", help="brokers of the server; default: 1"
    )
    group.addoption(
        "--steelyard-set",
        action="append",
        metavar="NAME=VALUE",
        help="a setting of its brokers, as of `steelyard up --set`; may be repeated",
    )
    parser.addini("steelyard_server", "as --steelyard-server", default=WORKER)
    parser.addini("steelyard_brokers", "as --steelyard-brokers", default="1")
    parser.addini("steelyard_set", "as --steelyard-set, one a line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Raise UsageError for wrong options, once, before any test."""
    if hasattr(config, "workerinput"):
        return  # pytest-xdist starts workers after this
    _is_shared(config)
    brokers, settings = _brokers(config), _settings(config)
    if brokers == 1 and not settings:
        return
    from steelyard.errors import ConfigError

    try:
        _server(brokers, settings)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def steelyard_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttachedServer]:
    """A nameserver and brokers for all tests of this process, started by the first that needs it.

    It is a `steelyard.Server`; with --steelyard-server=session, under pytest-xdist, an
    `AttachedServer`, which other workers use, too.
    """
    from steelyard.embedded.shared import SharedServer

    config = request.config
    brokers, settings = _brokers(config), _settings(config)
    if _is_shared(config):
        folder = tmp_path_factory.getbasetemp().parent
        shared = SharedServer(folder, brokers, settings)
        config.pluginmanager.register(_LogOfFailures(shared))
        yield shared
        shared.leave()
        return
    with _server(brokers, settings) as server:
        config.pluginmanager.register(_LogOfFailures(server))
        yield server


def _server(brokers: int, settings: Sequence[str]) -> Server:
    """Return a server that is not started yet. Raises ConfigError for wrong options."""
    from steelyard.embedded.server import Server

    pairs = (each.partition("=") for each in settings)
    return Server(brokers=brokers, settings={name: value for name, _, value in pairs})


@pytest.fixture
def steelyard_topic(request: pytest.FixtureRequest, steelyard_server: AttachedServer) -> str:
    """The name of a topic of this test's own, with four queues or partitions on each broker."""
    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:60].strip("-")
    worker = getattr(request.config, "workerinput", {}).get("workerid", "main")
    return steelyard_server.create_topic(f"{test}-{worker}-{next(_topic_numbers)}")


@pytest.fixture(scope="session")
def kafka_bootstrap(steelyard_server: AttachedServer) -> str:
    """The `bootstrap.servers` of Kafka clients."""
    return steelyard_server.bootstrap_servers


@pytest.fixture(scope="session")
def rocketmq_nameserver(steelyard_server: AttachedServer) -> str:
    """The nameserver's address for RocketMQ clients."""
    return steelyard_server.nameserver


@pytest.fixture
def steelyard_faults(steelyard_server: AttachedServer) -> Iterator[ServerFaults]:
    """Faults for this test: `kill`, `pause`, `slow`, `lose_member`, `force_rebalance`.

    Brokers that are down, paused or slow at its end are restarted or resumed.
    """
    from steelyard.embedded.faults import ServerFaults

    faults = ServerFaults(steelyard_server)
    yield faults
    faults.undo()


# -- options ---------------------------------------------------------------------------------------


def _is_shared(config: pytest.Config) -> bool:
    mode = config.getoption("steelyard_server") or config.getini("steelyard_server")
    if mode not in (SESSION, WORKER):
        raise pytest.UsageError(
            f"steelyard_server is {mode!r}; it must be {WORKER!r} or {SESSION!r}"
        )
    return mode == SESSION and hasattr(config, "workerinput")


def _brokers(config: pytest.Config) -> int:
    given = config.getoption("steelyard_brokers")
    text = config.getini("steelyard_brokers") if given is None else given
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(
            f"steelyard_brokers is {text!r}; it must be a whole number"
        ) from None


def _settings(config: pytest.Config) -> list[str]:
    settings: list[str] = [
        *config.getini("steelyard_set"),
        *(config.getoption("steelyard_set") or ()),
    ]
    for each in settings:
        if "=" not in each:
            raise pytest.UsageError(f"steelyard_set: {each!r}: expected NAME=VALUE")
    return settings


# -- the log of failed tests -----------------------------------------------------------------------


class _LogOfFailures:
    """Attaches what the server logged during a failed test that uses it; a plugin of the run."""

    def __init__(self, server: AttachedServer) -> None:
        self._server = server
        self._start = 0

    def pytest_runtest_setup(self) -> None:
        """Note where the log is when a test begins."""
        self._start = self._server.log_size()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, Result[pytest.TestReport], None]:
        """Add a section to the report of a failure."""
        report = (yield).get_result()
        if report.failed and "steelyard_server" in getattr(item, "fixturenames", ()):
            text = self._server.log(self._start)
            if text:
                title = f"log of the Steelyard server, {report.when}"
                report.sections.append((title, text[-LOG_MAX:]))
