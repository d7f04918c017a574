"""`test/service.py` of kafka-python, which its source package lacks: by what its fixtures import of it."""

from __future__ import annotations


class ExternalService:
    """A server that somebody else runs."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def dump_logs(self) -> None:
        """There are none here."""


class SpawnedService:
    """A server started out of a distribution of Kafka: nobody does that here."""
