"""The rules themselves: each is kept here by a good history and broken by a bad one."""

from collections.abc import Callable

import pytest

from steelyard.sim.checkers import Witness, one_owner_each
from steelyard.sim.world import Violation
from steelyard.types import MessageQueue

Q0 = MessageQueue("T", "broker-a", 0)
Q1 = MessageQueue("T", "broker-a", 1)


def witness(tags: tuple[str, ...] = ()) -> Witness:
    """Messages 0, 1, 2 (tags a, b, c) lie at offsets 0, 1, 2 of Q0."""
    seen = Witness(tags)
    for number, tag in enumerate("abc"):
        seen.sent(number, "T", tag)
        seen.acknowledge(number, Q0, number)
    return seen


def test_a_good_history_is_fine() -> None:
    seen = witness()
    seen.delivered(Q0, [(0, 0), (1, 1)])
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 0, "m")
    seen.done(Q0, 0, 0, final=True)
    seen.committed(Q0, 2, "m")
    assert seen.unfinished(Q0, 3) == 2
    assert seen.missing() == [2]
    seen.delivered(Q0, [(1, 1), (2, 2)])
    seen.done(Q0, 2, 2, final=True)
    assert (seen.deliveries, seen.duplicates, seen.unfinished(Q0, 3)) == (4, 1, None)
    assert seen.missing() == []


def _commit_too_early(seen: Witness) -> None:
    seen.delivered(Q0, [(0, 0), (1, 1)])
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 2, "m")


BAD: dict[str, tuple[Callable[[Witness], None], str]] = {
    "commit": (_commit_too_early, "m commits 2 of .* but 0 is not finished"),
    "moved": (lambda seen: seen.delivered(Q0, [(1, 0)]), "offset 1 held message 1, now 0"),
    "acknowledged twice": (lambda seen: seen.acknowledge(2, Q0, 0), "held message 0, now 2"),
    "unknown": (lambda seen: seen.delivered(Q1, [(0, 77)]), "never sent"),
    "order": (lambda seen: seen.delivered(Q0, [(1, 1), (0, 0)]), "offset 0 handed after 1"),
    "other topic": (
        lambda seen: seen.delivered(MessageQueue("U", "broker-a", 0), [(0, 0)]),
        "was sent to T",
    ),
    "lost after a kill": (
        lambda seen: seen.log_ends(Q0, 2, cut_allowed=False),
        "message 2 at .* is lost",
    ),
    "acknowledged and lost with the power": (
        lambda seen: seen.log_ends(Q0, 2, cut_allowed=True),
        "message 2 at .* is lost",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name: str) -> None:
    break_rule, text = BAD[name]
    with pytest.raises(Violation, match=text):
        break_rule(witness())


def test_after_a_power_loss_an_unacknowledged_position_may_hold_another_message() -> None:
    seen = witness()
    seen.sent(3, "T", "a")
    seen.delivered(Q0, [(3, 3)])
    seen.done(Q0, 3, 3, final=True)
    seen.log_ends(Q0, 3, cut_allowed=True)
    seen.sent(4, "T", "a")
    seen.acknowledge(4, Q0, 3)
    assert 4 in seen.missing()


def test_tags_that_nobody_wants_are_passed_over() -> None:
    seen = witness(("b",))
    numbers = {0: 0, 1: 1, 2: 2}
    seen.number_at = lambda queue, offset: numbers.get(offset)
    seen.committed(Q0, 1, "m")
    seen.delivered(Q0, [(1, 1)])
    with pytest.raises(Violation):
        seen.committed(Q0, 2, "m")
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 3, "m")
    assert seen.missing() == []
    with pytest.raises(Violation, match="not wanted"):
        seen.delivered(Q0, [(2, 2)])


@pytest.mark.parametrize(
    ("held", "complaint"),
    [
        ({"m0": [Q0], "m1": [Q1]}, None),
        ({"m0": [Q0, Q1], "m1": []}, None),
        ({"m0": [Q0], "m1": []}, "queue_id=1.* is held by nobody"),
        ({"m0": [Q0, Q1], "m1": [Q1]}, "queue_id=1.* is held by .*m0.*m1"),
        ({"m0": [Q0, Q1, Q1._replace(queue_id=2)]}, "m0 holds .*queue_id=2.*, which is not"),
    ],
)
def test_one_owner_each(held: dict[str, list[MessageQueue]], complaint: str | None) -> None:
    found = one_owner_each([Q0, Q1], held)
    if complaint is None:
        assert found is None
    else:
        assert found is not None
        with pytest.raises(Violation, match=complaint):
            raise Violation(found)
