"""What the fixture `steelyard_faults` can do to servers, and undoes at the end of a test."""

from __future__ import annotations

from steelyard.embedded.attached import AttachedServer
from steelyard.embedded.server import Server
from steelyard.errors import ConfigError


class ServerFaults:
    """Faults of brokers and groups; `undo` ends those that last."""

    def __init__(self, server: AttachedServer) -> None:
        self._server = server
        self._killed: set[str] = set()
        self._late: set[str] = set()
        """Brokers that were paused or slowed."""

    def kill(self, broker: str | None = None) -> None:
        """Kill a broker as `Server.kill_broker` does; it is restarted after the test."""
        server = self._own()
        server.kill_broker(broker)
        self._killed.add(broker or server.brokers[0])

    def restart(self, broker: str | None = None) -> None:
        """Start a killed broker again before the test ends."""
        server = self._own()
        server.restart_broker(broker)
        self._killed.discard(broker or server.brokers[0])

    def pause(self, broker: str | None = None) -> None:
        """Suspend a broker as `Server.pause_broker` does; it is resumed after the test."""
        server = self._own()
        server.pause_broker(broker)
        self._late.add(broker or server.brokers[0])

    def slow(self, broker: str | None = None, *, pause_ms: int = 200, run_ms: int = 20) -> None:
        """Slow a broker as `Server.slow_broker` does; it is resumed after the test."""
        server = self._own()
        server.slow_broker(broker, pause_ms=pause_ms, run_ms=run_ms)
        self._late.add(broker or server.brokers[0])

    def resume(self, broker: str | None = None) -> None:
        """Resume a broker before the test ends."""
        server = self._own()
        server.resume_broker(broker)
        self._late.discard(broker or server.brokers[0])

    def lose_member(self, group: str, member: str | None = None) -> str:
        """Make a Kafka group lose a member; see `Server.lose_member`."""
        return self._server.lose_member(group, member)

    def force_rebalance(self, group: str) -> None:
        """Make a group rebalance; see `Server.force_rebalance`."""
        self._server.force_rebalance(group)

    def undo(self) -> None:
        """Resume and restart all brokers that are still paused, slowed or down."""
        if not self._late and not self._killed:
            return
        server = self._own()
        for broker in sorted(self._late - self._killed):
            server.resume_broker(broker)
        for broker in sorted(self._killed):
            server.restart_broker(broker)
        self._late.clear()
        self._killed.clear()

    def _own(self) -> Server:
        if isinstance(self._server, Server):
            return self._server
        raise ConfigError(
            "faults of brokers need a server of the worker's own, because others use this one;"
            " run pytest with --steelyard-server=worker"
        )
