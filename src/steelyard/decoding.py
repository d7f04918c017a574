"""Types that threads decode.

msgspec works out a type, and the types of its fields, when it is first decoded, and keeps the
result at the class. Two threads that do so at the same moment can end the process with a
segmentation fault (msgspec 0.22.0): one of them reads what the other has not finished. Every client
has a thread of its own, so any two of them can meet.
"""

from __future__ import annotations

from threading import Lock
from typing import TypeVar

import msgspec

K = TypeVar("K")

_prepared: set[object] = set()
_one_at_a_time = Lock()


def prepared(kind: K) -> K:
    """Return a type for `msgspec.json.decode`, `Decoder` or `convert`; msgspec has worked it out.

    Every type passed to them goes through here (tests/test_decoding.py).
    """
    if kind not in _prepared:
        with _one_at_a_time:
            msgspec.json.Decoder(kind)
        _prepared.add(kind)
    return kind
