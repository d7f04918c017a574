"""A broker is killed with SIGKILL while it is written to, and loses nothing that it acknowledged.

The moments are counted in acknowledgements and drawn from a seed: between single messages, inside and
between batches, while topics are made. The data directory grows over all kills.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.crash.conftest import SECONDS_MAX, Broker, Notes, Publisher, Queue, Reader

from steelyard.config import StoreConfig
from steelyard.driver.disk import LiveDisk
from steelyard.store.index import ROW_BYTES
from steelyard.store.store import Store

pytestmark = pytest.mark.timeout(400)  # half a minute on an idle machine

SEED = 20261121
KILLS = 15
KILLS_SYNC = 5

MIXES = (
    ("single", "single", "single", "single"),
    ("single", "batch", "creation", "single"),
    ("creation", "creation", "creation", "creation"),
    ("batch", "batch", "batch"),
    ("single",),
    ("creation", "single"),
)
"""The kinds of publishers of one round."""


@pytest.fixture
def brokers(tmp_path: Path, nameserver: str) -> Iterator[dict[str, Broker]]:
    """A broker for each way of flushing, not started; killed at the end if it still runs."""
    both = {flush: Broker(tmp_path / flush, nameserver, flush) for flush in ("async", "sync")}
    yield both
    for broker in both.values():
        broker.kill()


def publish_until_killed(broker: Broker, notes: Notes, name: str, rng: Random) -> None:
    """One round: publishers of a random mix, and the kill at a random acknowledgement."""
    mix = rng.choice(MIXES)
    notes.arm(broker, rng.randrange(1, 40 if "creation" in mix else 600))
    publishers = [
        Publisher(
            broker, notes, f"{name}-{number}", kind, rng.randrange(1, 9), Random(rng.random())
        )
        for number, kind in enumerate(mix)
    ]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join(SECONDS_MAX)
        assert not publisher.is_alive(), f"{publisher.name} hangs"
        assert publisher.failure is None, f"{publisher.name}: {publisher.failure}"
    assert broker.wait() == -9


def compare_all(broker: Broker, notes: Notes, ends: dict[Queue, int]) -> None:
    """Compare each queue that has something new from where `ends` says, and move that on."""
    reader = Reader(broker, notes)
    for queue, acknowledged in sorted(notes.acknowledged.items()):
        if max(acknowledged) >= ends.get(queue, 0):
            ends[queue] = reader.compare(queue, ends.get(queue, 0))
    reader.close()


def rows_written(data: Path) -> int:
    """Index rows that reached the files."""
    return sum(path.stat().st_size // ROW_BYTES for path in data.rglob("*.rows"))


def kill_and_compare(broker: Broker, kills: int, seed: int) -> Notes:
    notes = Notes()
    ends: dict[Queue, int] = {}
    behind = 0
    for kill in range(kills):
        broker.start()
        compare_all(broker, notes, ends)
        publish_until_killed(broker, notes, f"{kill}", Random(f"{seed} {kill}"))
        behind += rows_written(broker.data) < notes.count
    assert behind, "some kills come between a log write and the write of its index row"
    broker.start()
    compare_all(broker, notes, ends)
    compare_all(broker, notes, {})
    assert broker.stop() == 0
    return notes


def test_no_acknowledged_message_is_lost_over_many_kills(brokers: dict[str, Broker]) -> None:
    notes = kill_and_compare(brokers["async"], KILLS, SEED)
    assert notes.count > 50 * KILLS
    assert len({topic for topic, _ in notes.acknowledged}) > KILLS
    disk = LiveDisk(str(brokers["async"].data))
    recovery = Store(disk, StoreConfig()).open(1_700_000_000_000)
    disk.close()
    assert recovery.entries >= notes.count
    assert (recovery.repaired, recovery.unknown, recovery.bytes_cut) == ((), (), 0)


def test_nor_when_replies_wait_for_the_disk(brokers: dict[str, Broker]) -> None:
    notes = kill_and_compare(brokers["sync"], KILLS_SYNC, SEED + 1)
    assert notes.count > 10 * KILLS_SYNC


def test_the_log_alone_brings_back_what_no_index_has(brokers: dict[str, Broker]) -> None:
    """1 messages are acknowledged, 2 the kill comes before any index row is written, 3 all are there."""
    broker, notes = brokers["async"], Notes()
    broker.start()
    notes.arm(broker, 60)
    publisher = Publisher(broker, notes, "only", "single", 4, Random(SEED))
    publisher.start()
    publisher.join(SECONDS_MAX)
    assert broker.wait() == -9
    assert notes.count >= 60
    assert rows_written(broker.data) == 0
    broker.start()
    compare_all(broker, notes, {})
    broker.kill()
    broker.wait()


def test_a_torn_write_is_cut_and_what_was_acknowledged_before_it_stays(
    brokers: dict[str, Broker],
) -> None:
    """The kill is a power cut for the last write: a part of a record is at the end of each log."""
    broker, notes = brokers["async"], Notes()
    broker.start()
    publish_until_killed(broker, notes, "0", Random(f"{SEED} torn"))
    logs = [path for path in broker.data.rglob("orders/*/*.log") if path.stat().st_size]
    assert logs
    for path in logs:
        first = path.read_bytes()[:60]
        with path.open("ab") as file:
            file.write(first)
    broker.start()
    ends: dict[Queue, int] = {}
    compare_all(broker, notes, ends)
    publish_until_killed(broker, notes, "1", Random(f"{SEED} after"))
    broker.start()
    compare_all(broker, notes, ends)
    compare_all(broker, notes, {})
    assert broker.stop() == 0
