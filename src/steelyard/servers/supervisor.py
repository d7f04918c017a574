"""`steelyard up`: a nameserver, brokers and an HTTP server as processes, restarted when they end.

- One thread, one `selectors` loop, no asyncio: a supervisor that does little is small and reliable.
- Every server keeps its ports across restarts (`deployment`).
- A server that fails before all were ready for the first time stops everything: the cause is a
  setting.
- Afterwards `lifecycle` determines when a server that ended is restarted. One that is given up
  stays down while the others continue; without the nameserver, or without any broker, everything
  stops. The HTTP server is a client of the others, and none of them needs it.
- Servers stop when their standard input ends, so that none outlives the supervisor, however that
  ends.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Self

from steelyard.driver.log_lines import TEXT, own_line
from steelyard.errors import ConfigError, SteelyardError
from steelyard.servers.children import READ_BYTES, Child, how_it_ended
from steelyard.servers.deployment import Deployment, Placement
from steelyard.servers.lifecycle import (
    SLOW_START_SECONDS,
    Lifecycle,
    RestartPolicy,
    ServerState,
)

CHILD_STOP_SECONDS = 15.0
"""Time for a server to stop before it is killed."""

RESTARTS_MAX_LIMIT = 1_000_000


class ServerRole(Enum):
    """What a server is for."""

    NAMESERVER = "nameserver"
    BROKER = "broker"
    HTTP = "http"


@dataclass(slots=True)
class _Server:
    """A child, and what is to become of it."""

    child: Child
    life: Lifecycle
    kind: ServerRole

    @property
    def is_ready(self) -> bool:
        return self.life.state is ServerState.READY

    @property
    def is_given_up(self) -> bool:
        return self.life.state is ServerState.GIVEN_UP


class Supervisor:
    """`with supervisor.signals(), supervisor:` around `start`, then `wait`.

    In a process's main thread only.
    """

    def __init__(
        self,
        layout: Deployment,
        options: Sequence[str] = (),
        nameserver_options: Sequence[str] = (),
        http_options: Sequence[str] = (),
        *,
        log_format: str = TEXT,
    ) -> None:
        """`options`: further ones of the brokers; those of the other processes follow.

        `log_format`: of the supervisor's own lines; those of the processes are passed on.
        """
        if not 0 <= layout.restarts_max <= RESTARTS_MAX_LIMIT:
            raise ConfigError(
                f"restarts_max is {layout.restarts_max}; it must be 0 to {RESTARTS_MAX_LIMIT}"
            )
        self._layout = layout
        self._options, self._nameserver_options = options, nameserver_options
        self._http_options = http_options
        self._log_format = log_format
        self._selector = selectors.DefaultSelector()
        self._placement: Placement | None = None
        self._servers: list[_Server] = []
        self._is_starting = True
        self._is_signalled = False
        self._lifeline = -1

    # -- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the HTTP server, then all brokers together, then the nameserver."""
        for server in self._servers:
            server.life.stopped()
        for kind in (ServerRole.HTTP, ServerRole.BROKER, ServerRole.NAMESERVER):
            self._stop(self._of(kind))
        self._selector.close()
        if self._placement is not None:
            self._placement.close()

    def start(self) -> dict[str, object] | None:
        """Start everything; return the addresses for clients, as printed by `up --json`.

        None if a signal to stop arrived before. Raises SteelyardError if a server does not start.
        """
        layout = self._layout
        placement = Placement(
            layout, _pass_on, self._options, self._nameserver_options, self._http_options
        )
        self._placement = placement
        self._add(placement.nameserver, ServerRole.NAMESERVER)
        for child in placement.brokers.values():
            self._add(child, ServerRole.BROKER)
        if placement.http is not None:
            self._add(placement.http, ServerRole.HTTP)
        for server in self._servers:
            self._spawn(server, time.monotonic())
        while not all(server.is_ready for server in self._servers):
            if self._is_signalled:
                return None
            self._turn()
        self._is_starting = False
        ready: dict[str, object] = {
            "nameserver": placement.address,
            "brokers": {name: broker.address for name, broker in placement.brokers.items()},
        }
        if layout.kafka_port is not None:
            ready["kafka"] = placement.kafka
        if placement.http is not None:
            ready["http"] = placement.http.address
        return ready

    def wait(self) -> int:
        """Serve until a signal comes or nothing is left to serve; the exit code."""
        while not self._is_signalled:
            if all(server.is_given_up for server in self._of(ServerRole.BROKER)):
                self._say("ERROR", "no broker is left: stopping")
                break
            if any(server.is_given_up for server in self._of(ServerRole.NAMESERVER)):
                self._say(
                    "ERROR",
                    "clients cannot find brokers without the nameserver: stopping all brokers",
                )
                break
            self._turn()
        return 1 if any(server.is_given_up for server in self._servers) else 0

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end `start` and `wait`; a server's end wakes them."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._is_signalled = True

        def wake(number: int, frame: FrameType | None) -> None:
            """The byte in the pipe has woken the loop already."""

        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            former_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
            former = {
                number: signal.signal(number, handler)
                for number, handler in (
                    (signal.SIGTERM, stop),
                    (signal.SIGINT, stop),
                    (signal.SIGCHLD, wake),
                )
            }
            self._selector.register(ours, selectors.EVENT_READ, None)
            self._wakeups = ours
            try:
                yield
            finally:
                signal.set_wakeup_fd(former_fd)
                for number, handler in former.items():
                    signal.signal(number, handler)

    def watch(self, pipe: int) -> None:
        """End `start` and `wait` also when this pipe is closed at its other end.

        What comes through it is ignored. Raises ConfigError if it is not a pipe.
        """
        try:
            self._selector.register(pipe, selectors.EVENT_READ, None)
        except OSError:  # a regular file, which always can be read
            raise ConfigError(
                "--until-stdin-closes needs a pipe as standard input, which its starter keeps open"
            ) from None
        self._lifeline = pipe

    # -- the loop --------------------------------------------------------------------------------

    def _add(self, child: Child, kind: ServerRole) -> None:
        policy = RestartPolicy(restarts_max=self._layout.restarts_max)
        self._servers.append(_Server(child, Lifecycle(policy), kind))

    def _of(self, kind: ServerRole) -> list[_Server]:
        return [server for server in self._servers if server.kind is kind]

    def _turn(self, until: float = math.inf) -> None:
        """Wait until something happens, `until` at most, and act on it."""
        pause = min([until, *(server.life.due_at for server in self._servers)]) - time.monotonic()
        for key, _ in self._selector.select(None if pause == math.inf else max(0.0, pause)):
            if key.fd == self._lifeline:
                if not os.read(key.fd, READ_BYTES):
                    self._selector.unregister(key.fd)
                    self._is_signalled = True
            elif key.data is None:
                with suppress(BlockingIOError):
                    self._wakeups.recv(4096)
            else:
                self._read(key.data, key.fd)
        now = time.monotonic()
        for server in self._servers:
            code = server.child.poll()
            if code is not None:
                self._ended(server, code, now)
            elif server.life.due_at <= now:
                self._due(server, now)

    def _read(self, server: _Server, pipe: int) -> None:
        child = server.child
        if not child.read(pipe):
            self._selector.unregister(pipe)
        if not child.address or not server.life.awaits_report:
            return
        server.life.reported(time.monotonic())
        if not self._is_starting:
            kafka = f", Kafka at {child.kafka}" if child.kafka else ""
            self._say("INFO", f"{child.name} is back at {child.address}{kafka}")

    def _due(self, server: _Server, now: float) -> None:
        if server.life.state is ServerState.WAITING:
            self._spawn(server, now)
        else:
            server.life.overdue()
            self._say(
                "WARNING",
                f"{server.child.name} is not ready after {SLOW_START_SECONDS:.0f} s: recovery of a"
                " large log takes time; still waiting",
            )

    def _spawn(self, server: _Server, now: float) -> None:
        child = server.child
        try:
            child.start()
        except OSError as error:
            self._failed(server, f"cannot be started: {error.strerror}", now)
            return
        server.life.started(now)
        for pipe in child.pipes:
            self._selector.register(pipe, selectors.EVENT_READ, server)

    def _ended(self, server: _Server, code: int, now: float) -> None:
        """A process has ended: because it was told to, or by itself."""
        child = server.child
        for pipe in child.pipes:
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
        child.finish()
        if server.life.state is ServerState.STOPPING:
            return
        if self._is_starting and child.error:
            raise ConfigError(f"{child.name}: {child.error}")
        when = "" if server.is_ready else " before it was ready"
        self._failed(server, f"ended{when} ({how_it_ended(code)})", now)

    def _failed(self, server: _Server, how: str, now: float) -> None:
        """A server is not there any more: start it again later, or never."""
        child = server.child
        words = f"; its last line: {child.last_words}" if child.last_words else ""
        if self._is_starting:
            raise SteelyardError(f"{child.name} {how}{words}")
        pause = server.life.failed(now)
        if pause is not None:
            self._say("WARNING", f"{child.name} {how}; restarting it in {pause:g} s{words}")
            return
        if server.kind is ServerRole.NAMESERVER and self._placement is not None:
            self._placement.release_nameserver()  # so that one can be started by hand
        in_row = server.life.in_row
        times = f", for the {_ordinal(in_row)} time in a row," if in_row > 1 else ""
        self._say(
            "ERROR",
            f"{child.name} {how}{times} and is given up{words}; after fixing the cause, restart"
            f" everything, or start it alone with: {child.by_hand}",
        )

    # -- stopping --------------------------------------------------------------------------------

    def _stop(self, servers: list[_Server]) -> None:
        """Let servers stop, kill those that take too long, and wait for their end."""
        deadline = time.monotonic() + CHILD_STOP_SECONDS
        for server in servers:
            server.child.ask_to_stop()
        is_killed = False
        while any(server.child.is_running for server in servers):
            if not is_killed and time.monotonic() >= deadline:
                is_killed = True
                for server in servers:
                    server.child.kill()
            self._turn(math.inf if is_killed else deadline)

    def _say(self, level: str, text: str) -> None:
        _pass_on(f"{own_line(self._log_format, level, 'up', text)}\n".encode())


def _pass_on(line: bytes) -> None:
    """Write a line to standard error. Nobody may read it: that is no reason to stop serving."""
    with suppress(OSError, ValueError):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()


def _ordinal(number: int) -> str:
    suffix = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{suffix}"
