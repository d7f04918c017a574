"""`steelyard completion`: what real shells make of its scripts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.admin.processes import run


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "steelyard.bash"
    done = run("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(done.stdout)
    return path


COMPLETE = r"""
source "$1"; shift
COMP_WORDS=(steelyard "$@"); COMP_CWORD=$#
function=$(complete -p steelyard | sed 's/.* -F \([^ ]*\) .*/\1/')
"$function"
printf '%s\n' "${COMPREPLY[@]}"
"""
"""What bash does when Tab is pressed behind the last word: it calls the function that is registered for the command."""


def completions(script: Path, *words: str) -> set[str]:
    bash = ["bash", "--norc", "-c", COMPLETE, "bash", str(script), *words]
    done = subprocess.run(bash, capture_output=True, text=True, timeout=60, cwd=script.parent)
    assert (done.returncode, done.stderr) == (0, ""), done
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("con",), {"console", "consume"}),
        (("p",), {"produce", "pipeline"}),
        (("admin", "do"), {"doctor"}),
        (("admin", "kafka"), {"kafkaGroups", "kafkaGroup"}),
        (("consume", "--co"), {"--count"}),
        (("consume", "--ka"), {"--kafka"}),
        (("admin", "updateTopic", "--read"), {"--readQueueNums"}),
        (("produce", "--input", ""), {"text", "json"}),
        (("completion", ""), {"bash", "zsh", "fish"}),
        (("up", "--super"), set()),
    ],
)
def test_bash_completes(script: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert completions(script, *words) == offered


def test_bash_completes_paths(script: Path) -> None:
    assert completions(script, "produce", "--file", "steel") == {"steelyard.bash"}
    (script.parent / "folder").mkdir()
    assert completions(script, "up", "--data", "f") == {"folder"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_ones_that_the_shell_can_read(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert "steelyard" in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    read = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


def test_other_shells_are_refused() -> None:
    done = run("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'tcsh'" in done.stderr
