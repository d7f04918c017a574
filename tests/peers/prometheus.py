"""Prometheus and promtool: those of the machine, or of Debian's package, which is unpacked into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "steelyard-peers"


class Programs(NamedTuple):
    prometheus: str
    promtool: str


def programs() -> Programs:
    """Raises OSError or CalledProcessError where they cannot be had."""
    found = [shutil.which(name) for name in Programs._fields]
    if not all(found):
        folder = CACHE / "prometheus"
        if not folder.exists():
            _unpack(folder)
        found = [str(folder / "usr/bin" / name) for name in Programs._fields]
    return Programs(*(str(each) for each in found))


def _unpack(folder: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
        run = {"cwd": fresh, "check": True, "capture_output": True, "timeout": 300}
        subprocess.run(["apt-get", "download", "prometheus"], **run)  # type: ignore[call-overload]
        (package,) = Path(fresh).glob("*.deb")
        subprocess.run(["dpkg", "-x", package, "unpacked"], **run)  # type: ignore[call-overload]
        (Path(fresh) / "unpacked").rename(folder)
