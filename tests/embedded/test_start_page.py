"""docs/START.md: its Python examples run, its commands are ones that the command line knows, its script is that of SPARK.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.embedded.guide import Example, examples
from tests.embedded.test_plugin import PLUGIN
from tests.waiting import PATIENCE_S

from steelyard.admin.main import PROGRAMS, build_parser

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "START.md"
TEST, PROGRAM, SCRIPT = examples("python", PAGE)


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", [TEST, PROGRAM], ids=["test", "program"])
def test_example(example: Example, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(example.code)
    words = ("-m", "pytest", *PLUGIN, "-c", "/dev/null") if example is TEST else ()
    printed = run(sys.executable, *words, "example.py", folder=tmp_path)
    assert example.output in (None, printed)


def test_the_script_for_spark_is_the_one_that_is_run_everywhere() -> None:
    assert SCRIPT.code in (DOCS / "SPARK.md").read_text()


def commands() -> list[str]:
    """What follows the name of our program, on the page."""
    return re.findall(r"^\$ (?:.* \| )?steelyard (.*)$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("words", commands())
def test_command(words: str) -> None:
    if words.split()[0] not in PROGRAMS:
        build_parser().parse_args(shlex.split(words))


def test_commands_of_programs_of_their_own() -> None:
    own = [words.split() for words in commands() if words.split()[0] in PROGRAMS]
    assert [words[:2] for words in own] == [["pipeline", "incident"]]
