"""What the pages compute, in Node.js: `logic/*.test.mjs` beside this file."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import steelyard.web

pytestmark = pytest.mark.peer

STATIC = Path(steelyard.web.__file__).parent / "console" / "static"
TESTS = sorted((Path(__file__).parent / "logic").glob("*.test.mjs"))
OLDEST = 18
"""The first release of Node.js whose runner of tests is stable enough."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with the modules and their tests: Node.js takes a file for a module only if its package says so."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < OLDEST:
        pytest.skip(f"Node.js {version.strip()} is older than {OLDEST}")
    folder = tmp_path_factory.mktemp("logic")
    shutil.copytree(STATIC, folder / "static")
    package = {"type": "module", "imports": {"#static/*": "./static/*"}}
    (folder / "package.json").write_text(json.dumps(package))
    return folder


@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_logic(test: Path, folder: Path) -> None:
    shutil.copy(test, folder)
    run = subprocess.run(["node", "--test", test.name], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "\n# pass 0\n" not in run.stdout


def test_there_are_tests() -> None:
    assert len(TESTS) >= 5
