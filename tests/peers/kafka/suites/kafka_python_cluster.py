"""A plugin of pytest that leads kafka-python's integration tests to servers that run already.

Their fixtures start Kafka out of its distribution; here `KafkaFixture.instance` gives the listener that a test asks
for. `SUITE_LISTENERS` has the addresses in JSON, by security protocol; `SUITE_PROTOCOL` is what a test gets that
asks for none; `SUITE_CERTIFICATES` is a folder with the certificate of their authority, `ca-cert`.
"""

from __future__ import annotations

import json
import os

import pytest
from kafka import KafkaAdminClient
from test.integration import fixtures  # type: ignore[import-not-found]


class RunningKafka(fixtures.KafkaFixture):  # type: ignore[misc]
    """A listener that is up; it has the user that the tests log in as."""

    @classmethod
    def instance(
        cls,
        broker_id: int,
        transport: str = os.environ["SUITE_PROTOCOL"],
        sasl_mechanism: str = "SCRAM-SHA-256",
        partitions: int = 4,
        tmp_dir: object = None,
    ) -> RunningKafka:
        """The listener for this security protocol."""
        host, _, port = json.loads(os.environ["SUITE_LISTENERS"])[transport].rpartition(":")
        found = cls(
            host,
            int(port),
            broker_id,
            partitions=partitions,
            transport=transport,
            sasl_mechanism=sasl_mechanism if transport.startswith("SASL") else None,
            external=True,
        )
        if found.ssl_enabled:
            found.ssl_dir = os.environ["SUITE_CERTIFICATES"]
        return found

    def start(self) -> None:
        """It has been."""

    def get_topic_names(self) -> list[str]:
        """The topics there, which the original asks Kafka's own tool for."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return [str(name) for name in admin.list_topics()]


@pytest.fixture(scope="session", autouse=True)
def _running_kafka() -> None:
    fixtures.KafkaFixture.instance = RunningKafka.instance
