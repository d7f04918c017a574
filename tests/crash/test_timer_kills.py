"""Delayed messages while the broker is killed: none is lost, none comes early, few come twice.

`python -m tests.crash.test_timer_kills KILLS [SEED]` kills as often as it is told, and prints what came of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.crash.conftest import (
    SECONDS_MAX,
    STEELYARD,
    Broker,
    Notes,
    Publisher,
    Queue,
    Reader,
    ready,
)

from steelyard.nodes.broker.timers.timers import BATCH_MAX
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

pytestmark = pytest.mark.timeout(400)

KILLS = 8
SEED = 20261126
QUEUES = 3
DELAY_MS_MAX = 3_000


class Delaying(Publisher):
    """Sends single messages, each with a delay of its own."""

    def _request(self) -> Command:
        self._opaque += 1
        rng = self._rng
        body = b"%s/%d" % (self.name.encode(), self._opaque)
        queue = ("delayed", rng.randrange(QUEUES))
        self._waiting[self._opaque] = (queue, [body])
        self._notes.note_sent(queue, [body])
        delay_ms = rng.randrange(1, DELAY_MS_MAX)
        header = headers.SendMessageRequestHeaderV2(
            producer_group="publishers",
            topic="delayed",
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue[1],
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties=f"UNIQ_KEY\x01{body.decode()}\x02TIMER_DELAY_MS\x01{delay_ms}\x02",
        )
        code = RequestCode.SEND_MESSAGE_V2
        return Command(code, self._opaque, ext=headers.write(header), body=body)


class DelayedNotes(Notes):
    """Acknowledged offsets are those of the waiting messages, which are not to be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[bytes] = set()
        self._noting = threading.Lock()

    def note_acknowledged(self, queue: Queue, first: int, bodies: list[bytes]) -> None:
        with self._noting:
            self.kept.update(bodies)
            self.count += len(bodies)
            if self.count >= self._kill_at and self._broker is not None:
                self._broker.kill()


def storm(broker: Broker, kills: int, seed: int) -> dict[str, int]:
    """Kill a broker while messages wait, are sent and become due; compare what has come."""
    notes = DelayedNotes()
    for kill in range(kills):
        rng = Random(f"{seed} {kill}")
        broker.start()
        notes.arm(broker, rng.randrange(1, 600))
        publishers = [
            Delaying(broker, notes, f"{kill}-{number}", "single", 4, Random(rng.random()))
            for number in range(rng.randrange(1, 4))
        ]
        for publisher in publishers:
            publisher.start()
        for publisher in publishers:
            publisher.join(SECONDS_MAX)
            assert not publisher.is_alive(), f"{publisher.name} hangs"
            assert publisher.failure is None, f"{publisher.name}: {publisher.failure}"
        assert broker.wait() == -9
    broker.start()
    came = await_all(broker, notes)
    assert broker.stop() == 0
    return figures(notes, came, kills)


def await_all(broker: Broker, notes: DelayedNotes) -> list[tuple[bytes, int]]:
    """Read until everything acknowledged has come: (body, ms before its time) of each."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        reader = Reader(broker, notes)
        came = []
        for queue_id in range(QUEUES):
            for view in reader.messages(("delayed", queue_id), 0):
                asked = int(view.property_of("TIMER_ENQUEUE_MS") or 0) + int(
                    view.property_of("TIMER_DELAY_MS") or 0
                )
                came.append((bytes(view.body), asked - view.store_timestamp))
        reader.close()
        if notes.kept <= {body for body, _ in came} or time.monotonic() > deadline:
            return came
        time.sleep(1)


def figures(notes: DelayedNotes, came: list[tuple[bytes, int]], kills: int) -> dict[str, int]:
    counts = Counter(body for body, _ in came)
    return {
        "kills": kills,
        "acknowledged": len(notes.kept),
        "lost": len(notes.kept - counts.keys()),
        "never sent": len(counts.keys() - notes.sent.keys()),
        "early": sum(early_ms > 0 for _, early_ms in came),
        "twice": sum(count > 1 for count in counts.values()),
        "more often": sum(count > 2 for count in counts.values()),
    }


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_delayed_messages_survive_kills(tmp_path: Path, nameserver: str, flush: str) -> None:
    found = storm(Broker(tmp_path / flush, nameserver, flush), KILLS, SEED)
    assert found["acknowledged"] > 50 * KILLS
    assert (found["lost"], found["never sent"], found["early"]) == (0, 0, 0), found
    assert found["twice"] <= BATCH_MAX * KILLS


def main(kills: int, seed: int = SEED) -> None:
    command = [str(STEELYARD), "nameserver", "--port", "0", "--json"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
    ):
        broker = Broker(Path(folder), ready(process)["nameserver"], "async")
        try:
            print(json.dumps(storm(broker, kills, seed)))
        finally:
            broker.kill()
            process.terminate()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
