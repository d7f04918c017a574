"""Brokers that answer with anything at all: nothing breaks, nothing spins, and all goes on once they are sound again."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.consumer.kafka.rig import T0, Rig

from steelyard.errors import SteelyardError
from steelyard.nodes.consumer.kafka import contract
from steelyard.wire.kafka import schema
from steelyard.wire.kafka.apis import APIS

NAMES = (
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "OffsetFetch",
    "ListOffsets",
    "Fetch",
    "OffsetCommit",
)

REQUESTS_MAX = 2_000
"""What five seconds of nonsense may cost: nobody is asked without a pause."""


def polls(rig: Rig, seconds: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    for _ in range(seconds):
        try:
            found += rig.poll(1_000)
        except SteelyardError:
            rig.pass_time(1_000)
    return found


@settings(max_examples=examples(150))
@given(st.sampled_from(NAMES), st.binary(max_size=40))
def test_random_bytes(name: str, garbage: bytes) -> None:
    rig = Rig()
    rig.cluster.fill(T0, b"1")
    rig.nonsense[name] = garbage
    rig.ask(contract.Subscribe(("t",)))
    polls(rig, 5)
    assert len(rig.cluster.asked) < REQUESTS_MAX
    rig.nonsense.clear()
    rig.ask(contract.Describe())


@settings(max_examples=examples(60))
@given(st.sampled_from(NAMES))
def test_empty_answers(name: str) -> None:
    """A message of defaults in place of an answer: no brokers, no partitions, no member id."""
    rig = Rig()
    rig.cluster.fill(T0, b"1")
    api = next(api for api in APIS.values() if api.name == name)
    script = getattr(rig.cluster, f"_{name.lower()}")
    setattr(rig.cluster, f"_{name.lower()}", lambda request: api.response())
    rig.ask(contract.Subscribe(("t",)))
    found = polls(rig, 5)
    assert len(rig.cluster.asked) < REQUESTS_MAX
    setattr(rig.cluster, f"_{name.lower()}", script)
    rig.cut(1)
    rig.cut(2)
    found += polls(rig, 45)
    if name not in ("ApiVersions", "JoinGroup", "SyncGroup"):  # an empty answer counts, there
        assert found == [b"1"]


def test_every_response_has_defaults() -> None:
    """So that the test above does what it says."""
    for api in APIS.values():
        if api.name in NAMES:
            message = api.response()
            assert isinstance(message, msgspec.Struct)
            assert schema.write(message, api.versions[1], flexible=api.is_flexible(api.versions[1]))
