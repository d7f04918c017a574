"""A nameserver and brokers of both dialects, each a process that can be killed and started again at its ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from steelyard.driver.listening import Reservation

WAIT_SECONDS = 90.0
"""Longest wait for a server to be ready, or to end, on a busy machine."""

NAMESERVER = "nameserver"


class FaultError(Exception):
    """The servers, or what clients got from them, were not as they must be; the text says how."""


class Cluster:
    """See the module's text. `names`: the nameserver and the brokers; all stay at their addresses for good."""

    def __init__(self, folder: Path, *, brokers: int = 2, flush: str = "async") -> None:
        self._folder = folder
        self._flush = flush
        self._ports = [Reservation("127.0.0.1", 0) for _ in range(1 + 2 * brokers)]
        ports = [reservation.port for reservation in self._ports]
        self.nameserver = f"127.0.0.1:{ports[0]}"
        self.brokers = [f"broker-{chr(ord('a') + position)}" for position in range(brokers)]
        self.names = [NAMESERVER, *self.brokers]
        self._broker_ports = dict(
            zip(self.brokers, zip(ports[1::2], ports[2::2], strict=True), strict=True)
        )
        self.bootstrap = ",".join(f"127.0.0.1:{kafka}" for _, kafka in self._broker_ports.values())
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._read: dict[str, int] = {}

    def output(self, name: str) -> Path:
        """Where a server's standard output and its log go, of all its runs."""
        return self._folder / f"{name}.txt"

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(self._running[name].pid)

    def _command(self, name: str) -> list[str]:
        command = [sys.executable, "-m", "steelyard"]
        if name == NAMESERVER:
            port = self.nameserver.rpartition(":")[2]
            return [*command, "nameserver", "--port", port, "--json"]
        port_number, kafka_port = self._broker_ports[name]
        return [
            *(*command, "broker", "--json", "--name", name, "--flush", self._flush),
            *("--data", str(self._folder / name), "--nameserver", self.nameserver),
            *("--port", str(port_number), "--kafka-port", str(kafka_port)),
            *("--node-id", str(1 + self.brokers.index(name))),
            *("--kafka-brokers", ",".join(self.brokers)),
        ]

    # -- life --------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a server; `wait_ready` waits for it."""
        with self.output(name).open("ab") as output:
            self._read[name] = output.tell()
            self._running[name] = subprocess.Popen(
                self._command(name),
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_ready(self, names: Iterable[str] | None = None) -> None:
        """Wait until clients can use the servers. Raises FaultError for one that ended, or took too long."""
        deadline = time.monotonic() + WAIT_SECONDS
        for name in names or self.names:
            while not self._is_ready(name):
                code = self._running[name].poll()
                if code is not None:
                    raise FaultError(f"{name} ended with exit code {code} before it was ready")
                if time.monotonic() > deadline:
                    raise FaultError(f"{name} was not ready after {WAIT_SECONDS:.0f} s")
                time.sleep(0.05)

    def _is_ready(self, name: str) -> bool:
        with self.output(name).open("rb") as output:
            output.seek(self._read[name])
            return any(line.startswith(b"{") for line in output)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """SIGTERM. Raises FaultError where the server does not stop cleanly."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise FaultError(f"{name} did not stop in {WAIT_SECONDS:.0f} s") from None
        if code:
            raise FaultError(f"{name} stopped with exit code {code}")

    def is_running(self, name: str) -> bool:
        return name in self._running

    def check(self) -> None:
        """Raise FaultError where a server ended by itself or printed a traceback."""
        for name, process in self._running.items():
            code = process.poll()
            if code is not None:
                raise FaultError(f"{name} ended by itself with exit code {code}")
        for name in self.names:
            if self.output(name).exists() and b"Traceback" in self.output(name).read_bytes():
                raise FaultError(f"{name} printed a traceback")

    def close(self) -> None:
        """Stop the brokers, then the nameserver. Raises as `stop`."""
        for name in reversed(self.names):
            if name in self._running:
                self.stop(name)
        self.abandon()

    def abandon(self) -> None:
        """End whatever runs."""
        for process in self._running.values():
            with suppress(OSError):
                process.kill()
            process.wait()
        self._running.clear()
        for reservation in self._ports:
            reservation.close()
