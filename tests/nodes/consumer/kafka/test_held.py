"""What a consumer holds."""

from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.types import TopicPartition


def test_a_partition_that_comes_back_has_no_turn_that_it_had_before() -> None:
    """An answer for the holding before may still be under way: it must not move this one (simulator seed 2803820311)."""
    holdings, partition = Holdings(), TopicPartition("T", 0)
    turns = []
    for _ in range(3):
        holdings.hold([partition])
        held = holdings.of(partition)
        turns.append(held.turn)
        held.move(None)
        turns.append(held.turn)
        held.move(10)
        turns.append(held.turn)
        holdings.drop([partition])
    assert len(set(turns)) == len(turns)
