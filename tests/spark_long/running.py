"""Programs of a Spark installation, and of its users, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
from tests.waiting import until

SPARK = Path(pyspark.__file__).parent

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM: these runs are short, and there are many."""

MEMORY = "512m"
"""Of drivers and executors; Spark refuses less than 471,859,200 bytes."""


def environment(python: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's but where programs are found, those beside `python` first."""
    return {
        "HOME": os.environ.get("HOME", "/"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "JDK_JAVA_OPTIONS": SMALL,
        "SPARK_DAEMON_MEMORY": "256m",
    } | more


def driver_environment(**more: str) -> dict[str, str]:
    """That of a user who has Steelyard installed.

    PYTHONPATH must not name our sources: Spark hands it on to the executors of formats that it
    found itself, and those of some tests are not to have Steelyard.
    """
    return environment(Path(sys.executable), **more)


def run(
    *command: str, cwd: Path, env: Mapping[str, str], timeout_s: int = 400
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@contextmanager
def server(log: Path, ready: str, *command: str, env: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """A program that runs meanwhile; gives what the pattern `ready` found in its log."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=log.parent
        )

    def found() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()[-4000:]
        return re.search(ready, log.read_text())

    try:
        yield until(found, log)
    finally:
        process.terminate()
        process.wait(60)


class Job:
    """A command that is started, watched and killed again and again, and the checkpoint of its query."""

    def __init__(self, log: Path, checkpoint: Path, *command: str) -> None:
        self.log = log
        self.checkpoint = checkpoint
        self._command = (sys.executable, *command)
        self._process: psutil.Popen | None = None

    def start(self, *more: str) -> psutil.Popen:
        """Start it, with more arguments."""
        with self.log.open("ab") as log:
            self._process = psutil.Popen([*self._command, *more], stdout=log, stderr=log)
        return self._process

    @contextmanager
    def running(self, *more: str) -> Iterator[None]:
        """Start it, and kill it in the end."""
        self.start(*more)
        try:
            yield
        finally:
            self.kill()

    def end(self, *more: str) -> None:
        """Run it to its end."""
        assert self.start(*more).wait(900) == 0, self.told()

    def check(self) -> psutil.Popen:
        """Its process, which must not have ended."""
        assert self._process is not None, "it was started"
        assert self._process.poll() is None, self.told()
        return self._process

    def kill(self) -> None:
        """SIGKILL for it and all below it, at once: the JVM, Python's driver, and all workers."""
        process = self.check()
        victims = [*process.children(recursive=True), process]
        kill_at_once(victims)
        psutil.wait_procs(victims)

    def told(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3_000:]

    def until_batch(self, log: str, number: int) -> None:
        """Wait until a log of the checkpoint has the batch with this number, or a later one."""

        def is_there() -> bool:
            self.check()
            return self.batches(log) >= number

        until(is_there, self.log, 900)

    def batches(self, log: str) -> int:
        """The number of the last batch in a log of the checkpoint, `offsets` or `commits`; -1: none."""
        folder = self.checkpoint / log
        names = os.listdir(folder) if folder.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def kill_at_once(victims: Sequence[psutil.Process]) -> None:
    """SIGKILL for those that still run; all are stopped first, so that none sees another one's death."""
    for send in (psutil.Process.suspend, psutil.Process.kill):
        for victim in victims:
            with suppress(psutil.NoSuchProcess):  # a worker may end at any time
                send(victim)
