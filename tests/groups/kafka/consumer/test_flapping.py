"""Members of KIP-848 groups that join and go again and again: in the group at once, with a share that waits."""

from __future__ import annotations

from tests.groups.kafka.consumer.conftest import GROUP, Rig, World, assigned, of

from steelyard.groups.flapping import DELAY_MS_MIN, FLAPS_MIN

EVERYTHING = of("t", 0, 1, 2, 3)


def looped(flaps: int = FLAPS_MIN, **settings: int) -> Rig:
    """A group of another client, m1, in which members of a client that crashes came and went."""
    rig = Rig(World(t=4, u=1), **{"group_flapping_delay_max_ms": 20_000} | settings)
    rig.join("m1", rack_id="r")
    rig.asker = rig.asker_of("loop")
    for number in range(flaps):
        rig.join(f"l{number}")
        rig.pass_time(10)
        rig.beat(f"l{number}", -1)
    rig.asker = rig.asker_of("app")
    rig.beat("m1", 1, EVERYTHING)
    rig.asker = rig.asker_of("loop")
    return rig


def test_share_of_a_member_that_flaps_waits() -> None:
    rig = looped()
    epoch = rig.group.epoch
    answer = rig.join("back")
    assert (answer.member_epoch, assigned(answer)) == (epoch, set())
    assert rig.group.damped_names == {"loop/10.0.0.1": rig.now + DELAY_MS_MIN}
    assert (rig.group.epoch, rig.group.state) == (epoch, "Stable")
    rig.pass_time(DELAY_MS_MIN - 1)
    assert rig.group.epoch == epoch
    rig.pass_time(1)
    assert rig.group.epoch == epoch + 1
    assert rig.last_cause.trigger == "joined"
    rig.beat("back", epoch)
    assert len(rig.group.target("back")) == 2


def test_member_that_goes_again_before_disturbs_nobody() -> None:
    rig = looped()
    epoch = rig.group.epoch
    rig.join("back")
    rig.beat("back", -1)
    rig.pass_time(DELAY_MS_MIN)
    assert (rig.group.epoch, rig.group.member_ids()) == (epoch, ("m1",))


def test_rebalance_of_others_leaves_it_out() -> None:
    rig = looped()
    rig.join("back")
    rig.asker = rig.asker_of("app")
    rig.join("m2")
    assert len(rig.group.target("m2")) == 2
    assert not rig.group.target("back")
    assert "back" in rig.group.damped


def test_last_of_the_others_that_goes_ends_the_wait() -> None:
    rig = looped()
    rig.join("back")
    rig.beat("m1", -1)
    epoch = rig.group.epoch
    assert assigned(rig.beat("back", epoch - 1)) == EVERYTHING
    assert not rig.group.damped


def test_topic_that_nobody_else_reads_does_not_wait() -> None:
    rig = looped()
    rig.join("back", topics=("t", "u"))
    assert not rig.group.damped
    rig.beat("back", -1)
    rig.join("again")
    assert rig.group.damped
    rig.asker = rig.asker_of("app")
    rig.beat("again", rig.group.epoch, subscribed_topic_names=["u"])
    assert not rig.group.damped
    assert rig.group.target("again") == of("u", 0)


def test_share_that_waits_at_a_restart_waits_no_longer() -> None:
    rig = looped()
    rig.join("back")
    rig.restart()
    rig.beat("m1", rig.group.member("m1").epoch)  # type: ignore[union-attr]
    assert len(rig.group.target("back")) == 2


def test_static_member_that_returns_from_a_wait_has_its_share() -> None:
    rig = looped(0)
    for number in range(FLAPS_MIN):
        rig.join(f"l{number}", instance_id="i")
        rig.beat(f"l{number}", -1, instance_id="i")
    rig.join("first", instance_id="i")
    assert rig.group.damped_names.keys() == {"i (static)"}
    rig.beat("first", -2, instance_id="i")
    rig.join("second", instance_id="i")
    assert not rig.group.damped
    assert len(rig.group.target("second")) == 2


def test_members_are_not_delayed_by_default() -> None:
    rig = looped(group_flapping_delay_max_ms=0)
    rig.join("back")
    assert len(rig.group.target("back")) == 2
    assert [one.flaps for one in rig.coordinator.flapping.of_group(GROUP, rig.now)] == [FLAPS_MIN]
