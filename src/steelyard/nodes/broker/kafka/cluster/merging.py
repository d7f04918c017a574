"""One topic as two brokers know it: what holds from now on, whoever hears of it first.

Every broker comes to the same result in whatever order it hears of the versions: `merged` takes the greater of two in an order
of all versions. Contradictions come from brokers that could not hear of each other when they first made the topic, or were
written by a Steelyard that did not ask the others first; they are reported, and nothing that is stored is given up:

- A topic that grew holds as it is now, the longer one.
- `__consumer_offsets` and `__transaction_state` keep the layout with more brokers. The others are noted in `KafkaTopic.merged`,
  and what their brokers keep is handed to those of the layout that holds (`handover`).
- Of two topics of one name the one that was created later holds: most probably the other was deleted. Queues of the other
  that have no number become further partitions at the end (`Cluster.wanted`).
"""

from __future__ import annotations

from msgspec.structs import replace

from steelyard.nodes.broker.kafka.cluster.topic import MERGED_MAX, KafkaTopic
from steelyard.routes.layout import Layout, write


def merged(known: KafkaTopic, other: KafkaTopic) -> tuple[KafkaTopic, bool]:
    """The topic that holds, and whether the two contradict each other. Of two that differ in settings only, `other`."""
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
    """What an operator must know of two versions of a topic that contradict each other, and is to do."""
    name, mine, theirs = known.name, write(known.layout), write(other.layout)
    text = (
        f"topic {name} was laid out twice, by brokers that did not know of each other: this one has {mine},"
        f" another has {theirs}. {write(holds.layout)} is valid from now on."
    )
    if holds.is_fixed:
        text += (
            " Brokers of the other layouts hand over their groups and transactions when they run; until then the"
            " clients wait. Start all brokers; if one is gone for good, start the others with --kafka-brokers and"
            " the names of those that remain; its groups and transactions are then lost."
        )
    else:
        text += (
            " Queues without a number become further partitions at the end, so nothing stored is lost; but offsets that"
            " groups committed under the other numbers are no longer valid: check and reset them."
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
    """The longer first, then by what is written."""
    return -layout.partitions, write(layout)


def _spread(layout: Layout) -> tuple[int, int, str]:
    """The one with more partitions, then with more brokers, first."""
    return -layout.partitions, -len(layout.queues()), write(layout)


def _age(topic: KafkaTopic) -> tuple[int, tuple[int, str], bytes]:
    """The one that was created last, first."""
    return -topic.created_at, _rank(topic.layout), topic.topic_id
