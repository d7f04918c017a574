"""A Kafka consumer among hostile brokers: its requests are answered as a sound broker would, but for a few bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from tests.fuzz import garbage
from tests.nodes.consumer.kafka.rig import T0, T1, Rig

from steelyard.errors import KafkaError, SteelyardError
from steelyard.nodes.consumer.kafka import contract
from steelyard.nodes.seam import Call
from steelyard.wire.kafka.messages.logs import LATEST

SEEDS = range(int(os.environ.get("FUZZ_SEEDS", "4")))
HUGE = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\0\x01\0\0",
)
"""Counts and sizes that are too large, or negative."""


def spoiler(rng: Random, chance: float) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        if rng.random() >= chance:
            return data
        match rng.randrange(5):
            case 0:
                return garbage.mutated(rng, data)  # its correlation id, too
            case 1:
                return data[:4] + garbage.mutated(rng, data[4:])
            case 2:
                return data[: 4 + rng.randrange(len(data) - 3)]
            case 3:
                place = rng.randrange(4, len(data) + 1)
                huge = rng.choice(HUGE)
                return data[:place] + huge + data[place + len(huge) :]
        result = bytearray(data)
        result[rng.randrange(4, len(data))] ^= 1 << rng.randrange(8)
        return bytes(result)

    return spoil


def calls(rng: Random) -> Call[object]:
    return rng.choice(
        (
            contract.Commit(),
            contract.FetchCommitted((T0, T1)),
            contract.Position(T0),
            contract.Seek(T0, 1),
            contract.SeekToEnd((T1,), LATEST),
            contract.ListOffsets({T0: -1}),
            contract.PartitionsFor("t"),
            contract.Assignment(),
            contract.Describe(),
            contract.Pause((T0,)),
            contract.Resume((T0,)),
        )
    )


def polled(rig: Rig, timeout_ms: int) -> list[bytes | None]:
    try:
        return rig.poll(timeout_ms)
    except SteelyardError:
        rig.pass_time(timeout_ms)
        return []


@pytest.mark.parametrize("seed", SEEDS)
def test_consumer_of_a_group(seed: int) -> None:
    rng = Random(seed)
    rig = Rig()
    rig.ask(contract.Subscribe(("t",)))
    for step in range(60):
        partition = rng.choice((T0, T1))
        rig.cluster.fill(partition, b"%d" % step, b"%d" % step)
        rig.spoil = None if step % 6 == 0 else spoiler(rng, 0.2)
        polled(rig, 500)
        rig.ask(calls(rng))
        if rng.random() < 0.1:
            rig.cut(rng.choice((1, 2)))
    # The brokers are sound again: every call ends, and the consumer reads again, from wherever it is told to.
    rig.spoil = None
    for node in (
        1,
        2,
    ):  # what a broker said of its versions is believed as long as the connection lasts
        rig.cut(node)
    for _ in range(90):
        polled(rig, 1_000)
    if isinstance(rig.node._membership.failed, KafkaError):
        # The coordinator refused the member for good, in words that no sound one has: each poll said so.
        with pytest.raises(KafkaError, match="group g"):
            rig.poll(1_000)
        rig.ask(contract.Subscribe(()))
        rig.pass_time(1_000)
        rig.ask(contract.Subscribe(("t",)))
        for _ in range(90):
            polled(rig, 1_000)
    assert rig.result(contract.Assignment()) == (T0, T1)
    rig.ask(contract.Resume((T0, T1)))
    for partition in (T0, T1):
        rig.ask(contract.Seek(partition, 0))
    read = Counter(value for _ in range(40) for value in polled(rig, 1_000))
    wanted = Counter(b"%d" % step for step in range(60) for _ in range(2))
    assert read == wanted
    number = rig.ask(contract.Stop())
    rig.pass_time(120_000)
    assert number in rig.answers
    assert len(rig.answers) == number, "a call was never answered"
