"""The C++ client (librocketmq 1.2) as child processes, by the binding `rocketmq` of PyPI, which brings the library along.

Its only wheel is for Linux on x86-64: it is installed into a folder of its own, outside the repository, not into the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

from tests.peers.apache import Missing
from tests.waiting import PATIENCE_S

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "steelyard-peers" / "cpp"


def library() -> Path:
    """The folder with the binding. Raises Missing, with pip's words, where it cannot be had or loaded."""
    wanted = HERE / "requirements.txt"
    folder = CACHE / hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = Path(tempfile.mkdtemp(dir=CACHE))
            try:
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                _call(
                    [*pip, "--require-hashes", "-r", str(wanted), "--target", str(fresh)],
                    "pip cannot install the C++ client",
                )
                _call(
                    [sys.executable, "-c", "import rocketmq.client"],
                    "the C++ client's library cannot be loaded",
                    fresh,
                )
                fresh.rename(folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _call(command: list[str], failure: str, cwd: Path = HERE) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise Missing(f"{failure}: no end after 300 s") from None
    if done.returncode != 0:
        raise Missing(f"{failure}: {(done.stderr.splitlines() or ['it said nothing'])[-1][:500]}")


class Program:
    """One run of `program.py`, in a `with`: what it says comes into `events`."""

    def __init__(self, home: Path, *words: object) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "program.py"), str(library()), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the listener's exceptions
            env={**os.environ, "HOME": str(home)},  # the library writes its log there
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def received(self) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if "number" in event]

    def finish(self, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Wait until it has ended by itself; its events."""
        code = self._process.wait(timeout_s)
        assert code == 0, f"exit code {code} after {self.events}"
        self._reader.join(timeout_s)
        return self.events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
