"""What values are taken, and what the errors say of those that are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from steelyard.checks import INT_MAX, PLAIN_TOO, Kind, is_right, kind_of, kinds_of
from steelyard.config import BrokerConfig, StoreConfig
from steelyard.errors import ArgumentError
from steelyard.types import ConsumeFrom, Message, MessageQueue, TopicPartition

QUEUE = MessageQueue("T", "b", 0)

RIGHT: list[tuple[Any, object, object]] = [
    (int, 0, 0),
    (int, INT_MAX, INT_MAX),
    (Annotated[int, Meta(ge=-1)], -1, -1),
    (float, 1, 1),
    (str, "ü", "ü"),
    (bytes, bytearray(b"x"), b"x"),
    (bytes, memoryview(b"x"), b"x"),
    (int | None, None, None),
    (str | Sequence[str], "ab", "ab"),
    (str | Sequence[str], ["a", "b"], ("a", "b")),
    (Iterable[MessageQueue], iter([QUEUE]), (QUEUE,)),
    (Mapping[str, str], {"a": "b"}, {"a": "b"}),
    (Literal["a", "b"], "a", "a"),
    (ConsumeFrom, ConsumeFrom.TIMESTAMP, ConsumeFrom.TIMESTAMP),
    (MessageQueue, QUEUE, QUEUE),
    (Annotated[TopicPartition, PLAIN_TOO], ("T", 3), TopicPartition("T", 3)),
    (Message, Message("T", b"x", keys=["a"]), Message("T", b"x", keys=("a",))),
    (Callable[[int], int], abs, abs),
    (Any, object, object),
]


@pytest.mark.parametrize(("hint", "value", "taken"), RIGHT)
def test_what_is_right_is_taken(hint: Any, value: object, taken: object) -> None:
    found = kind_of(hint).take("x", value)
    assert found == taken
    assert type(found) is type(taken)


WRONG: list[tuple[Any, object, str]] = [
    (int, "3", "x is '3'; it must be an int of 0 or more, not a str"),
    (int, True, "x is True; it must be an int of 0 or more, not a bool"),
    (int, -1, "x is -1; it must be 0 or more"),
    (int, 2**63, f"x is {2**63}; it must be at most {INT_MAX}"),
    (Annotated[int, Meta(ge=0, le=9)], 10, "x is 10; it must be 0 to 9"),
    (Annotated[float, Meta(gt=0, le=1)], 0.0, "x is 0.0; it must be above 0 and at most 1"),
    (
        Annotated[float, Meta(gt=0, le=1)],
        float("nan"),
        "x is nan; it must be above 0 and at most 1",
    ),
    (str, 5, "x is 5; it must be a str, not an int"),
    (str, None, "x is None; it must be a str"),
    (
        str,
        "\ud800",
        r"x is '\ud800'; it must be text that UTF-8 can encode, without lone surrogates",
    ),
    (Annotated[str, Meta(min_length=1)], "", "x is ''; it must be a non-empty str"),
    (int | None, "3", "x is '3'; it must be an int of 0 or more, or None, not a str"),
    (str | Sequence[str], 5, "x is 5; it must be a str or a sequence of str, not an int"),
    (str | Sequence[str], ["a", 5], "x[1] is 5; it must be a str, not an int"),
    (Sequence[str], "ab", "x is 'ab'; it must be a sequence of str, not a str"),
    (Mapping[str, str], {"a": 3}, "x['a'] is 3; it must be a str, not an int"),
    (Mapping[str, str], {3: "a"}, "a key of x is 3; it must be a str, not an int"),
    (Literal["a", "b"], "c", "x is 'c'; it must be one of 'a', 'b'"),
    (
        ConsumeFrom,
        "first",
        "x is 'first'; it must be ConsumeFrom.LAST_OFFSET, ConsumeFrom.FIRST_OFFSET or ConsumeFrom.TIMESTAMP,"
        " not a str",
    ),
    (
        MessageQueue,
        ("T", "b", 0),
        "x is ('T', 'b', 0); it must be a MessageQueue(topic, broker_name, queue_id), not a tuple",
    ),
    (MessageQueue, MessageQueue("T", "b", -1), "x.queue_id is -1; it must be 0 to 2147483647"),
    (
        Message,
        Message("T", b"x", properties={"a": 1}),  # type: ignore[dict-item]  # wrong on purpose
        "x.properties['a'] is 1; it must be a str, not an int",
    ),
    (Callable[[int], int], 5, "x is 5; it must be a function, not an int"),
]


@pytest.mark.parametrize(("hint", "value", "text"), WRONG)
def test_what_is_wrong_is_told_with_what_is_right(hint: Any, value: object, text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        kind_of(hint).take("x", value)
    assert str(caught.value) == text


def test_secrets_are_not_shown() -> None:
    with pytest.raises(ArgumentError) as caught:
        kind_of(bytes).take("config.secret_key", ["hunter2"])
    assert str(caught.value) == "config.secret_key must be bytes, not a list"


def test_a_value_that_cannot_be_shown() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(
        ArgumentError, match="x is something that cannot be shown; it must be a str, not a Shy"
    ):
        kind_of(str).take("x", Shy())


def test_an_annotation_without_a_rule_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="no rule"):
        kind_of(tuple[int, str])


def test_settings_within_settings() -> None:
    kind = kinds_of(BrokerConfig)["store"]
    wrong = StoreConfig(segment_bytes=0)
    with pytest.raises(
        ArgumentError, match=r"^store\.segment_bytes is 0; it must be 1 to 2147483647$"
    ):
        kind.take("store", wrong)


def kinds() -> list[Kind]:
    return [kind_of(hint) for hint, _, _ in RIGHT]


@given(
    st.sampled_from(kinds()),
    st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.binary()),
)
def test_what_is_right_at_first_sight_is_right(kind: Kind, value: object) -> None:
    if is_right(kind, value):
        assert kind.take("x", value) is value
