"""Merges two versions of one topic, so that all brokers arrive at the same one.

The order in which a broker hears of versions does not matter: `merged` returns the greater of two
in an order of all versions. Versions contradict each other if they come from brokers that could not
hear of each other when they created the topic, or from a Steelyard that did not ask the others
first. Contradictions are reported, and nothing that is stored is given up:

- Of two layouts of one topic the longer one is valid. If it extends the other, the topic has grown,
  which is no contradiction.
- `__consumer_offsets` and `__transaction_state` keep the layout with the most partitions, then with
  the most brokers. The others are noted in `KafkaTopic.merged`, and their brokers hand over what
  they keep to those of the valid layout (`handover`).
- Of two topics with one name but different ids, the one created later is valid: most probably the
  other was deleted. Queues of the other that are not partitions become further partitions at the
  end (`Cluster.wanted`).
"""

from __future__ import annotations

from msgspec.structs import replace

from steelyard.nodes.broker.kafka.cluster.topic import MERGED_MAX, KafkaTopic
from steelyard.routes.layout import Layout, write


def merged(known: KafkaTopic, other: KafkaTopic) -> tuple[KafkaTopic, bool]:
    """Return the valid version, and whether the two contradict each other.

    If they differ only in settings, `other` is valid.
    """
    assert known.name == other.name
    if known.is_fixed:
        return _merged_fixed(known, other)
    if known.topic_id == other.topic_id:
        if other.layout.extends(known.layout):
            return other, False
        if known.layout.extends(other.layout):
            return known, False
        return (other if _rank(other.layout) < _rank(known.layout) else known), True
    return min(known, other, key=_age), True


def contradiction(known: KafkaTopic, other: KafkaTopic, holds: KafkaTopic) -> str:
    """Describe two contradictory versions to an operator, and what to do."""
    name, mine, theirs = known.name, write(known.layout), write(other.layout)
    text = (
        f"topic {name} was laid out twice, by brokers that did not know of each other: this one has"
        f" {mine}, another has {theirs}. {write(holds.layout)} is valid from now on."
    )
    if holds.is_fixed:
        text += (
            " Brokers of the other layouts hand over their groups and transactions when they run;"
            " until then the clients wait. Start all brokers; if one is gone for good, start the"
            " others with --kafka-brokers and the names of those that remain; its groups and"
            " transactions are then lost."
        )
    else:
        text += (
            " Queues without a number become further partitions at the end, so nothing stored is"
            " lost; but offsets that groups committed under the other numbers are no longer valid:"
            " check and reset them."
        )
    return text + " To avoid it, give every broker the list of all (--kafka-brokers)."


def _merged_fixed(known: KafkaTopic, other: KafkaTopic) -> tuple[KafkaTopic, bool]:
    versions = {known.layout, other.layout, *known.merged, *other.merged}
    first, *others = sorted(versions, key=_spread)
    base = other if other.layout == first else known
    topic_id = min(each.topic_id for each in (known, other) if each.layout == first)
    holds = replace(base, topic_id=topic_id, merged=tuple(others[:MERGED_MAX]))
    return holds, known.layout != other.layout and other.layout not in known.merged


def _rank(layout: Layout) -> tuple[int, str]:
    """Order layouts: the longer first, then by their text."""
    return -layout.partitions, write(layout)


def _spread(layout: Layout) -> tuple[int, int, str]:
    """Order layouts: more partitions first, then more brokers."""
    return -layout.partitions, -len(layout.queues()), write(layout)


def _age(topic: KafkaTopic) -> tuple[int, tuple[int, str], bytes]:
    """Order topics: the latest first."""
    return -topic.created_at, _rank(topic.layout), topic.topic_id
