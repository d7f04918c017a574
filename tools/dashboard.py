"""Writes monitoring/dashboard.json, a Grafana dashboard, from the panels declared here.

./dev generate                       write it
python tools/dashboard.py --check    say whether it is stale, and fail
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[1] / "monitoring" / "dashboard.json"

SCHEMA_VERSION = 39
"""Of Grafana 10.4; later versions migrate it when they load it."""

SOURCE = {"type": "prometheus", "uid": "${source}"}

WIDTH, HEIGHT = 8, 8
"""Of a panel; a row of the dashboard is 24 wide."""


class Panel(NamedTuple):
    """A panel. `queries`: an expression and its legend each. `unit`: as Grafana calls it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def _quantile(share: float, name: str, by: str, where: str) -> str:
    rate = f"rate(steelyard_{name}_bucket{{{where}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({rate}))"


def _rate(name: str, by: str, where: str) -> str:
    return f"sum by ({by}) (rate(steelyard_{name}{{{where}}}[$__rate_interval]))"


BROKER, GROUP = 'broker=~"$broker"', 'group=~"$group"'

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Cluster",
        (
            Panel(
                "Servers that answer",
                "none",
                (
                    ("steelyard_nameserver_up", "{{nameserver}}"),
                    ("steelyard_broker_up", "{{broker}}"),
                    ("steelyard_kafka_listener_ready", "{{broker}}, Kafka"),
                    (
                        "steelyard_kafka_groups_without_coordinator > 0",
                        "{{broker}}, Kafka groups without a coordinator",
                    ),
                ),
            ),
            Panel(
                "Messages in and out",
                "cps",
                (
                    (_rate("broker_messages_in_total", "broker", BROKER), "{{broker}} in"),
                    (_rate("broker_messages_out_total", "broker", BROKER), "{{broker}} out"),
                ),
            ),
            Panel(
                "Bytes of clients",
                "Bps",
                (
                    (
                        _rate("broker_received_bytes_total", "broker, dialect", BROKER),
                        "{{broker}} {{dialect}} received",
                    ),
                    (
                        _rate("broker_sent_bytes_total", "broker, dialect", BROKER),
                        "{{broker}} {{dialect}} sent",
                    ),
                ),
            ),
            Panel(
                "Requests",
                "reqps",
                ((_rate("broker_requests_total", "dialect, request", BROKER), "{{request}}"),),
            ),
            Panel(
                "Refused requests",
                "reqps",
                (
                    (
                        _rate("broker_refused_requests_total", "dialect, error", BROKER),
                        "{{dialect}} {{error}}",
                    ),
                ),
            ),
            Panel(
                "Messages by topic",
                "cps",
                (
                    (
                        f"sum by (topic) (deriv(steelyard_queue_end_offset{{{BROKER}}}[5m]))",
                        "{{topic}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Groups",
        (
            Panel(
                "Lag in messages",
                "short",
                (
                    (
                        f"sum by (group, topic) (steelyard_consumer_group_lag_messages{{{GROUP}}})",
                        "{{group}} {{topic}}",
                    ),
                    (
                        "sum by (group, topic) (steelyard_kafka_consumer_group_lag_messages"
                        f"{{{GROUP}}})",
                        "{{group}} {{topic}} (Kafka)",
                    ),
                ),
            ),
            Panel(
                "Lag in time",
                "s",
                (
                    (
                        f"max by (group, topic) (steelyard_consumer_group_lag_seconds{{{GROUP}}})",
                        "{{group}} {{topic}}",
                    ),
                    (
                        "max by (group, topic) (steelyard_kafka_consumer_group_lag_seconds"
                        f"{{{GROUP}}})",
                        "{{group}} {{topic}} (Kafka)",
                    ),
                ),
            ),
            Panel(
                "Queues that are furthest behind",
                "short",
                (
                    (
                        f"topk(10, steelyard_consumer_group_lag_messages{{{GROUP}}})",
                        "{{group}} {{topic}} {{broker}}-{{queue_id}}",
                    ),
                    (
                        f"topk(10, steelyard_kafka_consumer_group_lag_messages{{{GROUP}}})",
                        "{{group}} {{topic}}-{{partition}}",
                    ),
                ),
            ),
            Panel(
                "Members",
                "none",
                (
                    (
                        f"max by (group) (steelyard_consumer_group_members{{{GROUP}}})",
                        "{{group}}",
                    ),
                    (
                        f"max by (group) (steelyard_kafka_consumer_group_members{{{GROUP}}})",
                        "{{group}} (Kafka)",
                    ),
                ),
            ),
            Panel(
                "States of Kafka groups",
                "none",
                (("count by (state) (steelyard_kafka_consumer_group_info)", "{{state}}"),),
            ),
            Panel(
                "Messages consumed",
                "cps",
                (
                    (
                        f"sum by (group) (deriv(steelyard_consumer_group_offset{{{GROUP}}}[5m]))",
                        "{{group}}",
                    ),
                    (
                        "sum by (group) (deriv(steelyard_kafka_consumer_group_offset"
                        f"{{{GROUP}}}[5m]))",
                        "{{group}} (Kafka)",
                    ),
                ),
            ),
        ),
    ),
    (
        "Rebalances",
        (
            Panel(
                "Rebalances by trigger",
                "none",
                (
                    (
                        "sum by (group, trigger) (increase(steelyard_rebalances_total"
                        f"{{{GROUP}}}[5m]))",
                        "{{group}} {{trigger}}",
                    ),
                ),
            ),
            Panel(
                "Pause of queues",
                "s",
                (
                    (
                        _quantile(0.5, "rebalance_pause_seconds", "group, kind", GROUP),
                        "{{group}} {{kind}} median",
                    ),
                    (
                        _quantile(0.99, "rebalance_pause_seconds", "group, kind", GROUP),
                        "{{group}} {{kind}} 99 %",
                    ),
                ),
            ),
            Panel(
                "Messages processed twice",
                "short",
                tuple(
                    (
                        f"sum by (group) (increase(steelyard_rebalance_{name}_total"
                        f"{{{GROUP}}}[5m]))",
                        "{{group}} " + legend,
                    )
                    for name, legend in (
                        ("redelivered_messages", "delivered again"),
                        ("reprocessed_messages_min", "processed again, at least"),
                        ("reprocessed_messages_max", "at most"),
                    )
                ),
            ),
        ),
    ),
    (
        "Brokers",
        (
            Panel(
                "Delay of the event loop",
                "s",
                tuple(
                    (
                        _quantile(share, "broker_event_loop_delay_seconds", "broker", BROKER),
                        "{{broker}} " + legend,
                    )
                    for share, legend in ((0.5, "median"), (0.99, "99 %"))
                ),
            ),
            Panel(
                "Time of a sync to the disk",
                "s",
                tuple(
                    (
                        _quantile(share, "broker_fsync_seconds", "broker", BROKER),
                        "{{broker}} " + legend,
                    )
                    for share, legend in ((0.5, "median"), (0.99, "99 %"))
                ),
            ),
            Panel(
                "Parked requests",
                "none",
                ((f"steelyard_broker_parked_requests{{{BROKER}}}", "{{broker}} {{kind}}"),),
            ),
            Panel(
                "Log sizes",
                "bytes",
                (
                    (
                        f"sum by (broker, topic) (steelyard_queue_size_bytes{{{BROKER}}})",
                        "{{broker}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Free space of disks",
                "percentunit",
                (
                    (
                        f"steelyard_broker_disk_free_bytes{{{BROKER}}}"
                        f" / steelyard_broker_disk_size_bytes{{{BROKER}}}",
                        "{{broker}}",
                    ),
                ),
            ),
            Panel(
                "Connections",
                "none",
                ((f"steelyard_broker_connections{{{BROKER}}}", "{{broker}} {{dialect}}"),),
            ),
            Panel(
                "Processor time",
                "percentunit",
                ((_rate("broker_cpu_seconds_total", "broker", BROKER), "{{broker}}"),),
            ),
            Panel(
                "Memory",
                "bytes",
                ((f"steelyard_broker_resident_memory_bytes{{{BROKER}}}", "{{broker}}"),),
            ),
            Panel(
                "Skipped, damaged, failed",
                "none",
                tuple(
                    (
                        f"increase(steelyard_broker_{name}_total{{{BROKER}}}[5m])",
                        "{{broker}} " + legend,
                    )
                    for name, legend in (
                        ("skipped_messages", "skipped messages"),
                        ("damaged_entries", "damaged entries"),
                        ("internal_errors", "internal errors"),
                        ("connections_refused", "refused connections"),
                    )
                ),
            ),
        ),
    ),
)


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS:
        made.append(_row(len(made) + 1, title, top))
        top += 1
        for number, panel in enumerate(panels):
            column, line = number % 3, number // 3
            made.append(_panel(len(made) + 1, panel, column * WIDTH, top + line * HEIGHT))
        top += -(-len(panels) // 3) * HEIGHT
    return made


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    return {
        "collapsed": False,
        "gridPos": place,
        "id": number,
        "panels": [],
        "title": title,
        "type": "row",
    }


def _panel(number: int, panel: Panel, left: int, top: int) -> dict[str, Any]:
    return {
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": left, "y": top},
        "id": number,
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "datasource": SOURCE,
                "editorMode": "code",
                "expr": expression,
                "legendFormat": legend,
                "range": True,
                "refId": chr(ord("A") + position),
            }
            for position, (expression, legend) in enumerate(panel.queries)
        ],
        "title": panel.title,
        "type": panel.kind,
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "definition": query,
        "includeAll": True,
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it."""
    groups = '{__name__=~"steelyard_(kafka_)?consumer_group_members"}'
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "editable": True,
        "graphTooltip": 1,
        "panels": _panels(),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["steelyard"],
        "templating": {
            "list": [
                source,
                _choice("broker", "label_values(steelyard_broker_up, broker)"),
                _choice("group", f"label_values({groups}, group)"),
            ]
        },
        "time": {"from": "now-1h", "to": "now"},
        "title": "Steelyard",
        "uid": "steelyard",
    }


def main() -> int:
    """Write the file; with --check say whether it is stale."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
        return 0
    if FILE.read_text() == text:
        return 0
    print(f"{FILE.name} is stale: run ./dev generate")
    return 1


if __name__ == "__main__":
    sys.exit(main())
