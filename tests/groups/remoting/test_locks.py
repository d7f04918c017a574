"""Queue locks: one owner at a time, against a model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.groups.remoting import locks as queue_locks
from steelyard.groups.remoting.locks import QueueLocks
from steelyard.types import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]
STEPS = st.tuples(
    st.sampled_from(("lock", "unlock", "expire")),
    st.sampled_from(("g1", "g2")),
    st.sampled_from(("c1", "c2", "c3")),
    st.lists(st.sampled_from(QUEUES), max_size=3, unique=True),
    st.integers(0, 40),
)


@settings(max_examples=examples(60))
@given(st.lists(STEPS, max_size=30))
def test_a_queue_has_one_owner_until_he_lets_go_or_forgets(
    steps: list[tuple[str, str, str, list[MessageQueue], int]],
) -> None:
    locks = QueueLocks(60)
    model: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
    now = 0
    for action, group, client, queues, pause in steps:
        now += pause
        model = {key: value for key, value in model.items() if value[1] + 60 >= now}
        if action == "lock":
            free = [q for q in queues if model.get((group, q), (client, 0))[0] == client]
            model.update({(group, queue): (client, now) for queue in free})
            assert locks.lock(group, client, queues, now) == free
        elif action == "unlock":
            for queue in queues:
                if model.get((group, queue), ("", 0))[0] == client:
                    del model[group, queue]
            locks.unlock(group, client, queues)
        else:
            locks.expire(now)
        locks.check()
        for name in ("g1", "g2"):
            assert locks.locked(name, now) == any(key[0] == name for key in model)
            for queue in QUEUES:
                owner, renewed_at = model.get((name, queue), (None, 0))
                assert locks.owner(name, queue, now) == owner
                expires_at = None if owner is None else renewed_at + 60 + 1
                assert locks.expires_at(name, queue, now) == expires_at


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 2)
    locks = QueueLocks(60)
    assert locks.lock("g", "c", QUEUES, 0) == QUEUES[:2]
    assert locks.lock("g", "c", QUEUES, 1) == QUEUES[:2]
    locks.unlock("g", "c", QUEUES[:1])
    assert locks.lock("g2", "c", QUEUES, 2) == QUEUES[:1]
    locks.check()


def test_all_locks_of_a_client_are_given_up_together() -> None:
    locks = QueueLocks(60)
    locks.lock("g", "a", QUEUES[:2], 0)
    locks.lock("g", "b", QUEUES[2:], 0)
    locks.lock("g2", "a", QUEUES, 0)
    locks.unlock_all("g", "a")
    locks.unlock_all("unknown", "a")
    locks.check()
    assert [locks.owner("g", queue, 1) for queue in QUEUES] == [None, None] + ["b"] * len(
        QUEUES[2:]
    )
    assert {locks.owner("g2", queue, 1) for queue in QUEUES} == {"a"}
