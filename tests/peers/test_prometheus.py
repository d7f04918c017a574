"""Prometheus reads what `--http` serves: its linter, its rules and their tests, and the server itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from tests.api.kafka import KafkaServers
from tests.peers.prometheus import Programs, programs
from tests.waiting import until
from tests.web.conftest import Watched, watched
from tests.web.scrapes import get

from steelyard import Producer, PullConsumer
from steelyard.driver.listening import Reservation

pytestmark = pytest.mark.peer

MONITORING = Path(__file__).parents[2] / "monitoring"

cluster = watched
"""A cluster with an HTTP server beside it."""


@pytest.fixture(scope="module")
def tools() -> Programs:
    try:
        return programs()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"no Prometheus: {error}")


def run(tool: str, *arguments: str, text: str = "") -> str:
    ended = subprocess.run(
        [tool, *arguments], input=text, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended
    return ended.stdout + ended.stderr


def test_rules_are_right_and_fire_when_they_should(tools: Programs) -> None:
    alerts = MONITORING / "alerts.yml"
    rules = alerts.read_text().count("- alert: ")
    assert f"{rules} rules found" in run(tools.promtool, "check", "rules", str(alerts))
    assert "SUCCESS" in run(tools.promtool, "test", "rules", str(MONITORING / "alerts_test.yml"))


def test_promtool_finds_nothing_to_improve(tools: Programs, cluster: Watched) -> None:
    fill(cluster.servers)
    text = get(cluster.http, "/metrics")[2]
    assert "steelyard_consumer_group_lag_messages{" in text
    assert run(tools.promtool, "check", "metrics", text=text) == ""


def test_prometheus_stores_what_a_client_knows(
    tools: Programs, cluster: Watched, tmp_path: Path
) -> None:
    fill(cluster.servers)
    with prometheus(tools, cluster.http, tmp_path) as address:
        lag = 'sum(steelyard_consumer_group_lag_messages{group="readers",topic="Prices"})'
        until(lambda: query(address, lag) == [7.0])
        assert query(address, "sum(steelyard_broker_up)") == [2.0]
        assert query(address, 'sum(steelyard_queue_end_offset{topic="Prices"})') == [10.0]
        quantile = "histogram_quantile(0.5, sum by (le) (steelyard_broker_event_loop_delay_seconds_bucket))"
        (delay,) = query(address, quantile)
        assert 0 < delay < 10


def fill(servers: KafkaServers) -> None:
    """Ten messages, of which a group has committed three."""
    with Producer("makers", servers.nameservers) as producer:
        first = producer.send("Prices", b"0").queue
        for number in range(1, 10):
            producer.send("Prices", b"%d" % number, queue=first)
    with PullConsumer("readers", servers.nameservers) as consumer:
        consumer.commit(first, 3)


@contextmanager
def prometheus(tools: Programs, http: str, folder: Path) -> Iterator[str]:
    """Prometheus, scraping every second; the address of its API."""
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"rule_files: ['{MONITORING / 'alerts.yml'}']\n"
        f"scrape_configs: [{{job_name: steelyard, static_configs: [{{targets: ['{http}']}}]}}]\n"
    )
    port = Reservation("127.0.0.1", 0)
    address = f"127.0.0.1:{port.port}"
    port.close()
    command = [
        tools.prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        try:
            yield address
        finally:
            process.terminate()


def query(address: str, expression: str) -> list[float]:
    """The values of an instant query; nothing while Prometheus starts."""
    url = f"http://{address}/api/v1/query?{urlencode({'query': expression})}"
    try:
        with urlopen(url, timeout=30) as answer:
            found = json.load(answer)
    except OSError:
        return []
    assert found["status"] == "success", found
    return [float(each["value"][1]) for each in found["data"]["result"]]
