"""What the command line tells of streams groups (KIP-1071) and share groups (KIP-932), beside what members are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.admin.conftest import Run
from tests.api.kafka import KafkaServers
from tests.waiting import until
from tests.web.console.group_members import ShareReader, begin_share_group, streams_threads

from steelyard.admin.described_groups import streams_document
from steelyard.admin.kafka_groups import report_text
from steelyard.groups.kafka.report import KafkaGroupReport


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("brokers"))
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def nameservers(servers: KafkaServers) -> str:
    return servers.nameservers


def document(run: Run, command: str, *options: str) -> Any:
    return json.loads("\n".join(run(command, *options, "--json")))


def names(tasks: frozenset[tuple[str, int]]) -> str:
    return ", ".join(f"{name}_{number}" for name, number in sorted(tasks))


def test_a_streams_group(servers: KafkaServers, run: Run) -> None:
    source = servers.topic("lines", 2)
    servers.fill(source, range(6), partitions=2)
    with streams_threads(servers.bootstrap, "app", source, "one", "two") as threads:

        def settled() -> bool:
            before = [(one.active, one.standby) for one in threads]
            for each in threads:
                each.beat()
            return (
                before == [(one.active, one.standby) for one in threads]
                and all(one.active and one.standby for one in threads)
                and document(run, "kafkaGroup", "-g", "app")["state"] == "Stable"
            )

        until(settled)
        found = document(run, "kafkaGroup", "-g", "app")
        assert (found["kind"], found["assignment_epoch"]) == ("streams", found["generation"])
        assert [one["id"] for one in found["topology"]["subtopologies"]] == ["0", "1"]
        for each in threads:
            told = found["tasks"][each.member_id]
            assert told["process_id"] == each.process_id
            assert told["warmup"] == []
            for kind, wanted in (("active", each.active), ("standby", each.standby)):
                assert {
                    (one["subtopology"], number)
                    for one in told[kind]
                    for number in one["partitions"]
                } == wanted
        lines = run("kafkaGroup", "-g", "app")
        epoch = found["generation"]
        assert lines[0].startswith(
            f"group app: Stable, streams, epoch {epoch}, assignment epoch {epoch}, sticky, coord"
        )
        for each in threads:
            at = next(n for n, line in enumerate(lines) if line.startswith(f"  {each.member_id} ("))
            assert lines[at + 1] == (
                f"    process {each.process_id}, tasks: active {names(each.active)};"
                f" standby {names(each.standby)}"
            )
        at = lines.index("topology, epoch 0")
        assert lines[at + 1 : at + 3] == [
            "  subtopology 0: reads lines; writes for other subtopologies app-words-repartition",
            "  subtopology 1: reads of other subtopologies app-words-repartition;"
            " keeps its state in app-counts-changelog",
        ]
        (line,) = (line for line in run("kafkaGroups") if line.startswith("app "))
        assert line.split()[:4] == ["app", "streams", "Stable", "2"]
        for each in threads:
            each.leave()


def test_a_share_group(servers: KafkaServers, run: Run) -> None:
    topic = servers.topic("jobs", 2)
    servers.fill(topic, range(10), partitions=2)
    begin_share_group(servers.bootstrap, "team", topic, {0: 2})
    with (
        ShareReader(servers.bootstrap, "team", "one") as one,
        ShareReader(servers.bootstrap, "team", "three") as three,
        ShareReader(servers.bootstrap, "team", "two") as two,
    ):
        readers = [one, three, two]
        for each in (*readers, *readers):
            each.beat(*((topic,) if not each.epoch else ()))
        found = document(run, "kafkaGroup", "-g", "team")
        assert (found["kind"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
        assert found["generation"] == found["assignment_epoch"] == two.epoch
        assert {m["member_id"]: m["partitions"] for m in found["members"]} == {
            each.member_id: [[topic, number] for number in sorted(each.partitions)]
            for each in readers
        }
        together = [
            [each.member_id for each in readers if number in each.partitions] for number in (0, 1)
        ]
        assert found["offsets"] == [
            {
                "topic": topic,
                "partition": number,
                "start_offset": start,
                "end_offset": 5,
                "lag": lag,
                "members": together[number],
            }
            for number, start, lag in ((0, 2, 3), (1, None, None))
        ]
        assert found["lag"] == 3
        lines = run("kafkaGroup", "-g", "team")
        (listed,) = (each for each in run("kafkaGroups") if each.startswith("team "))
        coordinator = listed.split()[4]
        assert listed.split() == ["team", "share", "Stable", "3", coordinator]
        assert lines[0] == (
            f"group team: Stable, share, epoch {two.epoch}, assignment epoch {two.epoch}, simple,"
            f" coordinated by {coordinator}"
        )
        at = lines.index("3 members")
        held = ", ".join(f"jobs-{number}" for number in sorted(one.partitions))
        assert lines[at + 1] == f"  one-id (one/127.0.0.1): {held}"
        *_, first, second, empty, total = lines
        assert first.split("  ")[0] == "jobs"
        assert first.split()[1:5] == ["0", "5", "2", "3"]
        assert second.split()[1:5] == ["1", "5", "-", "-"]
        assert first.endswith(", ".join(together[0]))
        assert (empty, total) == ("", "Diff Total: 3")
        for each in readers:
            each.leave()
    assert document(run, "kafkaGroup", "-g", "team")["state"] == "Empty"


def test_a_streams_group_that_nobody_describes() -> None:
    """Its report is printed all the same, and programs find the same names."""
    assert streams_document(None) == {"assignment_epoch": None, "topology": None, "tasks": None}
    report = KafkaGroupReport("app", "streams", "Stable", "b", 3, "sticky", "", (), (), None, ())
    assert report_text(report, 0, {}).startswith(
        "group app: Stable, streams, epoch 3, sticky, coord"
    )
