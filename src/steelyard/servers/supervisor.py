"""`steelyard up`: a nameserver and brokers as separate processes, restarted when they end.

- One thread, one `selectors` loop, no asyncio: a supervisor that does little is small and reliable.
- The nameserver's listening socket is opened here and passed to its process: brokers may connect
  before it has loaded, and clients that connect during a restart wait some hundred milliseconds
  instead of being refused. The ports of brokers are only reserved here (`Reservation`): clients of
  a dead broker are refused at once, so that they use another, and the broker gets the same ports
  again, even ones picked automatically.
- A server that fails before all were ready for the first time stops everything: the cause is a
  setting.
- Afterwards `lifecycle` determines when a server that ended is restarted. One that is given up
  stays down while the others continue; without the nameserver, or without any broker, everything
  stops.
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
from types import FrameType
from typing import Self

from steelyard.driver.listening import Reservation, advertised, bind
from steelyard.errors import ConfigError, SteelyardError
from steelyard.servers.children import Child, how_it_ended
from steelyard.servers.lifecycle import (
    RESTARTS_MAX,
    SLOW_START_SECONDS,
    Lifecycle,
    RestartPolicy,
    ServerState,
)

CHILD_STOP_SECONDS = 15.0
"""Time for a server to stop before it is killed."""

BROKERS_MAX = 26
"""broker-a .. broker-z."""

PORT_STEP = 10
"""Distance between the ports of neighbouring brokers.

RocketMQ also uses the two below and the one above.
"""

RESTARTS_MAX_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What `steelyard up` starts, and where."""

    brokers: int = 1
    """Number of brokers, 1 to 26."""
    data: str = "steelyard-data"
    """Directory with a subdirectory for each broker."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: all."""
    nameserver_port: int = 9876
    """Port of the nameserver; 0 picks a free one."""
    broker_port: int = 10911
    """Port of the first broker; the others follow in steps of 10. 0 picks a free one for each."""
    kafka_port: int | None = None
    """Port of the first broker's Kafka listener; the others follow.

    0 picks a free one for each; without it there are none.
    """
    restarts_max: int = RESTARTS_MAX
    """A server is given up after so many restarts in a row; 0: never restarted."""


@dataclass(slots=True)
class _Server:
    """A child, and what is to become of it."""

    child: Child
    life: Lifecycle
    is_nameserver: bool

    @property
    def is_ready(self) -> bool:
        return self.life.state is ServerState.READY

    @property
    def is_given_up(self) -> bool:
        return self.life.state is ServerState.GIVEN_UP


def broker_name(position: int) -> str:
    return f"broker-{chr(ord('a') + position)}"


