"""A nameserver and brokers in processes of their own, which end with the process that started them.

One thread for each process reads its output, so that the caller only waits for states. No signal
handlers are installed, and none of these processes gets the terminal's Ctrl-C.
"""

from __future__ import annotations

import selectors
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from steelyard.errors import ConfigError, SteelyardError
from steelyard.servers.children import Child, how_it_ended
from steelyard.servers.deployment import Deployment, Placement

START_SECONDS = 60.0
"""Time for servers to be ready; a quiet machine needs half a second."""

STOP_SECONDS = 15.0
"""Time for servers to stop before they are killed."""


class ServerProcesses:
    """The processes of one deployment. Call `start`, and `stop` in any case.

    `options`, `nameserver_options`: of their commands; `log`: the file that gets their standard
    error. Methods may be called from any thread, and raise SteelyardError for a process that cannot
    do what is asked.
    """

    def __init__(
        self,
        layout: Deployment,
        log: Path,
        options: Sequence[str] = (),
        nameserver_options: Sequence[str] = (),
    ) -> None:
        self._changed = threading.Condition()
        self._exit_codes: dict[str, int] = {}
        self._slowing: dict[str, _Slowing] = {}
        self._log = log.open("ab", buffering=0)
        try:
            write: Callable[[bytes], object] = self._log.write
            self._placement = Placement(layout, write, options, nameserver_options)  # type: ignore[arg-type]
        except BaseException:
            self._log.close()
            raise
        self.nameserver = self._placement.address
        self.names = tuple(self._placement.brokers)

    @property
    def kafka(self) -> str:
        """The Kafka addresses of all brokers, joined by commas; of those that were ready once."""
        return self._placement.kafka

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes together, and wait until clients can use them."""
        self._start([self._placement.nameserver, *self._placement.brokers.values()])

    def stop(self, *, cleanly: bool = True) -> None:
        """Stop all processes and free their ports; without `cleanly` they are killed."""
        for name in self.names:
            self.resume(name)
        children = [*self._placement.brokers.values(), self._placement.nameserver]
        for child in children:
            self._end(child, cleanly=cleanly)
        self._placement.close()
        self._log.close()

    # -- one broker --------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        """Kill a broker's process (SIGKILL) and wait for its end."""
        self.resume(name)
        self._end(self._placement.brokers[name], cleanly=False)

    def restart(self, name: str) -> None:
        """Start a broker again at its addresses, stopping it cleanly before if it runs."""
        self.resume(name)
        child = self._placement.brokers[name]
        self._end(child, cleanly=True)
        self._start([child])

    def pause(self, name: str) -> None:
        """Suspend a broker's process (SIGSTOP): its connections stay open, but nothing answers."""
        self.resume(name)
        self._signal(name, signal.SIGSTOP)

    def slow(self, name: str, pause_ms: int, run_ms: int) -> None:
        """Suspend a broker's process for `pause_ms`, let it run for `run_ms`, and so on."""
        self.resume(name)
        self._slowing[name] = _Slowing(
            lambda number: self._signal(name, number), pause_ms / 1000, run_ms / 1000
        )

    def resume(self, name: str) -> None:
        """Let a broker run that was paused or slowed (SIGCONT); others are left alone."""
        slowing = self._slowing.pop(name, None)
        if slowing is not None:
            slowing.end()
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        with self._changed:
            self._placement.brokers[name].send_signal(number)

    # -- processes ---------------------------------------------------------------------------------

    def _start(self, children: Iterable[Child]) -> None:
        children = list(children)
        with self._changed:
            for child in children:
                try:
                    child.start()
                except OSError as error:
                    raise SteelyardError(
                        f"{child.name} cannot be started: {error.strerror}"
                    ) from None
                name = f"steelyard-{child.name}"
                threading.Thread(target=self._attend, args=(child,), name=name, daemon=True).start()
            self._changed.wait_for(
                lambda: (
                    all(child.address for child in children)
                    or not all(child.is_running for child in children)
                ),
                START_SECONDS,
            )
            # One that has failed is the reason why others are not ready yet.
            for child in sorted(children, key=lambda each: each.is_running and not each.error):
                self._check_ready(child)

    def _check_ready(self, child: Child) -> None:
        if child.error:
            raise ConfigError(f"{child.name}: {child.error}")
        words = f"; its last line: {child.last_words}" if child.last_words else ""
        if not child.is_running:
            code = self._exit_codes[child.name]
            how = f"{child.name} ended before it was ready ({how_it_ended(code)})"
            raise SteelyardError(how + words)
        if not child.address:
            how = f"{child.name} was not ready after {START_SECONDS:.0f} s"
            raise SteelyardError(how + words)

    def _end(self, child: Child, *, cleanly: bool) -> None:
        with self._changed:
            if cleanly:
                child.ask_to_stop()
                self._changed.wait_for(lambda: not child.is_running, STOP_SECONDS)
            child.kill()
            self._changed.wait_for(lambda: not child.is_running)

    def _attend(self, child: Child) -> None:
        """Read the output of a process until it has ended."""
        with selectors.DefaultSelector() as selector:
            for pipe in child.pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    with self._changed:
                        if not child.read(key.fd):
                            selector.unregister(key.fd)
                        self._changed.notify_all()
        code = child.wait()
        with self._changed:
            self._exit_codes[child.name] = code
            child.finish()
            self._changed.notify_all()


class _Slowing:
    """A thread that suspends and resumes a process in turn."""

    def __init__(
        self,
        send: Callable[[signal.Signals], None],
        pause_seconds: float,
        run_seconds: float,
    ) -> None:
        self._send = send
        self._pause_seconds, self._run_seconds = pause_seconds, run_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steelyard-slowing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._send(signal.SIGSTOP)
            self._ended.wait(self._pause_seconds)
            self._send(signal.SIGCONT)
            self._ended.wait(self._run_seconds)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
