"""`steelyard.Server` with TLS and accounts: it asks its own servers as their operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.certificates import Authority

from steelyard import BrokerError, Producer, ProducerConfig, Server
from steelyard.errors import RouteError, SteelyardError

ACCOUNTS = """\
accounts:
- accessKey: the-brokers
  secretKey: brokers-secret
  admin: true
- accessKey: clerk-one
  secretKey: clerk-secret
  topicPerms: [orders=PUB]
"""


@pytest.mark.parametrize("in_process", [True, False])
def test_enforcing(tmp_path: Path, in_process: bool) -> None:  # a parameter
    authority = Authority(tmp_path / "tls")
    pair = authority.sign("server", "/CN=server")
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server_cert_file": str(pair.certificate),
        "tls.server_key_file": str(pair.key),
        "tls_client.trust_file": str(authority.certificate),
        "acl_file": str(file),
        "acl_access_key": "the-brokers",
    }
    clerk = ProducerConfig(access_key="clerk-one", secret_key="clerk-secret")
    with Server(brokers=2, kafka=False, in_process=in_process, settings=settings) as server:
        server.create_topic("orders")
        server.create_topic("closed")
        context = authority.client_context()
        with Producer("pg", server.nameserver, config=clerk, tls=context) as producer:
            producer.send("orders", b"hello")
            with pytest.raises((BrokerError, RouteError), match="no permission for topic closed"):
                producer.send("closed", b"hello")
        with (
            pytest.raises(SteelyardError),
            Producer("pg", server.nameserver, config=clerk) as plain,
        ):
            plain.send("orders", b"hello", timeout_ms=1_000)
        assert server.rebalances() == []
