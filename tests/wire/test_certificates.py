"""The names of certificates' owners, as Java's X500Principal.getName() writes them."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import Authority

from steelyard.errors import ProtocolError
from steelyard.wire.certificates import distinguished_name


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("names"))


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=alice", "CN=alice"),
        ("/C=DE/O=Orders/OU=Sales/CN=alice", "CN=alice,OU=Sales,O=Orders,C=DE"),
        ("/O=Fish, Chips \\+ Co/CN=al\\\\ice", "CN=al\\\\ice,O=Fish\\, Chips \\+ Co"),
        ("/CN=grüße", "CN=grüße"),
        # an attribute that RFC 2253 has no keyword for
        ("/CN=bob/emailAddress=b@x.y", "1.2.840.113549.1.9.1=#16056240782e79,CN=bob"),
        ("/DC=org/DC=example/UID=7/CN=x", "CN=x,UID=7,DC=example,DC=org"),
    ],
)
def test_names(authority: Authority, subject: str, name: str) -> None:
    pair = authority.sign("name", subject)
    der = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
    assert distinguished_name(der) == name


def test_cut_anywhere(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.sign("cut", "/CN=cut").certificate.read_text())
    for size in range(len(der)):
        with pytest.raises(ProtocolError):
            distinguished_name(der[:size])


@given(st.binary(max_size=200))
def test_nonsense(data: bytes) -> None:
    with suppress(ProtocolError):
        distinguished_name(data)
