from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import MessageError
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.properties import (
    Properties,
    closed,
    decode_properties,
    encode_properties,
    property_of,
)

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
ANY = st.lists(st.sampled_from(["\x01", "\x02", "a", "b", "ab", "\xff", ""]), max_size=12).map(
    "".join
)


@given(st.dictionaries(PLAIN, PLAIN))
def test_round_trip(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert list(decode_properties(text).items()) == list(properties.items())
    assert decode_properties(text.encode()) == properties
    for name, value in properties.items():
        assert property_of(text.encode(), name) == value


def test_golden(golden: dict[str, str]) -> None:
    """The raw properties of the SEND_MESSAGE_V2 header, as 5.x writes them."""
    text = encode_properties(
        {
            "p": "v",
            "KEYS": "k1 k2",
            "UNIQ_KEY": "7F0000010001000000000000000000AA",
            "WAIT": "true",
            "TAGS": "TagA",
        }
    )
    assert text.encode().hex().upper() in golden["batch encode (1 msg)"]


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),  # 4.x leaves the end out
        ("a\x01b\x02", {"a": "b"}),
        ("a\x02b\x01c\x02", {"b": "c"}),
        ("\x01b\x02a\x01\x02", {}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01b\x02a\x01\x02", {"a": "b"}),
    ],
)
def test_what_java_makes_of_it(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


@given(ANY, st.sampled_from(["a", "b", "ab", "\xff"]))
def test_one_property_is_found_as_by_decoding_all(text: str, name: str) -> None:
    assert property_of(text.encode(), name) == decode_properties(text).get(name)


def test_bytes_that_are_no_utf8_become_the_replacement_character() -> None:
    assert decode_properties(b"a\x01\xff\x02") == {"a": "\ufffd"}
    assert property_of(b"a\x01\xff\x02", "a") == "\ufffd"


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02"}])
def test_separators_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageError, match="separator"):
        encode_properties(properties)


def test_a_value_may_contain_the_first_separator() -> None:
    assert decode_properties(encode_properties({"a": "b\x01c"})) == {"a": "b\x01c"}


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("", ""),
        ("a\x01b", "a\x01b\x02"),
        ("a\x01b\x02", "a\x01b\x02"),
    ],
)
def test_the_last_value_is_closed(sent: str, text: str) -> None:
    assert closed(sent) == text


def test_a_text_is_decoded_once_and_only_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []

    def decode(text: str) -> dict[str, str]:
        decoded.append(text)
        return decode_properties(text)

    monkeypatch.setattr(props, "decode_properties", decode)
    properties = Properties("a\x01b\x02c\x01d\x02")
    assert not decoded
    assert properties.without("x") is properties
    assert properties.values == {"a": "b", "c": "d"}
    without = properties.without("a")
    assert (without.text, without.values) == ("c\x01d\x02", {"c": "d"})
    assert decoded == [properties.text]


def test_properties_of_values_are_checked() -> None:
    assert Properties.of({"a": "b"}).text == "a\x01b\x02"
    with pytest.raises(MessageError):
        Properties.of({"a": "b\x02"})
