"""What the console computes by itself: how bodies are shown, cursors, walks through queues, rings, and rates."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.errors import ConfigError
from steelyard.web.console import lag, walk
from steelyard.web.console.answers import BrowsedMessage
from steelyard.web.console.bodies import HEX_BYTES_MAX, TEXT_BYTES_MAX, body_view, is_json, shown
from steelyard.web.console.contract import GroupId
from steelyard.web.console.lag import LagRings
from steelyard.web.console.places import AtCursor, AtOffset, AtTime, Edge, beginning, cursor
from steelyard.web.console.rates import Rates
from steelyard.web.console.walk import Read, last_each
from steelyard.web.console.words import in_seconds, named

GROUP: GroupId = ("kafka", "g")


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text", "json_too", "cut"),
    [
        (b"", "", False, False),
        (b'{"a": [1, null]}', '{"a": [1, null]}', True, False),
        (b"17", "17", True, False),
        (b"  ", "  ", False, False),
        ("grüße".encode(), "grüße", False, False),
        (b"\xff\x00", None, False, False),
        (b"x" * (TEXT_BYTES_MAX + 1), "x" * TEXT_BYTES_MAX, False, True),
    ],
)
def test_a_body_is_text_json_or_bytes(
    body: bytes, text: str | None, json_too: bool, cut: bool
) -> None:
    view = body_view(body)
    assert (view.text, view.json, view.cut, view.size) == (text, json_too, cut, len(body))
    assert bytes.fromhex(view.hex) == body[:HEX_BYTES_MAX]


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("before", range(4))
def test_a_cut_through_a_character_leaves_out_the_character(character: str, before: int) -> None:
    text = "x" * (TEXT_BYTES_MAX - before) + character * 10
    view = body_view(text.encode())
    assert view.text is not None
    assert text.startswith(view.text)
    assert TEXT_BYTES_MAX - len(view.text.encode()) < len(character.encode())
    assert view.cut


def test_deep_json_is_text() -> None:
    assert not is_json(b"[" * 60_000)
    assert body_view(b"[" * 60_000).text == "[" * 60_000


def test_keys_and_headers_that_are_no_text_are_escaped() -> None:
    assert shown(None) is None
    assert shown(b"k\xff") == "k\\xff"


# -- where browsing begins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        ("0", AtOffset(0)),
        ("99999999999", AtOffset(99_999_999_999)),
        ("100000000000", AtTime(100_000_000_000)),
        ("9" * 50, AtTime(2**53)),
        ("1970-01-01T00:00:01Z", AtTime(1000)),
        ("1970-01-01T01:00:01+01:00", AtTime(1000)),
        ("1970-01-01 00:00:01", AtTime(1000)),
        ("1960-01-01", AtTime(0)),
        ("next:0=5", AtCursor({"0": 5})),
        ("next:broker-a/0=5,broker-b/1=0", AtCursor({"broker-a/0": 5, "broker-b/1": 0})),
    ],
)
def test_where_to_begin(text: str, expected: object) -> None:
    assert beginning(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "x", "next:", "next:0", "next:0=-1", "next:=1", "²"])
def test_what_is_no_place_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="from is"):
        beginning(text)


def test_a_cursor_is_read_again() -> None:
    offsets = {"broker-a/0": 17, "broker-a/1": 0}
    found = beginning(cursor("T", {f"T/{name}": offset for name, offset in offsets.items()}))
    assert found == AtCursor(offsets)
    keys = ["T/broker-a/0", "T/broker-a/1", "T/broker-b/0"]
    assert found.starts("T", keys) == dict(zip(keys, (17, 0, 0), strict=True))


# -- walks -----------------------------------------------------------------------------------------


def message(queue: str, offset: int, at: int) -> BrowsedMessage:
    return BrowsedMessage(
        id=None,
        key=None,
        keys=[],
        tag=None,
        queue=queue,
        offset=offset,
        stored_at=at,
        born_at=None,
        size=0,
        properties={},
        headers=[],
        body=None,
    )


queues = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(0, 50), max_size=12), min_size=1
)


@settings(max_examples=examples(40))
@given(queues, st.integers(1, 5), st.integers(1, 40), st.integers(1, 3))
def test_a_walk_in_parts_is_the_whole(
    times: dict[str, list[int]], batch: int, limit: int, every: int
) -> None:
    """Cursors lose and repeat nothing, whatever the times; sorted times give a sorted walk."""

    async def read(key: str, offset: int) -> Read:
        end = min(offset + batch, len(times[key]))
        found = [message(key, number, times[key][number]) for number in range(offset, end)]
        return Read(found, end, end == len(times[key]))

    def wanted(one: BrowsedMessage) -> bool:
        return one.offset % every == 0

    async def all_of_it() -> list[BrowsedMessage]:
        found: list[BrowsedMessage] = []
        offsets = dict.fromkeys(times, 0)
        while True:
            part = await walk.walk(offsets, read, wanted, limit)
            found += part.messages
            if part.is_end:
                return found
            assert part.messages or part.offsets != offsets
            offsets = dict(part.offsets)

    found = asyncio.run(all_of_it())
    for key, of_queue in times.items():
        offsets = [one.offset for one in found if one.queue == key]
        assert offsets == list(range(0, len(of_queue), every))
    if all(of_queue == sorted(of_queue) for of_queue in times.values()):
        assert [one.stored_at for one in found] == sorted(one.stored_at for one in found)


def test_a_walk_gives_up_after_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "SCANNED_MAX", 100)

    async def read(key: str, offset: int) -> Read:
        return Read([message(key, offset + n, 0) for n in range(10)], offset + 10, False)

    found = asyncio.run(walk.walk({"a": 0}, read, lambda _: False, 1))
    assert (found.messages, found.offsets, found.is_end) == ([], {"a": 100}, False)


def test_the_last_messages_of_many_queues() -> None:
    assert last_each(50, 1, is_filtered=False) == 50
    assert last_each(50, 100, is_filtered=False) == 10
    assert last_each(50, 4, is_filtered=True) == walk.SCANNED_MAX // 4
    assert last_each(50, 0, is_filtered=False) == 50


# -- rings, rates, words ---------------------------------------------------------------------------


def test_rings_are_bounded_and_keep_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "SAMPLES_MAX", 3)
    monkeypatch.setattr(lag, "GROUPS_MAX", 2)
    rings = LagRings()
    for at in range(5):
        rings.add(GROUP, at, at, None, {"t/0": at, "t/1": None if at < 4 else 7})
    kept = rings.history(GROUP, 0)
    assert (kept.times, kept.total, kept.wait_ms) == ([2, 3, 4], [2, 3, 4], [None] * 3)
    assert kept.queues == {"t/0": [2, 3, 4], "t/1": [None, None, 7]}
    assert rings.history(GROUP, 4).queues == {"t/0": [4], "t/1": [7]}
    for name in ("h", "i"):
        rings.add(("kafka", name), 9, 0, 0, {})
    assert rings.history(GROUP, 0).times == []
    assert rings.history(("kafka", "i"), 0).times == [9]


def test_a_queue_that_is_gone_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "SAMPLES_MAX", 2)
    monkeypatch.setattr(lag, "QUEUES_MAX", 1)
    rings = LagRings()
    rings.add(GROUP, 0, 1, 0, {"old": 1, "too many": 1})
    assert set(rings.history(GROUP, 0).queues) == {"old"}
    for at in (1, 2):
        rings.add(GROUP, at, 1, 0, {})
    assert rings.history(GROUP, 0).queues == {}
    rings.add(GROUP, 3, 1, 0, {"new": 5})
    assert rings.history(GROUP, 0).queues == {"new": [None, 5]}


def test_rates_need_two_readings_and_begin_anew_with_the_counter() -> None:
    rates = Rates()
    assert rates.rate("x", 100, 10.0) is None
    assert rates.rate("x", 105, 10.1) is None
    assert rates.rate("x", 120, 12.0) == 10.0
    assert rates.rate("x", 121, 12.1) == 10.0
    assert rates.rate("x", 3, 14.0) is None
    assert rates.rate("x", 5, 15.0) == 2.0


def test_words() -> None:
    assert named("m", "/10.0.0.1") == "m (10.0.0.1)"
    assert named("m", "") == "m"
    assert in_seconds(-5) == "0.0 s"
    assert json.dumps(in_seconds(1234)) == '"1.2 s"'
