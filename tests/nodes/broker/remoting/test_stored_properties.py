from hypothesis import given
from hypothesis import strategies as st

from steelyard.nodes.broker.remoting.stored_properties import (
    StoredProperties,
    may_be_special,
    waits_for_disk,
)

PARTS = (
    "A\x01b\x02",
    "TAGS\x01x\x02",
    "WAIT\x01true\x02",
    "WAIT\x01true",
    "NOWAIT\x01true\x02",
    "A\x01WAIT\x01true\x02",
    "novalue\x02",
    "X\x01",
    "\x02",
)
UNUSUAL = (
    "DELAY\x013\x02",
    "TIMER_DELAY_MS\x015\x02",
    "TRAN_MSG\x01true\x02",
    "CLUSTER\x01other\x02",
    "WAIT\x01false\x02",
    "WAIT\x01false",
    "\x00",
    "é",
)
stored = StoredProperties("c1")
texts = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
any_texts = st.lists(st.sampled_from(PARTS + UNUSUAL), max_size=5).map("".join)


@given(st.lists(texts, min_size=1, max_size=6))
def test_usual_properties_of_many_messages_are_stored_as_those_of_one(sent: list[str]) -> None:
    found = stored.of_usual([text.encode() for text in sent])
    assert found == [stored.of(text).encode() for text in sent]


@given(st.lists(any_texts, min_size=1, max_size=6))
def test_what_must_be_decoded_is_never_taken_for_usual(sent: list[str]) -> None:
    one_by_one = [stored.of(text) for text in sent]
    found = stored.of_usual([text.encode() for text in sent])
    if found is not None:
        assert found == [text.encode() for text in one_by_one]
        names = [pair.partition("\x01")[0] for text in one_by_one for pair in text.split("\x02")]
        assert not any(map(may_be_special, names))
        assert all(map(waits_for_disk, one_by_one))


def test_bytes_that_are_no_text_are_left_to_the_caller() -> None:
    assert stored.of_usual([b"KEYS\x01a\x02", b"KEYS\x01\xff\x02"]) is None
