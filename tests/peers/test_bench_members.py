"""The members of the bench do what it tells them, in every language: they join, share, write down what comes, and leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.rebalance import TINY
from bench.runs import Run, Scenario, Step
from tests.peers.apache import Missing

from bench import clusters, members

pytestmark = pytest.mark.peer

CLIENTS = (
    "RocketMQ Java 4.9.8",
    "RocketMQ Java 5.3.3",
    "RocketMQ Go",
    "librdkafka, KIP-848",
    "Kafka Java 3.9.2, range",
    "Kafka Java 4.4.0, KIP-848",
    "franz-go, cooperative-sticky",
)
SIZE = replace(TINY, deadline_s=90.0, work_ms=0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    started = clusters.Steelyard(tmp_path_factory.mktemp("bench") / "cluster")
    yield started
    started.close()


@pytest.mark.parametrize("kind", CLIENTS)
def test_two_members_share_the_queues_and_one_leaves(
    kind: str, cluster: clusters.Cluster, tmp_path: Path
) -> None:
    (client,) = (one for one in members.clients(tmp_path) if one.kind == kind)
    pool = members.Pool(client)
    try:
        run = Run(cluster, pool, SIZE, tmp_path / "run", f"{CLIENTS.index(kind)}")
        row = run.play(Scenario(("m0",), (Step("start", ("m1",)), Step("stop", ("m1",)))))
    except Missing as reason:
        pytest.skip(str(reason))
    finally:
        pool.close()
    assert [stage["settled"] for stage in row["stages"]] == [True, True]
    moved = [[(move["old"], move["new"]) for move in stage["moves"]] for stage in row["stages"]]
    assert moved == [[("m0", "m1")] * 2, [("m1", "m0")] * 2]
    assert row["lost"] == 0
    assert row["messages"] > 0
