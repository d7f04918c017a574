"""The dashboard and the alerts: every expression is about metrics and labels that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.web.metrics import METRICS, MetricKind

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "monitoring/dashboard.json").read_text())
ALERTS = (ROOT / "monitoring/alerts.yml").read_text()

SERIES = {
    name: {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
    for metric in METRICS
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "sum", "count")]
        if metric.kind is MetricKind.HISTOGRAM
        else [metric.name]
    )
}
"""The labels of each series, by name."""

EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
    *re.findall(r"^ +expr: (.+)$", ALERTS, flags=re.MULTILINE),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_name_series_and_labels_that_exist(expression: str) -> None:
    names = re.findall(r"steelyard_\w+", expression)
    assert names
    unknown = [name for name in names if name not in SERIES]
    assert not unknown
    for name, matchers in re.findall(r"(steelyard_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+) ?[=!]~?", matchers)) <= SERIES[name]
    together = set.union(*(SERIES[name] for name in names))
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r", ?", labels)) <= together


def test_legends_and_choices_are_about_labels_that_exist() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            by = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            have = (
                set(re.split(r", ?", by[0]))
                if by
                else SERIES[re.findall(r"steelyard_\w+", target["expr"])[0]]
            )
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= have
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", " ".join(map(str, EXPRESSIONS))))
    assert used - {"__rate_interval", "value", "labels"} <= variables


def test_every_metric_of_the_issue_is_on_the_dashboard() -> None:
    text = json.dumps(DASHBOARD)
    on_it = {metric.name for metric in METRICS if metric.name in text}
    left = {metric.name.removeprefix("steelyard_") for metric in METRICS} - {
        name.removeprefix("steelyard_") for name in on_it
    }
    assert left == {
        "broker_info",
        "broker_answer_seconds",
        "series_left_out",
        "broker_start_time_seconds",
        "broker_stood_still_seconds_total",
        "broker_bytes_in_total",
        "broker_kafka_logins_total",
        "broker_connections_displaced_total",
        "queue_begin_offset",
        "ledger_late_records_total",
        "ledger_read_errors_total",
    }


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_the_dashboard_is_not_stale() -> None:
    program = ROOT / "tools/dashboard.py"
    assert subprocess.run([sys.executable, program, "--check"], check=False).returncode == 0
