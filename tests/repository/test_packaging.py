"""What the package says of itself: one version, and Python versions that the hosted workflow runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import steelyard

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text()


def python_versions() -> list[str]:
    (listed,) = re.findall(r"python: \[(.*)\]", WORKFLOW)
    return re.findall(r"[\d.]+", listed)


def test_the_version_stands_in_the_package_alone() -> None:
    assert "version" not in PROJECT
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    assert metadata.version == steelyard.__version__


def test_the_workflow_runs_every_python_version_that_is_promised() -> None:
    prefix = "Programming Language :: Python :: 3."
    promised = [
        each.split(" :: ")[-1] for each in PROJECT["classifiers"] if each.startswith(prefix)
    ]
    assert promised == python_versions()
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_the_workflow_may_only_read_and_names_versions_of_its_actions() -> None:
    assert re.findall(r"permissions:\n((?:  .*\n)+)", WORKFLOW) == ["  contents: read\n"]
    assert all(re.fullmatch(r"[\w/-]+@v\d+", each) for each in re.findall(r"uses: (\S+)", WORKFLOW))


def test_the_changelog_begins_with_what_is_unreleased_and_then_has_the_dated_version() -> None:
    headings = re.findall(r"^## (\[.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{steelyard.__version__}\] - 20\d\d-\d\d-\d\d", headings[1])
