"""A cluster with a console, and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.peers.apache import Missing
from tests.peers.console.browsing import chromium
from tests.peers.console.serving import Members, Served, members, served
from tests.peers.kafka.builds import call, made, need

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_serial = count(1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Playwright keeps an event loop running in this thread: other files' tests could start none."""
    try:
        with chromium() as browser:
            yield browser
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Served]:
    """For all tests that leave its servers alive; its console only reads."""
    with served(tmp_path_factory.mktemp("console")) as cluster:
        yield cluster


@pytest.fixture
def group_members(cluster: Served) -> Iterator[Members]:
    with members(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core."""

    def install(folder: Path) -> None:
        shutil.copy(Path(__file__).parent / "js" / "package.json", folder)
        words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]
        call(words, "npm cannot install axe-core", cwd=folder)

    try:
        need("npm")
        folder = made("axe", [Path(__file__).parent / "js" / "package.json"], install)
    except Missing as reason:
        pytest.skip(str(reason))
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture
def name() -> str:
    """A word that no other test of this run uses, for topics and groups."""
    return f"console{next(_serial)}"
