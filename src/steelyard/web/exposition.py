"""Samples as texts for Prometheus: its text format or OpenMetrics, as the scraper prefers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from steelyard.web.metrics import METRICS, Metric, MetricKind
from steelyard.web.series import Pauses, Sample
from steelyard.wire.figures import Durations

_BOUNDS = {kind: (*map(floatToGoString, kind.bounds), "+Inf") for kind in (Durations, Pauses)}


class _Scrape:
    """The collector of one scrape."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        by_metric: dict[str, list[Sample]] = {}
        for sample in self._samples:
            by_metric.setdefault(sample.metric.name, []).append(sample)
        for metric in METRICS:
            found = by_metric.pop(metric.name, [])
            if found:
                yield _family(metric, found)
        assert not by_metric, f"not among METRICS: {sorted(by_metric)}"


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for sample in samples:
            assert isinstance(sample.value, Durations)
            bounds = _BOUNDS[type(sample.value)]
            buckets = [*zip(bounds, accumulate(sample.value.counts), strict=True)]
            histogram.add_metric(sample.labels, buckets, sample.value.sum_seconds)
        return histogram
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for sample in samples:
        assert not isinstance(sample.value, Durations)
        family.add_metric(sample.labels, sample.value)
    return family


def expose(samples: Iterable[Sample], accept: str) -> tuple[bytes, str]:
    """Return the text of all samples, and its content type. `accept`: the header of that name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(samples))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