class Supervisor:
    """`with supervisor.signals(), supervisor:` around `start`, then `wait`.

    In a process's main thread only.
    """

    def __init__(
        self,
        layout: Deployment,
        options: Sequence[str] = (),
        nameserver_options: Sequence[str] = (),
    ) -> None:
        """`options`, `nameserver_options`: further options of the processes."""
        if not 1 <= layout.brokers <= BROKERS_MAX:
            raise ConfigError(f"brokers is {layout.brokers}; it must be 1 to {BROKERS_MAX}")
        last_port = layout.broker_port + PORT_STEP * (layout.brokers - 1)
        if not 0 <= layout.broker_port <= last_port <= 65_535:
            raise ConfigError(
                f"broker port {layout.broker_port} is out of range for {layout.brokers} brokers;"
                " ports go up to 65535"
            )
        kafka_port = layout.kafka_port
        if kafka_port is not None and not 0 <= kafka_port <= 65_536 - layout.brokers:
            raise ConfigError(
                f"Kafka port {kafka_port} is out of range for {layout.brokers} brokers;"
                " ports go up to 65535"
            )
        if not 0 <= layout.restarts_max <= RESTARTS_MAX_LIMIT:
            raise ConfigError(
                f"restarts_max is {layout.restarts_max}; it must be 0 to {RESTARTS_MAX_LIMIT}"
            )
        self._layout = layout
        self._options, self._nameserver_options = options, nameserver_options
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._reservations: list[Reservation] = []
        self._servers: list[_Server] = []
        self._is_starting = True
        self._is_signalled = False

    # -- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all brokers, together, and wait for their end; then the nameserver."""
        for server in self._servers:
            server.life.stopped()
        self._stop([server for server in self._servers if not server.is_nameserver])
        self._stop([server for server in self._servers if server.is_nameserver])
        self._selector.close()
        if self._listener is not None:
            self._listener.close()
        for reservation in self._reservations:
            reservation.close()

    def start(self) -> dict[str, object] | None:
        """Start everything; return the addresses for clients, as printed by `up --json`.

        None if a signal to stop arrived before. Raises SteelyardError if a server does not start.
        """
        layout = self._layout
        self._listener = bind(layout.host, layout.nameserver_port)
        nameserver = advertised(layout.host, self._listener)
        self._add_nameserver(self._listener)
        for position in range(layout.brokers):
            self._add_broker(position, nameserver)
        for server in self._servers:
            self._spawn(server, time.monotonic())
        while not all(server.is_ready for server in self._servers):
            if self._is_signalled:
                return None
            self._turn()
        self._is_starting = False
        brokers = [server.child for server in self._servers if not server.is_nameserver]
        ready: dict[str, object] = {
            "nameserver": nameserver,
            "brokers": {broker.name: broker.address for broker in brokers},
        }
        if layout.kafka_port is not None:
            ready["kafka"] = ",".join([broker.kafka for broker in brokers])
        return ready

    def wait(self) -> int:
        """Serve until a signal comes or nothing is left to serve; the exit code."""
        while not self._is_signalled:
            if all(server.is_given_up for server in self._servers if not server.is_nameserver):
                _say("no broker is left: stopping")
                break
            if any(server.is_given_up for server in self._servers if server.is_nameserver):
                _say("clients cannot find brokers without the nameserver: stopping all brokers")
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

    # -- what there is ---------------------------------------------------------------------------

    def _add_nameserver(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        arguments = ["nameserver", "--host", self._layout.host, "--port", str(port)]
        arguments += self._nameserver_options
        self._add(Child("the nameserver", arguments, _pass_on, listener.fileno()), True)

    def _add_broker(self, position: int, nameserver: str) -> None:
        layout = self._layout
        name = broker_name(position)
        port = layout.broker_port + PORT_STEP * position if layout.broker_port else 0
        arguments = ["broker", "--name", name]
        arguments += ["--data", os.path.abspath(os.path.join(layout.data, name))]
        arguments += ["--host", layout.host, "--port", self._reserve(name, port)]
        arguments += ["--nameserver", nameserver]
        if layout.kafka_port is not None:
            kafka_port = layout.kafka_port + position if layout.kafka_port else 0
            arguments += ["--kafka-port", self._reserve(name, kafka_port)]
            arguments += ["--node-id", str(position + 1)]
            names = map(broker_name, range(layout.brokers))
            arguments += ["--kafka-brokers", ",".join(names)]
        self._add(Child(name, [*arguments, *self._options], _pass_on), False)

    def _reserve(self, name: str, port: int) -> str:
        try:
            reservation = Reservation(self._layout.host, port)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        self._reservations.append(reservation)
        return str(reservation.port)

    def _add(self, child: Child, is_nameserver: bool) -> None:
        policy = RestartPolicy(restarts_max=self._layout.restarts_max)
        self._servers.append(_Server(child, Lifecycle(policy), is_nameserver))

    # -- the loop --------------------------------------------------------------------------------

    def _turn(self, until: float = math.inf) -> None:
        """Wait until something happens, `until` at most, and act on it."""
        pause = min([until, *(server.life.due_at for server in self._servers)]) - time.monotonic()
        for key, _ in self._selector.select(None if pause == math.inf else max(0.0, pause)):
            if key.data is None:
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
            _say(f"{child.name} is back at {child.address}{kafka}")

    def _due(self, server: _Server, now: float) -> None:
        if server.life.state is ServerState.WAITING:
            self._spawn(server, now)
        else:
            server.life.overdue()
            _say(
                f"{server.child.name} is not ready after {SLOW_START_SECONDS:.0f} s: recovery of a"
                " large log takes time; still waiting"
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
            _say(f"{child.name} {how}; restarting it in {pause:g} s{words}")
            return
        if server.is_nameserver and self._listener is not None:
            self._listener.close()  # so that one can be started by hand
        in_row = server.life.in_row
        times = f", for the {_ordinal(in_row)} time in a row," if in_row > 1 else ""
        _say(
            f"{child.name} {how}{times} and is given up{words}; after fixing the cause, restart"
            f" everything, or start it alone with: {child.by_hand}"
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


def _say(text: str) -> None:
    _pass_on(f"steelyard: {text}\n".encode())


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
