"""The offset of the last entry of each key, in bounded memory.

A key of SHORT_BYTES or more is known by its BLAKE2b hash of that many bytes, which nobody can make
two keys share. (Kafka knows keys by their MD5.) Source: storage/internals/log/SkimpyOffsetMap.java.
"""

from __future__ import annotations

from hashlib import blake2b

SHORT_BYTES = 20


class OffsetMap:
    """The last offsets of at most `keys_max` keys; some 150 bytes each.

    `latest`: all entries up to this offset are known; those behind it are not to be judged.
    """

    def __init__(self, keys_max: int) -> None:
        assert keys_max > 0
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        self.latest = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Record that the key's last entry is at `offset`; return False if there is no room."""
        short = _short(key)
        if len(self._offsets) >= self._keys_max and short not in self._offsets:
            return False
        self._offsets[short] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the offset of the key's last entry, -1 if it is not known."""
        return self._offsets.get(_short(key), -1)


def _short(key: bytes) -> bytes:
    return key if len(key) < SHORT_BYTES else blake2b(key, digest_size=SHORT_BYTES).digest()
