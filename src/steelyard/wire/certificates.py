"""The distinguished name of a certificate's owner, written as Kafka writes it.

Kafka's brokers name a client by the subject of its certificate, as Java's
`X500Principal.getName()` formats it (RFC 2253): the most specific attribute first, those that RFC
2253 lists by their keywords and all others by number, with the value's encoding in hexadecimal
(`1.2.840.113549.1.9.1=#16096f...` for an e-mail address).

Only the path to the subject is read (RFC 5280 section 4.1, X.690); the certificate was verified by
whoever passes it. Source: clients/common/security/auth/DefaultKafkaPrincipalBuilder.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from steelyard.errors import ProtocolError

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
"""Encodings by the tag of a string: UTF8String, PrintableString, TeletexString, IA5String, ..."""
_EXPLICIT_VERSION = 0xA0


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises ProtocolError for anything else."""
    try:
        (whole,) = _items(certificate)
        signed = next(_items(whole[1]))
        fields = list(_items(signed[1]))
        if fields[0][0] == _EXPLICIT_VERSION:
            fields = fields[1:]
        # serial number, signature, issuer, validity, subject
        parts = [_relative(part) for _, part in _items(fields[4][1])]
    except (IndexError, ValueError, StopIteration, UnicodeDecodeError):
        raise ProtocolError("the certificate is not in DER") from None
    return ",".join(reversed(parts))


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each element. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("a length of an unusual form")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise ValueError("an element is cut off")
        yield tag, data[at : at + size]
        at += size


def _relative(part: bytes) -> str:
    """Format one relative name: an attribute, or several joined by `+`."""
    return "+".join(_attribute(content) for _, content in _items(part))


def _attribute(content: bytes) -> str:
    (_, kind), (tag, value) = _items(content)
    number = _number(kind)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        # An unusual length of more than 127 bytes does not occur in names that authorities issue.
        size = bytes([len(value)]) if len(value) < 128 else b"\x82" + len(value).to_bytes(2, "big")
        return f"{keyword or number}=#{(bytes([tag]) + size + value).hex()}"
    return f"{keyword}={_escaped(value.decode(_TEXTS[tag]))}"


def _number(encoded: bytes) -> str:
    """Format an object identifier."""
    arcs = [encoded[0] // 40, encoded[0] % 40] if encoded[0] < 80 else [2, encoded[0] - 80]
    arc = 0
    for byte in encoded[1:]:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    return ".".join(map(str, arcs))


def _escaped(text: str) -> str:
    """Escape what separates attributes, and blanks at either end (RFC 2253 section 2.4)."""
    found = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in text)
    if found.startswith(("#", " ")):
        found = "\\" + found
    if found.endswith(" ") and len(text) > 1:
        found = found[:-1] + "\\ "
    return found
