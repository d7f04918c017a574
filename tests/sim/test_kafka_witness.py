"""Each rule of a Kafka group, kept and broken."""

from __future__ import annotations

import pytest

from steelyard.sim.checkers import Witness
from steelyard.sim.kafka.witness import KafkaWitness, Seen
from steelyard.sim.world import Violation
from steelyard.types import Message, MessageQueue, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Q0, Q1 = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-a", 1)


def body(number: int) -> bytes:
    return b"%08d" % number


class Rig:
    """A witness of members `a` and `b`; messages 0 to 9 were sent."""

    def __init__(self, *, planned: bool = False, by_generations: bool = True) -> None:
        self.sent = Witness([])
        for number in range(10):
            self.sent.sent(number, Message("t", body(number)))
        self.witness = KafkaWitness(self.sent, planned=planned, by_generations=by_generations)
        self.dead: set[str] = set()
        for who in ("a", "b"):
            self.witness.joined(who, lambda who=who: who not in self.dead)  # type: ignore[misc]

    def has(self, who: str, generation: int, *partitions: TopicPartition) -> None:
        self.witness.synchronized(who, generation)
        self.witness.assigned(who, partitions)
        self.witness.asked(who, partitions)

    def reads(self, who: str, partition: TopicPartition, *offsets: int, ahead: int = 0) -> None:
        seen = [Seen(partition, offset, body(offset + ahead)) for offset in offsets]
        self.witness.delivered(who, seen)
        self.witness.done(seen)


def test_a_partition_goes_from_one_member_to_another() -> None:
    rig = Rig(planned=True)
    rig.has("a", 1, P0, P1)
    rig.reads("a", P0, 0, 1, 2)
    rig.witness.taken("a", [P0])
    rig.has("b", 2, P0)
    rig.reads("b", P0, 3, 4)
    rig.witness.committed(P0, 5, "b")
    assert (rig.witness.deliveries, rig.witness.duplicates, rig.witness.commits) == (5, 0, 1)


def test_within_one_generation_a_partition_has_one_owner() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    with pytest.raises(Violation, match="is given to b in generation 1, a has it in 1"):
        rig.has("b", 1, P0)


def test_a_generation_counts_whose_assignment_was_not_refused() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    rig.witness.heartbeats("a", 1)
    rig.witness.synchronized("a", 2)
    rig.witness.searches("a")  # the coordinator could not store it, and restarts with generation 1
    rig.has("b", 2, P0)
    rig.witness.searches("b")  # it has its assignment
    rig.witness.taken("a", [P0])
    with pytest.raises(Violation, match="is given to a in generation 2, b has it in 2"):
        rig.has("a", 2, P0)


def test_a_member_that_the_group_went_on_without_may_not_know_it_yet() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    rig.has("b", 2, P0)
    planned = Rig(planned=True)
    planned.has("a", 1, P0)
    with pytest.raises(Violation, match="is given to b"):
        planned.has("b", 2, P0)


def test_members_of_a_kip_848_group_are_in_epochs_of_their_own() -> None:
    """A partition of a member that the coordinator put out goes to another, in a higher epoch."""
    rig = Rig(by_generations=False)
    rig.witness.beats("a", 5, is_complete=True)
    rig.witness.assigned("a", [P0])
    rig.witness.beats("b", 5, is_complete=False)
    rig.witness.assigned("b", [P0])
    rig.witness.beats("b", 7, is_complete=False)
    rig.witness.beats("a", 5, is_complete=False)  # which is refused, or gets no answer
    rig.witness.beats("a", 5, is_complete=True)
    rig.witness.taken("a", [P0])
    rig.witness.beats("a", 0, is_complete=True)
    rig.witness.beats("a", 8, is_complete=False)
    rig.witness.beats("b", 8, is_complete=False)


