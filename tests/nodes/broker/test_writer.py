"""What a log notes of a message's tag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.nodes.broker.writer import tag_code_of
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.properties import encode_properties

NAMES = st.sampled_from(("TAGS", "XTAGS", "TAGSX", "KEYS", "TAG"))
VALUES = st.sampled_from(("a", "TAGS", "xTAGS", "ä"))


@given(st.dictionaries(NAMES, VALUES))
def test_the_tag_is_that_of_the_properties(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert tag_code_of(text.encode()) == tag_code(properties.get("TAGS", ""))


@pytest.mark.parametrize(
    ("properties", "tag"),
    [
        (b"TAGS\x01a", "a"),
        (b"XTAGS\x01no\x02TAGS\x01yes\x02", "yes"),
        (b"XTAGS\x01no\x02", ""),
        (b"K\x01TAGS\x02TAGS\x01\xff\x02", "\ufffd"),
        (b"", ""),
    ],
)
def test_wherever_it_stands(properties: bytes, tag: str) -> None:
    assert tag_code_of(properties) == tag_code(tag)
