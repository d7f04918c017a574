"""The sticky assignor of Kafka Streams groups, by hand and by its laws."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskRunner, TaskShare, assign

Shares = dict[str, TaskShare]


def tasks(text: str) -> frozenset[TaskId]:
    """Tasks as Kafka Streams writes them: 0_1."""
    pairs = (word.split("_") for word in text.split())
    return frozenset(TaskId(name, int(number)) for name, number in pairs)


def runners(*names: str) -> list[TaskRunner]:
    """Members `process.thread`."""
    return [TaskRunner(name, name.partition(".")[0]) for name in names]


def again(shares: Shares, *names: str) -> list[TaskRunner]:
    """These members, with what they had."""
    return [one._replace(before=shares.get(one.member_id, TaskShare())) for one in runners(*names)]


def active(shares: Shares) -> dict[str, frozenset[TaskId]]:
    return {name: share.active for name, share in shares.items()}


def test_nobody_gets_nothing() -> None:
    assert assign([], {"0": 4}, {"0"}, 1) == {}
    assert assign(runners("a.1"), {}, {"0"}, 1) == {"a.1": TaskShare()}


def test_the_first_assignment_deals_out_one_subtopology_after_the_other() -> None:
    shares = assign(runners("a.1", "b.1"), {"0": 3, "1": 2}, (), 0)
    assert active(shares) == {"a.1": tasks("0_0 0_2 1_1"), "b.1": tasks("0_1 1_0")}


def test_processes_with_more_threads_get_more() -> None:
    shares = assign(runners("a.1", "a.2", "b.1"), {"0": 6}, (), 0)
    assert {name: len(share.active) for name, share in shares.items()} == {
        "a.1": 2,
        "a.2": 2,
        "b.1": 2,
    }


def test_who_stays_keeps_up_to_the_share_of_each() -> None:
    """Two get a third one: each gives up one task of three, and nothing moves between the two."""
    before = assign(runners("a.1", "b.1"), {"0": 6}, (), 0)
    after = assign(again(before, "a.1", "b.1", "c.1"), {"0": 6}, (), 0)
    for name in ("a.1", "b.1"):
        assert after[name].active < before[name].active
        assert len(after[name].active) == 2
    assert assign(again(after, "a.1", "b.1", "c.1"), {"0": 6}, (), 0) == after


def test_a_task_goes_where_its_standby_is() -> None:
    before = assign(runners("a.1", "b.1", "c.1"), {"0": 3}, {"0"}, 1)
    (lost,) = before["a.1"].active
    (heir,) = [name for name, share in before.items() if lost in share.standby]
    after = assign(again(before, "b.1", "c.1"), {"0": 3}, {"0"}, 1)
    assert lost in after[heir].active
    for name in ("b.1", "c.1"):
        assert before[name].active <= after[name].active


def test_standbys_are_in_other_processes() -> None:
    shares = assign(runners("a.1", "a.2"), {"0": 2}, {"0"}, 1)
    assert all(not share.standby for share in shares.values())
    shares = assign(runners("a.1", "a.2", "b.1"), {"0": 2, "1": 1}, {"0"}, 2)
    standbys = {name: share.standby for name, share in shares.items()}
    on_b = shares["b.1"].active & tasks("0_0 0_1")
    assert standbys["b.1"] == tasks("0_0 0_1") - on_b
    assert standbys["a.1"] | standbys["a.2"] == on_b


groups = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=8, unique=True
).map(lambda pairs: [f"{process}.{thread}" for process, thread in pairs])
topologies = st.dictionaries(st.sampled_from("0123"), st.integers(1, 7), max_size=3)


@given(groups, groups, topologies, st.sets(st.sampled_from("0123")), st.integers(0, 2))
def test_laws(
    first: list[str],
    second: list[str],
    partitions: dict[str, int],
    stateful: set[str],
    replicas: int,
) -> None:
    """Whoever comes and goes: each task is active once, a process has it once, and nobody is idle while others have two."""
    before = assign(runners(*first), partitions, stateful, replicas)
    for members in (runners(*first), again(before, *second)):
        shares = assign(members, partitions, stateful, replicas)
        check(members, shares, partitions, stateful, replicas)
        assert assign(members[::-1], partitions, stateful, replicas) == shares
    kept = assign(again(before, *first), partitions, stateful, replicas)
    assert active(kept) == active(before)


def check(
    members: list[TaskRunner],
    shares: Shares,
    partitions: dict[str, int],
    stateful: set[str],
    replicas: int,
) -> None:
    every = {TaskId(name, number) for name, count in partitions.items() for number in range(count)}
    given_out = Counter(task for share in shares.values() for task in share.active)
    assert given_out == Counter(every)
    processes = {one.member_id: one.process_id for one in members}
    copies = Counter(
        (processes[name], task)
        for name, share in shares.items()
        for task in (*share.active, *share.standby)
    )
    assert all(count == 1 for count in copies.values())
    places = Counter(task for _, task in copies)
    for task in every:
        standbys = replicas if task.subtopology_id in stateful else 0
        assert places[task] == min(1 + standbys, len(set(processes.values())))
    if not replicas:
        sizes = [len(share.active) for share in shares.values()]
        assert max(sizes) <= -(-len(every) // len(members)) or min(sizes) > 0
