"""What operators are told of streams groups."""

from __future__ import annotations

from tests.groups.kafka.streams.conftest import INTERNAL, Rig

from steelyard.groups.kafka.streams.report import report_streams


def test_a_group_that_waits_for_a_member() -> None:
    rig = Rig()
    first, _ = rig.join("a.1"), rig.join("b.1")
    lagging = report_streams(rig.group, "broker-a")
    assert [(one.member_id, one.what) for one in lagging.awaited] == [("a.1", "Heartbeat")]
    began = rig.now
    rig.wait(100)
    first.beat()
    told = report_streams(rig.group, "broker-a")
    assert (told.kind, told.state, told.assignor, told.generation) == (
        "streams",
        "Reconciling",
        "sticky",
        3,
    )
    (awaited,) = told.awaited
    assert awaited.what.startswith("to give up tasks 0_")
    assert (awaited.since, awaited.until) == (began, rig.now + 10_000)
    one, two = told.members
    assert {place.topic for place in one.partitions} == {"in", INTERNAL[0]}
    assert (len(one.partitions), two.partitions) == (4, ())
    assert [rebalance.trigger for rebalance in told.rebalances] == ["joined", "joined"]
    rig.settle()
    assert report_streams(rig.group, "broker-a").awaited == ()
