"""What makes groups rebalance, and who is expelled when: the scenarios of the peer tests with the clients that PyPI has.

All clients go through a scenario at the same time, each in a group of its own: most of it is waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.peers.kafka import test_mixed_groups, test_rebalance, test_static_members, test_timeouts
from tests.peers.kafka.members import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, Client
from tests.peers.kafka.servers import Running

CLASSIC = (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA)
CLIENTS = (*CLASSIC, LIBRDKAFKA.using("uniform"))

Scenario = Callable[[Running, Client, str, Path], None]


@pytest.mark.parametrize(
    "scenario",
    [
        test_rebalance.test_members_come_and_go,
        test_rebalance.test_more_partitions_and_topics,
        test_timeouts.test_silent_members_are_expelled,
        test_static_members.test_a_static_member_comes_back,
    ],
    ids=lambda scenario: scenario.__name__.removeprefix("test_"),
)
def test_every_client(kafka: Running, scenario: Scenario, name: str, tmp_path: Path) -> None:
    clients = (
        CLASSIC if scenario is test_static_members.test_a_static_member_comes_back else CLIENTS
    )
    with ThreadPoolExecutor(len(clients)) as pool:
        runs = []
        for number, client in enumerate(clients):
            folder = tmp_path / str(number)
            folder.mkdir()
            runs.append(pool.submit(scenario, kafka, client, f"{name}x{number}", folder))
    for run in runs:
        run.result()


def test_all_clients_share_a_topic(kafka: Running, name: str, tmp_path: Path) -> None:
    """One of each in one group; everyone leads once."""
    members = tuple(client.using("range") for client in CLASSIC)
    test_mixed_groups.test_members_of_all_clients_share_a_topic(kafka, members, name, tmp_path)
