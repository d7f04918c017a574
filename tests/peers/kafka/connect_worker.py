"""A distributed worker of Kafka Connect, unmodified: one process, which is asked by REST."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.peers.apache import free_port, java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import HEARTBEAT_MS, QUICK_START, QUIET, SESSION_MS, Running
from tests.waiting import PATIENCE_S, until

KINDS = ("config", "offset", "status")
"""What the topics of a group of workers keep."""


class Worker:
    """A worker in a `with`, at the end of which it is killed. Raises Missing."""

    def __init__(
        self, cluster: Running, group: str, folder: Path, settings: Mapping[str, object]
    ) -> None:
        """With the `settings` of a worker beside these."""
        self._port = free_port()
        self._said: object = None
        lines = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "scheduled.rebalance.max.delay.ms": 0,
            **{f"{kind}.storage.topic": state_topic(group, kind) for kind in KINDS},
            **{f"{kind}.storage.replication.factor": 1 for kind in KINDS},
            **settings,
        }
        folder.mkdir()
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        library = builds.jars("connect", builds.SERVER)
        self._log = folder / "worker.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("java", *QUICK_START, QUIET, "-cp", f"{library}/*"),
                    *("org.apache.kafka.connect.cli.ConnectDistributed", str(properties)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=java_environment(),
            )

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """What it answers; asked again while it begins or rebalances, or does not know the thing yet."""
        return until(lambda: self._answer(method, path, body), self)[0]

    def _answer(self, method: str, path: str, body: Mapping[str, object] | None) -> tuple[Any, ...]:
        assert self._process.poll() is None, f"{self}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
        except urllib.error.URLError as error:
            self._said = error
            return ()
        return (json.loads(text or b"null"),)

    def leave(self) -> None:
        """In order: its tasks end, and their offsets are written."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __str__(self) -> str:
        end = self._log.read_text(errors="replace")[-2000:]
        return f"the worker (ended with {self._process.poll()}) answered {self._said}; {end}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def state_topic(group: str, kind: str) -> str:
    return f"{group}-{kind}"
