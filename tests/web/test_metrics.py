"""The declarations of the metrics, and everything that goes by them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from steelyard.web.exposition import expose
from steelyard.web.metrics import METRICS, Metric, MetricKind, page
from steelyard.web.series import Sample
from steelyard.wire.figures import DURATION_BOUNDS, Durations

ROOT = Path(__file__).parents[2]


def test_the_page_is_not_stale() -> None:
    written = (ROOT / "docs/METRICS.md").read_text()
    assert written == page(), "run ./dev generate"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_habits(metric: Metric) -> None:
    assert re.fullmatch(r"steelyard_[a-z]+(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.kind is not MetricKind.HISTOGRAM or metric.name.endswith("_seconds")
    assert not re.search(r"_(ms|millis|kb|count|bucket|sum)(_|$)", metric.name)
    assert len(set(metric.labels)) == len(metric.labels)
    assert metric.help.endswith((".", "0.", "1."))


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_durations_count_into_the_bucket_of_their_upper_bound() -> None:
    durations = Durations()
    for seconds in (-1.0, 0.0, 0.0005, 0.00051, 0.1, 11.0):
        durations.add(seconds)
    counts = dict(zip((*DURATION_BOUNDS, None), durations.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {
        0.0005: 3,
        0.001: 1,
        0.1: 1,
        None: 1,
    }
    assert durations.sum_seconds == pytest.approx(11.10101)


def test_texts_of_each_kind_and_labels_of_any_text() -> None:
    hostile = 'a"b\\c\nd'
    gauge = Metric("steelyard_x_bytes", MetricKind.GAUGE, ("group",), "A gauge.")
    with pytest.raises(AssertionError, match="steelyard_x_bytes"):
        expose([Sample(gauge, (hostile,), 1)], "")
    members = next(each for each in METRICS if each.name.endswith("kafka_consumer_group_members"))
    text, kind = expose([Sample(members, (hostile,), 3)], "")
    assert kind.startswith("text/plain")
    assert text.decode().splitlines()[-1] == (
        'steelyard_kafka_consumer_group_members{group="a\\"b\\\\c\\nd"} 3.0'
    )
