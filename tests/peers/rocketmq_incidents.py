"""Incidents injected into a push consumer group of Apache RocketMQ, with what its listeners saw.

Each member has a process of its own, whose client writes its log as users' do. A producer sends a
message to each queue every PACE_S.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.incident.truth import Truth
from tests.peers import apache
from tests.peers.apache import Cluster, Peer
from tests.waiting import until

PACE_S = 0.5
SETTLE_S = 4.0
QUEUES = 4
GROUP = TOPIC = "incident"

JOINED, LEFT, CLOSED = "joined", "left (unregistered)", "left (closed)"


class Incidents:
    """A group under test, and the incidents so far.

    A client that was loaded together with mqadmin logs to that one's file.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.members: dict[str, Peer] = {}
        self.done: list[Truth] = []
        self._all: dict[str, Peer] = {}
        self._sender = self._peer("sender")
        options = {"nameserver": cluster.nameserver}
        self._sender.mqadmin(
            *("updateTopic", "-n", options["nameserver"], "-b", cluster.broker, "-t", TOPIC),
            *("-r", QUEUES, "-w", QUEUES),
        )
        self._sender.ask("producer", "p", cluster.nameserver, "senders")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _peer(self, name: str) -> Peer:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return Peer(apache.NEW, folder)

    def _send(self) -> None:
        first = 0
        while not self._stop.wait(PACE_S):
            self._sender.ask("send", "p", TOPIC, "m", first, QUEUES, 10)
            first += QUEUES

    def join(self, name: str) -> None:
        peer = self._all[name] = self._peer(name)
        self._inject(JOINED, lambda: self._join(name, peer))

    def _join(self, name: str, peer: Peer) -> None:
        peer.ask("consumer", name, self.cluster.nameserver, GROUP, TOPIC, "*")
        self.members[name] = peer

    def leave(self, name: str) -> None:
        self._inject(LEFT, lambda: self.members.pop(name).ask("stop", name))

    def kill(self, name: str) -> None:
        def kill() -> None:
            process = self.members.pop(name).process
            process.kill()
            process.wait()

        self._inject(CLOSED, kill)

    def _inject(self, trigger: str, act: Callable[[], Any]) -> None:
        before, owners = frozenset(self.members), self._owners()
        at = time.time()
        act()
        until(self._is_shared, f"{sorted(self.members)} share {QUEUES} queues")
        began = time.time()
        until(lambda: self._all_read(began), "all queues are read again")
        time.sleep(SETTLE_S)
        pauses = {
            f"{TOPIC}-{queue}": self._pause_ms(queue, owner, at)
            for queue, owner in self._owners().items()
            if owners and owners.get(queue) != owner
        }
        after = frozenset(self.members)
        self.done.append(Truth(trigger, int(at * 1000), before, after, pauses))

    def _owners(self) -> dict[int, str]:
        return {
            queue: name
            for name, peer in self.members.items()
            for _, queue in peer.held(name, TOPIC)
        }

    def _is_shared(self) -> bool:
        held = [queue for name, peer in self.members.items() for _, queue in peer.held(name, TOPIC)]
        shares = [len(peer.held(name, TOPIC)) for name, peer in self.members.items()]
        return sorted(held) == list(range(QUEUES)) and max(shares) - min(shares) <= 1

    def _all_read(self, since: float) -> bool:
        seen = {
            event["queue"]
            for name, peer in self.members.items()
            for event in peer.received(name)
            if event["at"] > since
        }
        return seen >= set(range(QUEUES))

    def _pause_ms(self, queue: int, owner: str, since: float) -> int:
        """From the last message at anybody before to the new owner's first, after the incident began."""
        mine = [e["at"] for e in self._all[owner].received(owner) if e["queue"] == queue]
        first = min(at for at in mine if at > since)
        earlier = [
            event["at"]
            for name, peer in self._all.items()
            for event in peer.received(name)
            if event["queue"] == queue and event["at"] < first
        ]
        return int((first - max(earlier)) * 1000)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        for peer in (self._sender, *self._all.values()):
            peer.close()

    def copy_logs(self, target: Path) -> None:
        """Copy the logs of clients and broker, as somebody does who collects them."""
        for path in self.folder.rglob("*.log"):
            if path.name in ("tools_default.log", "broker.log"):
                name = "-".join(path.relative_to(self.folder).parts)
                shutil.copy(path, target / name)


def six_incidents(incidents: Incidents) -> None:
    """Joins, a leave, a kill."""
    incidents.join("one")
    incidents.join("two")
    incidents.join("three")
    incidents.leave("two")
    incidents.kill("three")
    incidents.join("four")


@contextmanager
def injected(folder: Path, inject: Callable[[Incidents], None]) -> Iterator[Incidents]:
    """A broker with a group to which all of that has happened. Raises Missing."""
    apache.prepare(apache.NEW)
    apache.prepare_servers(apache.NEW_SERVER)
    cluster = Cluster(folder / "cluster", apache.NEW_SERVER)
    try:
        cluster.start().wait_ready()
        incidents = Incidents(cluster, folder)
        try:
            inject(incidents)
            yield incidents
        finally:
            incidents.close()
    finally:
        cluster.stop()


if __name__ == "__main__":  # records what the unit tests read
    import sys

    import msgspec

    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    with injected(target / "run", six_incidents) as found:
        (target / "logs").mkdir()
        found.copy_logs(target / "logs")
        (target / "truth.json").write_bytes(msgspec.json.format(msgspec.json.encode(found.done)))
