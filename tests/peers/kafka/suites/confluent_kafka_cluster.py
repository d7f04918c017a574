"""A plugin of pytest that leads confluent-kafka's integration tests to a server that runs already.

Their fixtures start Kafka with the package trivup, and import the client of a schema registry; neither is here.
`SUITE_CLIENT` has the configuration of clients in JSON.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

REGISTRY = "confluent_kafka.schema_registry"
for absent in (
    *("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"),
    *(REGISTRY, f"{REGISTRY}._async", f"{REGISTRY}._async.schema_registry_client"),
    f"{REGISTRY}.schema_registry_client",
    *("tests.common._async.consumer", "tests.common._async.producer"),
):
    sys.modules[absent] = MagicMock()
sys.modules["confluent_kafka.avro"] = ModuleType("confluent_kafka.avro")
sys.modules["confluent_kafka.avro"].AvroConsumer = object  # type: ignore[attr-defined]


def pytest_sessionstart() -> None:
    """Have all fixtures use the server."""
    conftest: Any = import_module("tests.integration.conftest")  # of the suite
    original = conftest.create_byo_cluster

    def cluster(_conf: object = None) -> Any:
        return original(json.loads(os.environ["SUITE_CLIENT"]))

    conftest.create_trivup_cluster = conftest.create_sasl_cluster = cluster
