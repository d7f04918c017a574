"""How a message's body, keys and headers are shown. Pure."""

from __future__ import annotations

import msgspec

from steelyard.web.console.answers import BodyView

TEXT_BYTES_MAX = 64 * 1024
"""Most bytes of a body that are shown as text."""

HEX_BYTES_MAX = 512
"""Most bytes of a body that are shown in hexadecimal."""

UTF_8_BYTES_MAX = 4
"""Most bytes of a character."""


def body_view(body: bytes) -> BodyView:
    """Return a body as text, if it is UTF-8, and its beginning in hexadecimal."""
    is_cut = len(body) > TEXT_BYTES_MAX
    return BodyView(
        text=_text(body[:TEXT_BYTES_MAX], is_cut=is_cut),
        json=not is_cut and is_json(body),
        hex=body[:HEX_BYTES_MAX].hex(),
        size=len(body),
        cut=is_cut,
    )


def _text(part: bytes, *, is_cut: bool) -> str | None:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(part) - UTF_8_BYTES_MAX:
            return part[: error.start].decode()  # the cut went through a character
        return None


def is_json(body: bytes) -> bool:
    """Return whether a body is one document of JSON."""
    if not body.strip():
        return False
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def shown(value: bytes | None) -> str | None:
    """Return a key or a header as text, with what is not UTF-8 escaped; None for none."""
    return None if value is None else value.decode(errors="backslashreplace")
