"""The files of the pages, and those that the package has."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import Response

from steelyard.web.console.pages import TYPES, Pages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text("<p>home</p>")
    (tmp_path / "parts" / "app.js").write_text("export {};")
    (tmp_path / "secret.py").write_text("x = 1")
    return tmp_path


def body(found: Response | None) -> bytes | None:
    return None if found is None else bytes(found.body)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", b"<p>home</p>"),
        ("/index.html", b"<p>home</p>"),
        ("/groups/kafka/g", None),
        ("/parts/app.js", b"export {};"),
        ("/parts/none.js", None),
        ("/secret.py", None),
        ("/parts/../secret.py", None),
        ("/../index.html", None),
    ],
)
def test_paths(folder: Path, path: str, expected: bytes | None) -> None:
    assert body(Pages(folder).get(path, "")) == expected


def test_types_and_tags(folder: Path) -> None:
    pages = Pages(folder)
    found = pages.get("/parts/app.js", "")
    assert found is not None
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    assert found.headers["cache-control"] == "no-cache"
    tag = found.headers["etag"]
    for known in (tag, f'"x", W/{tag}'):
        again = pages.get("/parts/app.js", known)
        assert again is not None
        assert (again.status_code, again.body, again.headers["etag"]) == (304, b"", tag)
    (folder / "parts" / "app.js").write_text("export const x = 1;")
    changed = pages.get("/parts/app.js", tag)
    assert changed is not None
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_package_without_pages(tmp_path: Path) -> None:
    assert Pages(tmp_path / "none").get("/", "") is None


def test_the_packages_own_files_have_a_type() -> None:
    """Beside those of others, whose licences and notes are not served."""
    static = Path(__file__).parents[3] / "src/steelyard/web/console/static"
    for file in static.rglob("*"):
        assert file.is_dir() or file.suffix in TYPES or file.parent.name == "vendor", file
