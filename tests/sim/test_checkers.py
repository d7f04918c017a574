"""The rules themselves: each is kept here by a good history and broken by a bad one."""

from collections.abc import Callable

import pytest

from steelyard.sim.checkers import Witness, one_owner_each
from steelyard.sim.world import Violation
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record

Q0 = MessageQueue("T", "broker-a", 0)
Q1 = MessageQueue("T", "broker-a", 1)


TAG_OF = "abcdefgh"


def message(number: int, topic: str = "T") -> Message:
    return Message(topic, b"%08d" % number, tags=TAG_OF[number % 8])


def views(*pairs: tuple[int, int], body: bytes = b"") -> tuple[MessageView, ...]:
    """(offset, number) pairs as a member reads them; `body` in place of the right one."""
    records = [
        encode_record(
            topic="T",
            queue_id=0,
            flag=0,
            queue_offset=offset,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=bytes(8),
            store_timestamp=0,
            store_host=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body or message(number).body,
            properties=f"TAGS\x01{message(number).tags}\x02".encode(),
        )
        for offset, number in pairs
    ]
    return tuple(decode_records(b"".join(records)))


def witness(tags: tuple[str, ...] = ()) -> Witness:
    """Messages 0, 1, 2 (tags a, b, c) lie at offsets 0, 1, 2 of Q0, acknowledged at 100, 101, 102."""
    seen = Witness(tags)
    for number in range(3):
        seen.sent(number, message(number))
        seen.acknowledge(number, Q0, number, 100 + number)
    return seen


def test_a_good_history_is_fine() -> None:
    seen = witness()
    seen.delivered(Q0, views((0, 0), (1, 1)), 105)
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 0, "m")
    seen.done(Q0, 0, 0, final=True)
    seen.committed(Q0, 2, "m")
    assert seen.unfinished(Q0, 3) == 2
    assert seen.missing() == [2]
    seen.delivered(Q0, views((1, 1), (2, 2)), 105)
    seen.done(Q0, 2, 2, final=True)
    assert (seen.deliveries, seen.duplicates, seen.unfinished(Q0, 3)) == (4, 1, None)
    assert seen.missing() == []
    assert seen.slowest_ms == 5


def _commit_too_early(seen: Witness) -> None:
    seen.delivered(Q0, views((0, 0), (1, 1)), 105)
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 2, "m")


def _deliver_and_lose(seen: Witness) -> None:
    """Whoever got offset 3 will not ask for it again, and miss the message that gets it next."""
    seen.sent(3, message(3))
    seen.delivered(Q0, views((3, 3)), 105)
    seen.log_ends(Q0, 3, cut_allowed=True)


BAD: dict[str, tuple[Callable[[Witness], None], str]] = {
    "commit": (_commit_too_early, "m commits 2 of .* but 0 is not finished"),
    "moved": (
        lambda seen: seen.delivered(Q0, views((1, 0)), 105),
        "offset 1 held message 1, now 0",
    ),
    "acknowledged twice": (lambda seen: seen.acknowledge(2, Q0, 0, 0), "held message 0, now 2"),
    "unknown": (lambda seen: seen.delivered(Q1, views((0, 77)), 105), "never sent"),
    "order": (
        lambda seen: seen.delivered(Q0, views((1, 1), (0, 0)), 105),
        "offset 0 handed after 1",
    ),
    "other topic": (
        lambda seen: seen.delivered(MessageQueue("U", "broker-a", 0), views((0, 0)), 105),
        "was sent to T",
    ),
    "another body": (
        lambda seen: seen.delivered(Q0, views((1, 1), body=b"00000001?"), 105),
        "is not what was sent",
    ),
    "lost after a kill": (
        lambda seen: seen.log_ends(Q0, 2, cut_allowed=False),
        "message 2 at .* is lost",
    ),
    "delivered and lost with the power": (_deliver_and_lose, "message 3 at .* is lost"),
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


def test_a_power_loss_may_take_what_nobody_was_told_of() -> None:
    seen = witness()
    seen.sent(3, message(3))
    seen.read_in_log(Q0, 3, 3)
    seen.log_ends(Q0, 3, cut_allowed=True)
    seen.sent(4, message(4))
    seen.acknowledge(4, Q0, 3, 0)
    assert seen.missing() == [0, 1, 2, 4]


def test_tags_that_nobody_wants_are_passed_over() -> None:
    seen = witness(("b",))
    numbers = {0: 0, 1: 1, 2: 2}
    seen.number_at = lambda queue, offset: numbers.get(offset)
    seen.committed(Q0, 1, "m")
    seen.delivered(Q0, views((1, 1)), 105)
    with pytest.raises(Violation):
        seen.committed(Q0, 2, "m")
    seen.done(Q0, 1, 1, final=True)
    seen.committed(Q0, 3, "m")
    assert seen.missing() == []
    with pytest.raises(Violation, match="not wanted"):
        seen.delivered(Q0, views((2, 2)), 105)


def test_what_is_suspended_comes_again_and_is_no_duplicate() -> None:
    seen = witness()
    seen.delivered(Q0, views((0, 0)), 105)
    seen.suspended(Q0, 0)
    seen.delivered(Q0, views((0, 0)), 106)
    assert (seen.deliveries, seen.duplicates) == (2, 0)
    with pytest.raises(Violation, match="0 is not finished"):
        seen.committed(Q0, 1, "m")
    seen.delivered(Q0, views((0, 0)), 107)
    assert (seen.deliveries, seen.duplicates) == (3, 1)


def test_a_committed_transaction_is_owed_and_published_once() -> None:
    seen = witness()
    seen.sent(3, message(3))
    seen.began(3)
    assert seen.missing() == [0, 1, 2]
    seen.promise(3)
    assert seen.missing() == [0, 1, 2, 3]
    seen.delivered(Q1, views((0, 3)), 105)
    seen.done(Q1, 0, 3, final=True)
    assert seen.missing() == [0, 1, 2]
    seen.published(Q1, 0, 77)
    seen.published(Q1, 0, 77)
    with pytest.raises(Violation, match=r"is published at .*queue_id=1.* and .*queue_id=0"):
        seen.published(Q0, 3, 77)


@pytest.mark.parametrize(
    "see",
    [
        lambda seen: seen.delivered(Q1, views((0, 3)), 105),
        lambda seen: seen.read_in_log(Q1, 0, 3),
    ],
)
def test_nobody_sees_a_transaction_that_was_not_committed(see: Callable[[Witness], None]) -> None:
    seen = witness()
    seen.sent(3, message(3))
    seen.began(3)
    with pytest.raises(Violation, match="message 3 was not committed"):
        see(seen)


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
