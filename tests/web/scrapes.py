"""Scrapes of an HTTP server, read with Prometheus' own parser."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


class Scrape:
    """What `/metrics` said."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series: Series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def all(self, name: str, **labels: str) -> list[float]:
        """The values of the series of that name that have these labels, among others."""
        wanted = set(labels.items())
        return [
            value for (each, have), value in self.series.items() if each == name and wanted <= have
        ]

    def total(self, name: str, **labels: str) -> float:
        return sum(self.all(name, **labels))


def get(address: str, path: str, accept: str = "text/plain") -> tuple[int, str, str]:
    """Status, content type and text of a path."""
    request = Request(f"http://{address}{path}", headers={"Accept": accept})
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def scrape(address: str) -> Scrape:
    status, _, text = get(address, "/metrics")
    assert status == 200
    return Scrape(text)


def readiness(address: str) -> tuple[int, list[str]]:
    """The status of `/readyz`, and what it says is missing."""
    status, _, text = get(address, "/readyz")
    body = json.loads(text)
    assert body["ready"] == (status == 200)
    return status, body["missing"]