def test_who_is_heard_in_a_kip_848_group_has_what_nobody_else_has() -> None:
    rig = Rig(by_generations=False)
    rig.witness.beats("a", 5, is_complete=True)
    rig.witness.assigned("a", [P0])
    rig.witness.beats("b", 7, is_complete=True)
    rig.witness.assigned("b", [P0])
    rig.witness.beats("a", 5, is_complete=False)
    with pytest.raises(Violation, match=r"a is heard in epoch 5: b has .* in epoch 7"):
        rig.witness.beats("a", 5, is_complete=False)


def test_the_dead_own_nothing() -> None:
    rig = Rig(planned=True)
    rig.has("a", 1, P0)
    rig.dead.add("a")
    rig.has("b", 1, P0)


def test_what_is_told_fits_what_was_told_before() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    with pytest.raises(Violation, match="twice"):
        rig.has("a", 2, P0)
    with pytest.raises(Violation, match="does not have it"):
        rig.witness.taken("a", [P1])


def test_records_come_of_owned_partitions_only() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    with pytest.raises(Violation, match="which it does not have"):
        rig.reads("b", P0, 0)


def test_an_owner_misses_nothing() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    with pytest.raises(Violation, match=r"begins at 1 of .*, 0 is not finished"):
        rig.reads("a", P0, 1)
    rig.reads("a", P0, 0, 1)
    with pytest.raises(Violation, match=r"gets 3 of .*, 2 is next"):
        rig.reads("a", P0, 3)


def test_a_new_owner_may_begin_before_where_the_last_one_was() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    rig.reads("a", P0, 0, 1)
    rig.witness.taken("a", [P0])
    rig.has("b", 2, P0)
    rig.reads("b", P0, 0, 1, 2)
    assert rig.witness.duplicates == 2
    assert rig.witness.first_duplicate == (P0, 0)


def test_what_comes_was_sent() -> None:
    rig = Rig()
    rig.has("a", 1, P0, P1)
    with pytest.raises(Violation, match="was never sent"):
        rig.reads("a", P0, 0, ahead=50)
    rig.sent.began(3)
    with pytest.raises(Violation, match="was not committed"):
        rig.reads("a", P1, 0, ahead=3)
    rig.has("b", 1, TopicPartition("other", 0))
    with pytest.raises(Violation, match="is not what was sent"):
        rig.reads("b", TopicPartition("other", 0), 0)


def test_a_position_holds_one_message_for_ever() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    rig.reads("a", P0, 0)
    rig.has("b", 2, P0)
    with pytest.raises(Violation, match="held message 0, now 5"):
        rig.reads("b", P0, 0, ahead=5)


def test_commits_stay_behind_what_is_finished() -> None:
    rig = Rig()
    rig.has("a", 1, P0)
    rig.witness.delivered("a", [Seen(P0, 0, body(0))])
    rig.witness.committed(P0, 0, "a")
    with pytest.raises(Violation, match=r"a commits 1 of .*, but 0 is not finished"):
        rig.witness.committed(P0, 1, "a")


def test_what_was_acknowledged_is_owed() -> None:
    rig = Rig()
    rig.sent.acknowledge(0, Q0, 0, 1)
    assert rig.witness.unfinished() == (
        "1 acknowledged messages did not reach the Kafka group, e.g. 0"
    )
    rig.has("a", 1, P0)
    rig.reads("a", P0, 0)
    assert rig.witness.unfinished() is None
    rig.witness.delivered("a", [Seen(P0, 1, body(1))])
    assert rig.witness.unfinished() == f"the Kafka group has not finished {P0}: 1 of 2"


