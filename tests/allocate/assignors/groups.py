"""Groups by chance, and what any assignment of one is held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hypothesis import strategies as st

from steelyard.allocate.assignors.plan import Assignment, Assignor, Subscriber
from steelyard.types import TopicPartition

TOPICS = ("a", "b", "c", "d", "e")

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
"""Numbers of partitions; topics may have none, or not be there."""


@st.composite
def some_subscribers(draw: st.DrawFn, alike: bool = False, sane: bool = False) -> list[Subscriber]:
    """Up to eight members that claim anything; `alike`: with equal topics; `sane`: that hold nothing."""
    topics = st.lists(st.sampled_from((*TOPICS, "gone")), unique=not alike or sane, max_size=5)
    same = draw(topics)
    claims = st.lists(
        st.builds(TopicPartition, st.sampled_from((*TOPICS, "gone")), st.integers(-1, 12)),
        max_size=12,
    )
    names = draw(st.lists(st.text("mnÿ\U0001f600ￕ", max_size=3), unique=True, max_size=8))
    return [
        Subscriber(
            name,
            same if alike else draw(topics),
            () if sane else draw(claims),
            -1 if sane else draw(st.integers(-1, 3)),
            draw(st.sampled_from([None, f"i{place}"])),
            user_data=None
            if sane
            else draw(st.sampled_from([None, b"", b"\0\0\0\2", b"\xff" * 9])),
        )
        for place, name in enumerate(names)
    ]


groups = st.booleans().flatmap(lambda alike: some_subscribers(alike=alike))


def readable(
    subscribers: Iterable[Subscriber], partitions: Mapping[str, int]
) -> set[TopicPartition]:
    """All partitions that somebody subscribes to."""
    return {
        TopicPartition(topic, number)
        for subscriber in subscribers
        for topic in subscriber.topics
        for number in range(partitions.get(topic, 0))
    }


def check_shares(assignment: Assignment, subscribers: Sequence[Subscriber]) -> None:
    """Everybody has an entry; nothing is given twice, or to one that does not read its topic."""
    assert assignment.keys() == {subscriber.member for subscriber in subscribers}
    given = Counter(partition for share in assignment.values() for partition in share)
    assert not [partition for partition, times in given.items() if times > 1]
    for subscriber in subscribers:
        assert {topic for topic, _ in assignment[subscriber.member]} <= set(subscriber.topics)


def given(assignment: Assignment) -> set[TopicPartition]:
    return {partition for share in assignment.values() for partition in share}


def imbalance(assignment: Assignment) -> int:
    """The sum of squared sizes: the smaller the more even."""
    return sum(len(share) ** 2 for share in assignment.values())


def spread(assignment: Assignment) -> int:
    sizes = [len(share) for share in assignment.values()]
    return max(sizes) - min(sizes) if sizes else 0


def moves(before: Mapping[str, Sequence[TopicPartition]], after: Assignment) -> int:
    """Partitions that a member held which is still there, or not, and that another one has now."""
    owner = {partition: member for member, share in after.items() for partition in share}
    return sum(
        owner.get(partition, member) != member
        for member, share in before.items()
        for partition in share
    )


def again(
    assignor: Assignor, subscribers: Iterable[Subscriber], held: Assignment, generation: int
) -> list[Subscriber]:
    """The members as they join after an assignment, with all that an assignor may want to know."""
    return [
        Subscriber(
            one.member,
            one.topics,
            held.get(one.member, ()),
            generation if one.member in held else -1,
            one.instance,
            user_data=assignor.user_data(held[one.member], generation)
            if one.member in held
            else None,
        )
        for one in subscribers
    ]


def is_determined(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> bool:
    """Whether Apache's sticky plan is the only one: it goes by the order of a hash map in all other cases.

    That is where subscriptions differ, or more members than get one more hold one more.
    """
    topics = set(subscribers[0].topics)
    if any(set(one.topics) != topics for one in subscribers):
        return False
    size, longer = divmod(sum(partitions[topic] for topic in topics), len(subscribers))
    return longer == 0 or sum(len(one.owned) > size for one in subscribers) <= longer


def check_as_good(
    subscribers: Sequence[Subscriber],
    partitions: Mapping[str, int],
    ours: Assignment,
    theirs: Assignment,
) -> None:
    """Equal to Apache's sticky plan where that is determined; else more even, or as even and with no more moves."""
    if is_determined(subscribers, partitions):
        assert ours == theirs
    held = {one.member: one.owned for one in subscribers}
    assert imbalance(ours) <= imbalance(theirs)
    if imbalance(ours) == imbalance(theirs):
        assert moves(held, ours) <= moves(held, theirs)
