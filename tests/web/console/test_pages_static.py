"""The pages are complete, self-contained, and what they contain of others is what it says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import steelyard.web

STATIC = Path(steelyard.web.__file__).parent / "console" / "static"
VENDOR = STATIC / "vendor"
OWN = sorted(path for path in STATIC.rglob("*.js") if VENDOR not in path.parents)
IMPORT = re.compile(
    r"""(?:^import|^export) [^;]*?from "([^"]+)";|^import "([^"]+)";""", re.MULTILINE | re.DOTALL
)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
LINES_MAX = 320
"""A module can be read in one sitting."""


def name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.mark.parametrize("path", OWN, ids=name)
def test_imports_exist(path: Path) -> None:
    """No bundler looks at the modules: a wrong import would be seen by the browser only."""
    text = path.read_text()
    for names, source in re.findall(
        r'^import (?:\w+, )?\{([^}]*)\} from "([^"]+)";', text, re.MULTILINE
    ):
        target = (path.parent / source).resolve()
        assert target.is_file(), f"{name(path)} imports {source}"
        exported = None if VENDOR in target.parents else set(EXPORT.findall(target.read_text()))
        for each in filter(None, (part.strip() for part in names.split(","))):
            original, _, renamed = each.partition(" as ")
            assert exported is None or original in exported, (
                f"{name(path)}: no {original} in {source}"
            )
            used = renamed or original
            assert len(re.findall(rf"\b{used}\b", text)) > 1, f"{name(path)} does not use {used}"


@pytest.mark.parametrize("path", OWN, ids=name)
def test_modules_are_read_in_one_sitting(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("// "), f"{name(path)} does not say what it is"
    assert len(text.splitlines()) <= LINES_MAX


def test_every_module_is_used() -> None:
    found: set[Path] = set()
    waiting = [STATIC / "app.js", STATIC / "theme.js"]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        sources = [one or other for one, other in IMPORT.findall(path.read_text())]
        waiting += [(path.parent / source).resolve() for source in sources]
    assert {path for path in found if VENDOR not in path.parents} == set(OWN)


def test_nothing_comes_from_elsewhere() -> None:
    """No address of another host, but for the names of XML's vocabularies."""
    for path in [*OWN, *STATIC.glob("*.html"), *STATIC.glob("*.css"), *STATIC.glob("*.svg")]:
        addresses = set(re.findall(r"https?://[^\s\"'<>`]+", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name(path)


def test_the_policy_would_forbid_nothing() -> None:
    """No inline scripts, handlers or styles: `default-src 'self'` would not run them."""
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)", page)
    assert not re.search(r"\son\w+=", page)
    for path in [STATIC / "index.html", *OWN]:
        assert not re.search(r"\sstyle=|<style|\beval\(|new Function\(", path.read_text()), name(
            path
        )


def test_what_is_not_ours_is_unchanged() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \|.*`([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE
    )
    files = {path.name for path in VENDOR.iterdir() if path.suffix in {".js", ".css"}}
    assert {file for file, _ in rows} == files
    for file, digest in rows:
        assert hashlib.sha256((VENDOR / file).read_bytes()).hexdigest() == digest, file
