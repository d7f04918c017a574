"""Apache's Java clients log in with access tokens that an authorization server has signed (KIP-768)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import confluent_kafka
import pytest
from tests.peers.apache import java_environment
from tests.peers.kafka import builds, servers
from tests.peers.kafka.servers import QUICK_START, QUIET
from tests.token_issuer import Issuer, key_set
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.peer

OAUTH = "org.apache.kafka.common.security.oauthbearer"


def produce(folder: Path, address: str, token: str, text: str) -> subprocess.CompletedProcess[str]:
    """The console producer, which reads its token from a file."""
    file = folder / "token.jwt"
    file.write_text(token)
    properties = folder / "client.properties"
    properties.write_text(
        "\n".join(
            (
                "security.protocol=SASL_PLAINTEXT",
                "sasl.mechanism=OAUTHBEARER",
                f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler",
                f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}",
                f'sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required clientId="c" clientSecret="s";',
                "max.block.ms=20000",
            )
        )
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
    jars = builds.jars("server", builds.SERVER)
    return subprocess.run(
        [
            *("java", *QUICK_START, QUIET, allowed, "-cp", f"{jars}/*"),
            *("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", address),
            *("--topic", "Tokens", "--command-config", str(properties)),
        ],
        input=f"{text}\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=java_environment(),
    )


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_token_of_java(tmp_path: Path, algorithm: str) -> None:
    issuer, stranger = Issuer(algorithm), Issuer(algorithm)
    keys = tmp_path / "keys.json"
    keys.write_text(key_set(issuer))
    options = (
        *("--kafka-sasl", "OAUTHBEARER"),
        *("--set", f"kafka.sasl_oauthbearer_jwks_endpoint_url={keys.as_uri()}"),
        *("--set", "kafka.sasl_oauthbearer_expected_issuer=https://auth.example.com"),
        *("--set", "kafka.sasl_oauthbearer_expected_audience=orders-cluster"),
    )
    claims = {"iss": "https://auth.example.com", "aud": "orders-cluster", "scope": "kafka"}
    with servers.run_steelyard(tmp_path, *options, is_waited_for=False) as running:
        address = running.bootstrap
        sent = produce(tmp_path, address, issuer.token("java", seconds=600, **claims), "from java")
        assert sent.returncode == 0, sent.stdout + sent.stderr
        assert "Exception" not in sent.stderr, sent.stderr
        refused = produce(
            tmp_path, address, stranger.token("java", seconds=600, **claims), "forged"
        )
        assert "invalid_token" in refused.stdout + refused.stderr, refused
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token("python", seconds=600, **claims), 4e9),
                "group.id": "Tokens",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["Tokens"])
        message = until(lambda: consumer.poll(1.0))
        assert message.value() == b"from java"
        assert consumer.poll(1.0) is None
        consumer.close()
