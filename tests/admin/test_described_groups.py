"""What the command line tells of streams groups (KIP-1071) and share groups (KIP-932), beside what members are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.admin.conftest import Run
from tests.api.kafka import KafkaServers
from tests.waiting import until
from tests.web.console.group_members import ShareReader, begin_share_group, streams_threads

from steelyard.admin import exits
from steelyard.admin.described_groups import streams_document
from steelyard.admin.kafka_groups import report_text
from steelyard.admin.main import main
from steelyard.groups.kafka.report import KafkaGroupReport


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("brokers"))
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def nameservers(servers: KafkaServers) -> str:
    return servers.nameservers


Doctor = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def doctor(nameservers: str, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the doctor; its findings with what it says of each."""

    def ask(group: str) -> list[tuple[str, str]]:
        capsys.readouterr()
        code = main(["admin", "doctor", "-n", nameservers, "-g", group, "--json"])
        printed = capsys.readouterr()
        found = json.loads(printed.out)["findings"]
        assert (code, printed.err) == (exits.FAILED if found else exits.SUCCESS, "")
        return [(one["ailment"], one["what"]) for one in found]

    return ask


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


def test_the_progress_of_a_share_group(servers: KafkaServers, run: Run) -> None:
    """It is as kafkaGroup shows it, of all topics or of one; the list has the sum."""
    topics = [servers.topic(name, 1) for name in ("first", "second")]
    for topic in topics:
        servers.fill(topic, range(5), partitions=1)
        begin_share_group(servers.bootstrap, "both", topic, {0: 2})
    begin_share_group(servers.bootstrap, "alone", topics[0], {0: 1})
    with ShareReader(servers.bootstrap, "both", "reader") as reader:
        reader.beat(*topics)
        for one in ("both", "alone"):
            told = document(run, "kafkaGroup", "-g", one)
            found = document(run, "consumerProgress", "-g", one)
            assert (found["queues"], found["lag"]) == (told["offsets"], told["lag"])
            assert (found["group"], found["lag_seconds"]) == (one, None)
        head, *rows, empty, total = run("consumerProgress", "-g", "both", "-t", "second")
        assert head.split()[:2] == ["#Topic", "#Partition"]
        assert [row.split() for row in rows] == [["second", "0", "5", "2", "3", reader.member_id]]
        assert (empty, total) == ("", "Diff Total: 3")
        listed = {line.split()[0]: line.split()[1:] for line in run("consumerProgress")}
        assert listed["both"] == ["1", "KAFKA", "PULL", "SHARE", "0", "6"]
        groups = document(run, "consumerProgress")["groups"]
        assert {each["group"]: each["lag"] for each in groups}.items() >= {
            ("both", 6),
            ("alone", 4),
        }
        reader.leave()


def test_a_share_group_that_has_not_begun_has_no_progress(
    servers: KafkaServers, run: Run, refused: Callable[..., str]
) -> None:
    with ShareReader(servers.bootstrap, "early", "reader") as reader:
        reader.beat("nowhere")
        said = refused("consumerProgress", "-g", "early", code=exits.FAILED)
        assert said == (
            "steelyard: early is a Kafka group; use `steelyard admin kafkaGroup -g early`"
        )
        assert document(run, "kafkaGroup", "-g", "early")["offsets"] == []
        reader.leave()


def test_the_lag_is_unknown_while_no_kafka_listener_answers(
    servers: KafkaServers, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = servers.topic("hidden", 1)
    servers.fill(topic, range(5), partitions=1)
    begin_share_group(servers.bootstrap, "behind", topic, {0: 2})

    def listed() -> tuple[list[str], object]:
        (line,) = (line for line in run("consumerProgress") if line.startswith("behind "))
        groups = document(run, "consumerProgress")["groups"]
        (lag,) = (each["lag"] for each in groups if each["group"] == "behind")
        return line.split(), lag

    assert listed() == (["behind", "0", "OFFLINE", "0", "3"], 3)
    monkeypatch.setenv("STEELYARD_SASL_USERNAME", "somebody")
    monkeypatch.setenv("STEELYARD_SASL_PASSWORD", "unknown here")
    assert listed() == (["behind", "0", "OFFLINE", "0", "N/A"], None)


def test_the_doctor_looks_at_streams_groups(servers: KafkaServers, doctor: Doctor) -> None:
    """1. Of four instances with two tasks and a standby, one has nothing to do. 2. They go. 3. The next application has no
    topic to read."""
    source = servers.topic("single", 1)
    with streams_threads(servers.bootstrap, "small", source, *"abcd") as threads:

        def is_settled() -> bool:
            before = [(one.active, one.standby) for one in threads]
            for each in threads:
                each.beat()
            after = [(one.active, one.standby) for one in threads]
            return before == after and sum(len(one.active | one.standby) for one in threads) == 3

        until(is_settled)
        (idle,) = (one for one in threads if not one.active and not one.standby)
        assert any(one.standby and not one.active for one in threads)
        name = idle.member_id.removesuffix("-id")
        said = f"{name} run no task; the group has 4 members for 2 tasks"
        assert doctor("small") == [("MEMBER_IDLE", said)]
        for each in threads:
            each.leave()
    assert doctor("small") == [("NOBODY", "no member of group small is online")]
    with streams_threads(servers.bootstrap, "lost", "nowhere", "one") as (one,):
        one.beat()
        said = "no member has a task: the application reads nowhere, which does not exist"
        assert doctor("lost") == [("TOPIC_NOT_READ", said)]
        one.leave()


def test_the_doctor_looks_at_share_groups(servers: KafkaServers, doctor: Doctor) -> None:
    """1. One member reads; a topic that the group has begun is not read. 2. Another subscribes to what is not there. 3. Both
    go."""
    topics = [servers.topic(name, 1) for name in ("read", "left")]
    for topic in topics:
        servers.fill(topic, range(5), partitions=1)
        begin_share_group(servers.bootstrap, "crew", topic, {0: 2})
    with (
        ShareReader(servers.bootstrap, "crew", "one") as one,
        ShareReader(servers.bootstrap, "crew", "two") as two,
    ):
        one.beat(topics[0])
        left = "the group has offsets of left, where messages wait, and no member reads it"
        assert doctor("crew") == [("TOPIC_NOT_READ", left)]
        two.beat("nowhere")
        idle = "two read no partition: topics to which they subscribe do not exist: nowhere"
        assert doctor("crew") == [("MEMBER_IDLE", idle), ("TOPIC_NOT_READ", left)]
        one.leave()
        two.leave()
    assert doctor("crew") == [("NOBODY", "no member of group crew is online")]


def test_a_streams_group_that_nobody_describes() -> None:
    """Its report is printed all the same, and programs find the same names."""
    assert streams_document(None) == {"assignment_epoch": None, "topology": None, "tasks": None}
    report = KafkaGroupReport("app", "streams", "Stable", "b", 3, "sticky", "", (), (), None, ())
    assert report_text(report, 0, {}).startswith(
        "group app: Stable, streams, epoch 3, sticky, coord"
    )
