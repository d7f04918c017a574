"""Encrypted and signed connections, against a peer that wants them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.conftest import Peer, listening

from steelyard.errors import ConfigError, ConnectError
from steelyard.spark.options import read_options
from steelyard.spark.source import RocketMQReader
from steelyard.wire.remoting.acl import signature


@pytest.fixture
def encrypted(certificate: Path) -> Iterator[Peer]:
    """A peer that also wants a certificate from its clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate)
    with listening(context) as peer:
        peer.fill("T", 2, 100)
        yield peer


def rows(peer: Peer, **options: str) -> int:
    given = {"nameservers": peer.address, "subscribe": "T", "retryTimeoutMs": "0"}
    reader = RocketMQReader(read_options(given | options))
    return sum(
        batch.num_rows  # type: ignore[attr-defined]  # Arrow batches stand for rows here
        for one in reader.partitions()
        for batch in reader.read(one)
    )


def test_tls(encrypted: Peer, certificate: Path) -> None:
    trusted = {"tls": "true", "tlsCaFile": str(certificate), "tlsCertFile": str(certificate)}
    assert rows(encrypted, **trusted) == 200
    with pytest.raises(ConnectError, match=r"TLS with .* failed: .*certificate verify failed"):
        rows(encrypted, tls="true")


def test_tls_files_that_cannot_be_used(peer: Peer) -> None:
    with pytest.raises(ConfigError, match=r"TLS: /nowhere\.pem cannot be used"):
        rows(peer, tls="true", tlsCaFile="/nowhere.pem")


def test_every_request_is_signed(peer: Peer) -> None:
    peer.fill("T", 2, 100)
    assert rows(peer, accessKey="me", secretKey="hush", securityToken="token") == 200
    assert len(peer.asked) > 8
    for request in peer.asked:
        assert (request.ext["AccessKey"], request.ext["SecurityToken"]) == ("me", "token")
        expected = signature(dict(request.ext), request.body, b"hush")
        assert request.ext["Signature"] == expected
    peer.asked.clear()
    assert rows(peer) == 200
    assert not any("Signature" in request.ext for request in peer.asked)
