"""Defects planted in share groups, which the simulator must find."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.sim.planted import run

from steelyard.groups.kafka.share.groups import ShareGroups
from steelyard.nodes.broker.kafka.shares import in_flight, share_partition, stored
from steelyard.nodes.broker.kafka.shares.fetch import ShareFetches
from steelyard.nodes.broker.kafka.shares.in_flight import InFlight, RecordState
from steelyard.nodes.broker.kafka.shares.sessions import ShareSessions
from steelyard.nodes.broker.kafka.shares.share_partition import SharePartition
from steelyard.sim.kafka.shares import leaders
from steelyard.sim.scenario import Fault, Scenario
from steelyard.wire.kafka.errors import ErrorCode

CALM = Scenario(
    seed=3,
    members=1,
    queues=2,
    messages=40,
    process_ms_max=100,
    share_members=3,
    share_lock_ms=3_000,
    share_release_of_100=20,
    kafka_session_timeout_ms=6_000,
    settle_ms=40_000,
)
KILLED = replace(
    CALM, faults=(Fault(kind="kill_broker", target="broker-a", at_ms=7_000, for_ms=500),)
)
RESTARTED = replace(
    CALM, faults=(Fault(kind="restart_broker", target="broker-a", at_ms=7_000, for_ms=500),)
)
DEAD = replace(CALM, faults=(Fault(kind="kill_member", target="share-0", at_ms=6_000),))
CUT_OFF = replace(
    CALM, faults=(Fault(kind="partition", target="share-1", at_ms=6_000, for_ms=9_000),)
)
SLOW = replace(CALM, share_slow_of_100=20, share_lock_ms=1_000, share_renewals=True)
"""Applications that take longer than their locks, which they renew."""
LIMITED = replace(CALM, share_release_of_100=80, share_deliveries_max=2)
SOUND = {
    "calm": CALM,
    "killed": KILLED,
    "restarted": RESTARTED,
    "dead": DEAD,
    "cut off": CUT_OFF,
    "slow": SLOW,
    "limited": LIMITED,
}


def failure(*scenarios: Scenario) -> str:
    """The first failure of these scenarios, each with a few seeds."""
    for scenario in scenarios:
        for seed in range(3, 7):
            found = run(replace(scenario, seed=seed)).failure
            if found is not None:
                return found
    raise AssertionError("the defect is not found")


@pytest.mark.parametrize("name", SOUND)
def test_sound_brokers(name: str) -> None:
    outcome = run(SOUND[name])
    assert outcome.failure is None
    counts = outcome.counts
    assert counts["share_deliveries"] >= counts["acknowledged"] > 0
    assert counts["share_redeliveries"] > 0
    assert (counts["share_renewed"] > 0) == SOUND[name].share_renewals


def test_a_record_that_is_given_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is acquired stays available to others."""

    def not_locked(first: int, last: int, member: str, locked_until: int) -> InFlight:
        return InFlight(first, last, RecordState.AVAILABLE, 1, batch_size=last - first + 1)

    monkeypatch.setattr(share_partition, "fetched", not_locked)
    assert " more" in failure(CALM)


def test_a_lock_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_early(first: int, last: int, member: str, locked_until: int) -> InFlight:
        return in_flight.fetched(first, last, member, locked_until - 2_000)

    monkeypatch.setattr(share_partition, "fetched", too_early)
    assert " more" in failure(replace(CALM, share_slow_of_100=20))


def test_a_renewal_that_renews_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "renewed", lambda self, locked_until: self)
    assert " more" in failure(SLOW)


def test_acknowledgements_that_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted record comes again after a restart."""
    monkeypatch.setattr(stored.SharePartitions, "store", lambda self, keys: None)
    assert "which is finished" in failure(RESTARTED)


def test_released_records_that_are_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartition, "next_offset", lambda self: self.end)
    assert "the share group has not finished" in failure(CALM)


def test_a_limit_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = InFlight.ended
    monkeypatch.setattr(
        InFlight, "ended", lambda self, event, deliveries_max: ended(self, event, 1_000)
    )
    assert "for the 3th time" in failure(LIMITED)


def test_records_that_are_archived_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = InFlight.ended
    monkeypatch.setattr(
        InFlight,
        "ended",
        lambda self, event, deliveries_max: ended(self, event, deliveries_max - 1),
    )
    assert "the share group has not finished" in failure(replace(LIMITED, share_deliveries_max=3))


def test_deliveries_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = InFlight.ended

    def forgotten(self: InFlight, event: in_flight.RecordEvent, deliveries_max: int) -> InFlight:
        return replace(ended(self, event, deliveries_max), count=0)

    monkeypatch.setattr(InFlight, "ended", forgotten)
    assert "for the 1th time, after" in failure(CALM)


def test_a_restart_that_forgets_how_often_records_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncounted(run: InFlight) -> stored.StoredRun:
        state = RecordState.AVAILABLE if run.state is RecordState.ACQUIRED else run.state
        return stored.StoredRun(run.first, run.last, state, 0)

    monkeypatch.setattr(stored, "_stored", uncounted)
    assert "for the 1th time, after" in failure(
        replace(KILLED, share_release_of_100=80, share_deliveries_max=25)
    )


def test_a_member_that_died_and_keeps_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its connection's end nor the time gives them to others."""
    monkeypatch.setattr(ShareFetches, "closed", lambda self, link, now, effects: None)
    monkeypatch.setattr(stored.SharePartitions, "locked", lambda self, key: None)
    monkeypatch.setattr(stored.SharePartitions, "check", lambda self: None)
    assert "the share group has not finished" in failure(DEAD)


def test_epochs_of_sessions_that_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: ShareSessions, key: tuple[str, str], epoch: int) -> ErrorCode:
        return ErrorCode.NONE if self.get(key) else ErrorCode.SHARE_SESSION_NOT_FOUND

    monkeypatch.setattr(ShareSessions, "fault", careless)
    assert "answered with error 0" in failure(CALM)


def test_a_member_that_may_acknowledge_what_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow application accepts what somebody else has by now."""
    acknowledge = SharePartition.acknowledge

    def careless(self: SharePartition, member: str, batches: object, *rest: object) -> None:
        others = {run.member for run in self.runs}
        for one in [member, *sorted(others - {member, ""})]:
            try:
                return acknowledge(self, one, batches, *rest)  # type: ignore[arg-type]
            except share_partition.AcknowledgementRefused as refusal:
                last = refusal
        raise last

    monkeypatch.setattr(SharePartition, "acknowledge", careless)
    scenario = replace(SLOW, share_renewals=False, share_slow_of_100=90, share_deliveries_max=25)
    assert ", after share-" in failure(scenario)


def test_sessions_of_members_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that has died keeps its partitions."""
    pair = replace(DEAD, share_members=2, queues=4)
    assert run(pair).failure is None
    monkeypatch.setattr(ShareGroups, "due", lambda self, now, effects: None)
    monkeypatch.setattr(ShareGroups, "next_at", None)
    assert "the share group" in failure(pair)


def test_a_session_that_loses_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later fetch does not add the partitions that it names."""
    update = ShareSessions.update

    def forgetful(self: ShareSessions, session: object, added: object, gone: object) -> None:
        update(self, session, (), gone)  # type: ignore[arg-type]

    monkeypatch.setattr(ShareSessions, "update", forgetful)
    monkeypatch.setattr(leaders, "PROBE_EVERY", 1_000_000)  # no session begins anew
    grown = replace(
        CALM, interval_ms=1_000, faults=(Fault(kind="grow_topics", at_ms=6_000, count=2),)
    )
    assert "did not reach the share group" in failure(grown)
