"""The site builds without a warning, with the API reference, in which no public name lacks a docstring."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

from pdoc.doc import Class

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference.py"
SITE = ROOT / "docs/site.py"


def test_the_site_has_a_page_for_each_document_and_each_public_module(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, str(SITE), str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    api = tmp_path / "api"
    assert {str(page.relative_to(api)) for page in api.rglob("*.html")} == {
        "index.html",
        "steelyard.html",
        "steelyard/aio.html",
        "steelyard/config.html",
        "steelyard/errors.html",
        "steelyard/otel.html",
        "steelyard/spark.html",
        "steelyard/spark/options/reading.html",
        "steelyard/spark/source.html",
    }
    assert 'id="Producer.send_in_transaction"' in (api / "steelyard.html").read_text()
    assert "_live" not in (api / "steelyard.html").read_text()
    for page in ("index", "docs/CLIENT", "docs/decisions/0001-pure-nodes-and-drivers", "docs/API"):
        assert "<h1" in (tmp_path / f"{page}.html").read_text()
    assert "https://fonts" not in (tmp_path / "index.html").read_text()


def test_links_that_leave_the_site_become_text_and_broken_ones_stay(tmp_path: Path) -> None:
    on_site = runpy.run_path(str(SITE))["on_site"]
    for link, expected in (
        ("[the client](CLIENT.md#sending)", "[the client](CLIENT.md#sending)"),
        ("[figures](../bench/README.md)", "[figures](../bench/README.md)"),
        ("[the table](../src/steelyard/servers/lifecycle.py)", "the table"),
        ("[elsewhere](https://example.org/x)", "[elsewhere](https://example.org/x)"),
        ("[nowhere](NOWHERE.md)", "[nowhere](NOWHERE.md)"),
        ("[nothing](nothing.py)", "[nothing](nothing.py)"),
    ):
        assert on_site(f"See {link}.", ROOT / "docs") == f"See {expected}."


class Told:
    """It has a `size`."""

    size = 1
    count = 2
    _hidden = 3

    def act(self) -> None:
        pass


def test_a_name_without_a_docstring_is_found() -> None:
    undocumented = runpy.run_path(str(REFERENCE))["undocumented"]
    place = Class("steelyard", "Told", Told, ("steelyard", "Told"))
    assert list(undocumented(place, "")) == ["steelyard.Told.count", "steelyard.Told.act"]