def test_every_partition_is_one_queue() -> None:
    rig = Rig()
    rig.has("a", 1, P0, P1)
    rig.reads("a", P0, 0, 1)
    rig.reads("a", P1, 0, ahead=5)
    logs = {(Q0, 0): 5, (Q1, 0): 0, (Q1, 1): 1}
    rig.witness.compare(logs)
    with pytest.raises(Violation, match="is in no queue's log"):
        rig.witness.compare(logs | {(Q1, 1): 9})
    twins = Rig()
    twins.has("a", 1, P0, P1)
    twins.reads("a", P0, 0)
    twins.reads("a", P1, 0)
    with pytest.raises(Violation, match="are both"):
        twins.witness.compare({(Q0, 0): 0})
    # Queues may begin alike: what was not acknowledged is sent again to another one.
    twins.reads("a", P0, 1)
    twins.witness.compare({(Q0, 0): 0, (Q1, 0): 0, (Q1, 1): 1})
    with pytest.raises(Violation, match="are both"):
        twins.witness.compare({(Q1, 0): 0, (Q1, 1): 1})


def test_what_the_coordinator_acknowledged_is_where_the_next_owner_begins() -> None:
    rig = Rig()
    rig.has("a", 1, P0, P1)
    for partition in (P0, P1):
        rig.reads("a", partition, 0, 1, 2)
    rig.witness.committed(P0, 1, "a")
    rig.witness.answered("a", well=True)
    rig.witness.committed(P0, 3, "a")
    rig.witness.committed(P1, 3, "a")
    rig.witness.answered("a", well=False)  # nobody knows whether it was stored
    rig.witness.taken("a", [P0, P1])
    rig.has("b", 2, P1)
    rig.reads("b", P1, 0)
    for start in (1, 3):
        rig.has("b", 2, P0)
        rig.reads("b", P0, start)
        rig.witness.taken("b", [P0])
    rig.has("b", 2, P0)
    with pytest.raises(Violation, match=r"begins at 0 of .*: offset 1 is lost"):
        rig.reads("b", P0, 0)


def test_a_member_that_asked_before_anything_was_committed_may_begin_at_the_first_offset() -> None:
    rig = Rig()
    rig.has("a", 1, P0)  # and is cut off
    rig.has("b", 2, P0)
    rig.reads("b", P0, 0, 1, 2)
    rig.witness.committed(P0, 3, "b")
    rig.witness.answered("b", well=True)
    with pytest.raises(Violation, match=r"a begins at 1 of .*: offset 3 is lost"):
        rig.reads("a", P0, 1)
    rig.reads("a", P0, 0, 1)
    assert rig.witness.duplicates == 2


def test_a_member_that_asks_again_after_a_commit_must_not_begin_at_the_first_offset() -> None:
    rig = Rig()
    rig.has("a", 1, P0, P1)
    rig.has("b", 2, P0, P1)
    for partition in (P0, P1):
        rig.reads("b", partition, 0, 1, 2)
        rig.witness.committed(partition, 3, "b")
    rig.witness.answered("b", well=True)
    rig.witness.asked("a", [P0])
    with pytest.raises(Violation, match=r"a begins at 0 of .*: offset 3 is lost"):
        rig.reads("a", P0, 0)
    rig.witness.taken("a", [P1])
    rig.witness.assigned("a", [P1])  # what it asked before that does not count any more
    with pytest.raises(Violation, match=r"a begins at 0 of .*: offset 3 is lost"):
        rig.reads("a", P1, 0)


def test_where_a_repair_lost_an_offset_the_next_owner_may_begin_anew() -> None:
    rig = Rig()
    rig.has("a", 1, P0, P1)
    for partition in (P0, P1):
        rig.reads("a", partition, 0, 1, 2)
        rig.witness.committed(partition, 3, "a")
    rig.witness.answered("a", well=True)
    rig.witness.taken("a", [P0, P1])
    rig.sent.damage.kafka_offsets_lost.add(P0)
    rig.has("b", 2, P0, P1)
    rig.reads("b", P0, 0, 1)
    with pytest.raises(Violation, match=r"begins at 0 of .*: offset 3 is lost"):
        rig.reads("b", P1, 0)
    rig.witness.taken("b", [P0])
    rig.has("b", 2, P0)
    with pytest.raises(Violation, match=r"begins at 2 of .*: offset 3 is lost"):
        rig.reads("b", P0, 2)
