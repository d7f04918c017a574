"""The API reference builds without a warning, and no public name lacks a docstring."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

from pdoc.doc import Class

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "docs/reference.py"


def test_it_has_a_page_for_each_public_module_and_the_names_in_it(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, str(PROGRAM), str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert pages == {
        "index.html",
        "steelyard.html",
        "steelyard/aio.html",
        "steelyard/config.html",
        "steelyard/errors.html",
        "steelyard/spark.html",
        "steelyard/spark/options/reading.html",
        "steelyard/spark/source.html",
    }
    assert 'id="Producer.send_in_transaction"' in (tmp_path / "steelyard.html").read_text()
    assert "_live" not in (tmp_path / "steelyard.html").read_text()


class Told:
    """It has a `size`."""

    size = 1
    count = 2
    _hidden = 3

    def act(self) -> None:
        pass


def test_a_name_without_a_docstring_is_found() -> None:
    undocumented = runpy.run_path(str(PROGRAM))["undocumented"]
    place = Class("steelyard", "Told", Told, ("steelyard", "Told"))
    assert list(undocumented(place, "")) == ["steelyard.Told.count", "steelyard.Told.act"]
