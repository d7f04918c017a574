"""Clusters: one of processes for all tests, one within this process for each module; commands that ask the latter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.admin.processes import Ports, cluster
from tests.api.conftest import Servers

from steelyard.admin import exits
from steelyard.admin.main import main

Run = Callable[..., list[str]]


@pytest.fixture(scope="session")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with cluster(tmp_path_factory.mktemp("cluster")) as ports:
        yield ports


@pytest.fixture(scope="module")
def nameservers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = Servers(tmp_path_factory.mktemp("brokers"))
    yield servers.nameservers
    servers.stop()


@pytest.fixture
def run(nameservers: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an admin command; the lines that it prints."""

    def run(command: str, *options: str) -> list[str]:
        capsys.readouterr()
        code = main(["admin", command, "-n", nameservers, *options])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out.splitlines()

    return run


@pytest.fixture
def refused(nameservers: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs an admin command that fails; what it says, in one line."""

    def run(command: str, *options: str, code: int = exits.WRONG) -> str:
        assert main(["admin", command, "-n", nameservers, *options]) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        return line

    return run
