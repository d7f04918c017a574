"""The last offset of each key, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.compaction.offset_map import SHORT_BYTES, OffsetMap


@given(st.lists(st.tuples(st.binary(max_size=2 * SHORT_BYTES), st.integers(0, 1_000))))
def test_it_knows_what_a_dict_knows(puts: list[tuple[bytes, int]]) -> None:
    found, model = OffsetMap(1_000), dict(puts)
    assert all(found.put(key, offset) for key, offset in puts)
    assert {key: found.get(key) for key in model} == model
    assert len(found) == len(model)


def test_it_takes_no_more_keys_than_it_may() -> None:
    found = OffsetMap(2)
    assert found.put(b"a", 1)
    assert found.put(b"b", 2)
    assert not found.put(b"c", 3)
    assert found.put(b"a", 4)
    assert [found.get(key) for key in (b"a", b"b", b"c")] == [4, 2, -1]


def test_a_key_that_looks_like_a_hash_is_another_one() -> None:
    found = OffsetMap(10)
    long = b"x" * 100
    found.put(long, 1)
    (short,) = found._offsets
    assert len(short) == SHORT_BYTES
    assert found.get(short) == -1
