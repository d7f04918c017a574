"""`steelyard.Server`: a nameserver and brokers for a test or another program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from steelyard.checks import Positive, unknown
from steelyard.client.arguments import checked
from steelyard.config import BrokerConfig
from steelyard.embedded.administrator import OperatorAccess, access_of
from steelyard.embedded.attached import AttachedServer
from steelyard.embedded.costs import LedgerReader
from steelyard.embedded.folder import TemporaryFolder
from steelyard.embedded.in_process import InProcessServers
from steelyard.embedded.processes import ServerProcesses
from steelyard.errors import ClosedError
from steelyard.servers.deployment import (
    NAMESERVER_SHARED,
    Deployment,
    broker_names,
    broker_settings,
    shared_texts,
)
from steelyard.settings import from_texts

SettingValue = bool | int | float | str | Sequence[str]

LOG_NAME = "server.log"


@checked
class Server(AttachedServer):
    """A nameserver and brokers for this program: free ports, temporary data, ready in an instant.

    >>> with Server(brokers=2) as server:  # doctest: +SKIP
    ...     server.create_topic("Orders")
    ...     client = Producer("orders", server.nameserver)

    - `brokers`: 1 to 26, named broker-a, broker-b, ...
    - `kafka`: whether they serve Kafka clients, at `bootstrap_servers`.
    - `in_process`: runs them in this process, on an event loop in a thread of its own. By default
      they are processes, which end with this one, however it ends.
    - `settings`: of all brokers, by any name that `steelyard up --set` takes, such as
      {"store.retention_ms": 3600000}.
    - `data`: a directory for the brokers' data, which stays and is used again by the next Server;
      default: a temporary one, removed at the end.

    It may be started and stopped once. Any thread may call its methods. They raise ClosedError
    unless it runs, ConfigError or ArgumentError for a wrong argument, and SteelyardError, with the
    last line of its log, for a server that does not start.
    """

    def __init__(
        self,
        *,
        brokers: Positive = 1,
        kafka: bool = True,
        in_process: bool = False,
        settings: Mapping[str, SettingValue] | None = None,
        data: str | Path | None = None,
    ) -> None:
        super().__init__("")
        self._texts = [f"{name}={_text(value)}" for name, value in (settings or {}).items()]
        self._settings = broker_settings(from_texts(BrokerConfig, self._texts))
        self._layout = Deployment(
            brokers=brokers,
            data="" if data is None else os.fspath(data),
            nameserver_port=0,
            broker_port=0,
            kafka_port=0 if kafka else None,
        )
        self._names = broker_names(self._layout)
        self._in_process = in_process
        self._folder: TemporaryFolder | None = None
        self._servers: ServerProcesses | InProcessServers | None = None
        self._is_over = False
        self._last_log = ""

    def __repr__(self) -> str:
        """Return whether it runs and at which addresses, without settings: they may be secret."""
        names = ", ".join(self._names)
        if self._servers is None:
            return f"<Server {'stopped' if self._is_over else 'not started'}: {names}>"
        kafka = f", Kafka at {self._bootstrap_servers}" if self._bootstrap_servers else ""
        return f"<Server running: nameserver at {self._nameserver}, {names}{kafka}>"

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the servers; returns when clients of either dialect can use them.

        `with` calls this.
        """
        if self._is_over or self._servers is not None:
            raise ClosedError("a Server can be started only once; make a new one")
        self._folder = TemporaryFolder()
        try:
            self._begin(self._folder.path)
        except BaseException:
            self.stop()
            raise
        return self

    def _begin(self, folder: Path) -> None:
        data = self._layout.data or str(folder / "data")
        layout = Deployment(
            brokers=self._layout.brokers,
            data=data,
            nameserver_port=0,
            broker_port=0,
            kafka_port=self._layout.kafka_port,
        )
        if self._in_process:
            self._servers = InProcessServers(layout, self._settings)
        else:
            options = ["--verbose", *(f"--set={text}" for text in self._texts)]
            self._log_path = folder / LOG_NAME
            shared = shared_texts(self._texts, NAMESERVER_SHARED)
            nameserver = ["--verbose", *(f"--set={text}" for text in shared)]
            self._servers = ServerProcesses(layout, self._log_path, options, nameserver)
        self._servers.start()
        self._nameserver = self._servers.nameserver
        self._bootstrap_servers = self._servers.kafka
        self._access = access_of(self._nameserver, self._settings)
        self._ledger = LedgerReader(self._access)
        self._await_brokers(self._names)
        self._await_each_other(len(self._names))

    def stop(self) -> None:
        """Stop the servers; `with` calls this. May be called again.

        Temporary data is removed, so brokers are killed: they have nothing to keep. On a directory
        of your own (`data`) they stop cleanly.
        """
        self._is_over = True
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.stop(cleanly=bool(self._layout.data))
        folder, self._folder = self._folder, None
        if folder is not None:
            self._last_log = super().log() if self._log_path is not None else ""
            self._log_path = None
            folder.remove()

    close = stop

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- where clients find it ---------------------------------------------------------------------

    @property
    def nameserver(self) -> str:
        """The nameserver's address, host:port, for RocketMQ clients."""
        self._live()
        return self._nameserver

    def _operators(self) -> OperatorAccess:
        self._live()
        return self._access

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for Kafka clients, host:port joined by commas; empty for none.

        Those of brokers that are down are among them.
        """
        self._live()
        return self._bootstrap_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers, running or not."""
        return self._names

    def log(self, start: int = 0) -> str:
        """Return the servers' log from this byte on; after the end too.

        Empty with `in_process`: there they log to the loggers `steelyard.*` of `logging`.
        """
        if self._log_path is not None:
            return super().log(start)
        return self._last_log.encode()[start:].decode(errors="replace")

    # -- faults ------------------------------------------------------------------------------------

    def kill_broker(self, name: str | None = None) -> None:
        """Kill a broker; its clients lose their connections. Without a name the first.

        A process gets SIGKILL. With `in_process` the broker stops abruptly, without a flush, but
        never in the middle of a write. What was acknowledged is on its disk again after
        `restart_broker`. Killing a broker that is down does nothing.
        """
        self._live().kill(self._known(name))

    def restart_broker(self, name: str | None = None) -> None:
        """Start a broker that was killed, at the same addresses and with its data.

        One that runs is stopped cleanly before. Returns when clients can use it. Without a name the
        first.
        """
        known = self._known(name)
        self._live().restart(known)
        self._await_brokers((known,))

    def pause_broker(self, name: str | None = None) -> None:
        """Suspend a broker's process (SIGSTOP), until `resume_broker`. Without a name the first.

        Connections stay open and the kernel accepts new ones, but nothing is answered, as on a
        machine that swaps. Raises ConfigError with `in_process`.
        """
        self._live().pause(self._known(name))

    def resume_broker(self, name: str | None = None) -> None:
        """Let a broker run again that was paused or slowed; others are left alone."""
        self._live().resume(self._known(name))

    def slow_broker(
        self, name: str | None = None, *, pause_ms: Positive = 200, run_ms: Positive = 20
    ) -> None:
        """Suspend a broker's process for `pause_ms`, let it run for `run_ms`, and so on.

        So a request waits up to `pause_ms`, or half of it on average, if the broker can answer all
        that comes within `run_ms`; everything else of the broker, such as its timers, is as late.
        Ends with `resume_broker`. Without a name the first. Raises ConfigError with `in_process`.
        """
        self._live().slow(self._known(name), pause_ms, run_ms)

    def _known(self, name: str | None) -> str:
        if name is None:
            return self._names[0]
        if name not in self._names:
            raise unknown("broker", name, self._names)
        return name

    def _live(self) -> ServerProcesses | InProcessServers:
        if self._servers is None:
            wrong = "was stopped" if self._is_over else "is not running; use `with` or start()"
            raise ClosedError(f"the Server {wrong}")
        return self._servers


def _text(value: SettingValue) -> str:
    """Format a setting's value as `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ",".join(value)
