"""The console's pages: files of the package, below `static`.

Each file has a tag (ETag) that is made of its contents, by which browsers ask whether they have the
newest one. Places within the pages are fragments of their one address.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.responses import Response

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Content types; files with other endings are not served."""


class Pages:
    """The files by their paths."""

    def __init__(self, folder: Traversable | None = None) -> None:
        self._folder = folder if folder is not None else files(__package__) / "static"

    @cached_property
    def _files(self) -> dict[str, Traversable]:
        found: dict[str, Traversable] = {}
        if self._folder.is_dir():
            _collect(self._folder, "", found)
        return found

    def get(self, path: str, tags: str) -> Response | None:
        """Return the file of a path, None for none. `tags`: the header If-None-Match."""
        name = path.removeprefix("/") or INDEX
        file = self._files.get(name)
        if file is None:
            return None
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in (each.strip().removeprefix("W/") for each in tags.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(body, headers={**headers, "content-type": _type(name)})


def _collect(folder: Traversable, prefix: str, found: dict[str, Traversable]) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            _collect(each, f"{prefix}{each.name}/", found)
        elif PurePosixPath(each.name).suffix in TYPES:
            found[prefix + each.name] = each


def _type(name: str) -> str:
    return TYPES[PurePosixPath(name).suffix]
