"""Encrypted and signed connections, against a peer that wants them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import Peer, listening, stores

from steelyard.errors import ConfigError, ConnectError
from steelyard.spark.options.reading import read_options
from steelyard.spark.source import RocketMQReader
from steelyard.spark.writing.sink import batch_writer
from steelyard.wire.remoting.acl import signature
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command


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


def write(peer: Peer, **options: str) -> list[bytes]:
    """Write a row with a writer that was sent to a worker; the bodies of the batches that came."""
    stored = stores(peer, "W")
    given = {"nameservers": peer.address, "topic": "W", "retryTimeoutMs": "0"}
    schema = StructType([StructField("body", BinaryType())])
    writer = batch_writer(given | options, schema, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"body": [b"a row"]})
    cloudpickle.loads(cloudpickle.dumps(writer)).write(iter([rows]))  # type: ignore[no-untyped-call]
    return stored


def test_tls(encrypted: Peer, certificate: Path) -> None:
    trusted = {"tls": "true", "tlsCaFile": str(certificate), "tlsCertFile": str(certificate)}
    assert rows(encrypted, **trusted) == 200
    assert write(encrypted, **trusted) == [b"a row"]
    with pytest.raises(ConnectError, match=r"TLS with .* failed: .*certificate verify failed"):
        rows(encrypted, tls="true")
    with pytest.raises(ConnectError, match=r"TLS with .* failed: .*certificate verify failed"):
        write(encrypted, tls="true")


def test_tls_files_that_cannot_be_used(peer: Peer) -> None:
    with pytest.raises(ConfigError, match=r"TLS: /nowhere\.pem cannot be used"):
        rows(peer, tls="true", tlsCaFile="/nowhere.pem")


KEYS = {"accessKey": "me", "secretKey": "hush", "securityToken": "token"}


def are_signed(requests: list[Command]) -> bool:
    """Whether all are, with KEYS; clears the list."""
    taken = requests.copy()
    requests.clear()
    return all(
        (request.ext["AccessKey"], request.ext["SecurityToken"]) == ("me", "token")
        and request.ext["Signature"] == signature(dict(request.ext), request.body, b"hush")
        for request in taken
    )


def test_every_request_is_signed(peer: Peer) -> None:
    peer.fill("T", 2, 100)
    assert rows(peer, **KEYS) == 200
    assert len(peer.asked) > 8
    assert are_signed(peer.asked)
    assert write(peer, **KEYS) == [b"a row"]
    codes = {request.code for request in peer.asked}
    assert codes == {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_BATCH_MESSAGE}
    assert are_signed(peer.asked)
    assert rows(peer) == 200
    write(peer)
    assert not any("Signature" in request.ext for request in peer.asked)
