"""Settings of many topics and groups, from files and into files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steelyard import Admin
from steelyard.admin import batches, exits

Run = Callable[..., list[str]]
Refused = Callable[..., str]

CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture
def admin(nameservers: str) -> Iterator[Admin]:
    with Admin(nameservers) as admin:
        yield admin


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], str]:
    """Writes a JSON file; gives its path."""

    def write(content: object) -> str:
        path = tmp_path / "list.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def test_topics_of_a_file_are_made(run: Run, admin: Admin, file: Callable[[object], str]) -> None:
    first, second = admin.masters("DefaultCluster")
    listed = [
        {"topicName": "ListedOne", "readQueueNums": 2, "writeQueueNums": 1, "perm": 4},
        {"topicName": "ListedTwo", "order": True},
    ]
    submitted = "submit batch of topic config to {} success, please check the result later."
    path = file(listed)
    assert run("updateTopicList", *CLUSTER, "-f", path) == [
        submitted.format(first),
        submitted.format(second),
    ]
    for address in (first, second):
        one, two = (admin.topic_configs(address)[name] for name in ("ListedOne", "ListedTwo"))
        assert (one.read_queue_nums, one.write_queue_nums, one.perm, one.order) == (2, 1, 4, False)
        assert (two.read_queue_nums, two.write_queue_nums, two.perm, two.order) == (16, 16, 6, True)
    document = json.loads("".join(run("updateTopicList", "-b", first, "-f", path, "--json")))
    assert document == {
        "brokers": [first],
        "topics": ["ListedOne", "ListedTwo"],
        "unreachable": [],
    }


def test_groups_of_a_file_are_made(run: Run, admin: Admin, file: Callable[[object], str]) -> None:
    first, second = admin.masters("DefaultCluster")
    path = file([{"groupName": "listed", "retryMaxTimes": 5, "consumeTimeoutMinute": 15}])
    assert run("updateSubGroupList", "-b", first, "-f", path) == [
        f"submit batch of group config to {first} success, please check the result later."
    ]
    assert admin.group_config("listed").keys() == {"broker-a"}
    assert run("updateSubGroupList", *CLUSTER, "-f", path)[1] == (
        f"submit batch of subscription group config to {second} success, please check the result"
        " later."
    )
    configs = admin.group_config("listed")
    assert [config.retry_max_times for config in configs.values()] == [5, 5]


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        ("updateTopicList", "{", "is not JSON: expected a value at character"),
        ("updateTopicList", {"topicName": "T"}, "is no JSON list of objects: [{...}, {...}]"),
        ("updateTopicList", ["T"], "is no JSON list of objects"),
        ("updateTopicList", [], "has an empty list"),
        ("updateTopicList", [{"readQueueNums": 1}], "topicName"),
        ("updateTopicList", [{"topicName": "a b"}], "topic 'a b' has characters other than"),
        ("updateTopicList", [{"topicName": "T"}] * 2, "has T twice"),
        ("updateTopicList", [{"topicName": "T", "queues": 1}], "unknown field 'queues'; expected"),
        ("updateTopicList", [{"topicName": "T", "perm": 9}], "perm of T is 9; it must be 2"),
        ("updateTopicList", [{"topicName": "T", "perm": "x"}], "perm"),
        (
            "updateTopicList",
            [{"topicName": "T", "writeQueueNums": 0}],
            "writeQueueNums of T is 0; it must be 1 or more",
        ),
        ("updateSubGroupList", [{"groupName": "a b"}], "group 'a b' has characters"),
        (
            "updateSubGroupList",
            [{"groupName": "g", "retryMaxTimes": -1}],
            "retryMaxTimes of g is -1; it must be 0 or more",
        ),
        ("updateSubGroupList", [{"groupName": "g", "perm": 6}], "unknown field 'perm'"),
    ],
)
def test_files_that_are_wrong(
    refused: Refused, file: Callable[[object], str], command: str, content: object, said: str
) -> None:
    path = file(content)
    text = refused(command, "-b", "127.0.0.1:1", "-f", path)
    assert path in text
    assert said in text


def test_files_that_cannot_be_read(
    refused: Refused, file: Callable[[object], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused("updateTopicList", *CLUSTER, "-f", "/no/such/file")
    assert said.endswith("cannot read /no/such/file: No such file or directory")
    monkeypatch.setattr(batches, "FILE_BYTES_MAX", 10)
    path = file([{"topicName": "Topic"}])
    assert f"{path} has more than 10 bytes" in refused("updateTopicList", *CLUSTER, "-f", path)


def test_system_topics_are_refused_by_brokers(
    refused: Refused, file: Callable[[object], str]
) -> None:
    path = file([{"topicName": "TBW102"}])
    said = refused("updateTopicList", *CLUSTER, "-f", path, code=exits.FAILED)
    assert "TBW102" in said


# -- exportMetadata --------------------------------------------------------------------------------


def exported(run: Run, folder: Path, *options: str, file: str = "metadata.json") -> Any:
    path = folder / "deep" / file
    assert run("exportMetadata", *options, "-f", str(path.parent)) == [f"export {path} success"]
    return json.loads(path.read_text())


def test_settings_are_exported(run: Run, admin: Admin, tmp_path: Path) -> None:
    first, _ = admin.masters("DefaultCluster")
    run("updateTopic", *CLUSTER, "-t", "Exported", "-r", "3", "-w", "2")
    run("updateSubGroup", *CLUSTER, "-g", "exported", "-q", "2")
    whole = exported(run, tmp_path, *CLUSTER)
    assert whole.keys() == {"exportTime", "topicConfigTable", "subscriptionGroupTable"}
    assert whole["topicConfigTable"]["Exported"] == {
        "topicName": "Exported",
        "readQueueNums": 6,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
    assert whole["subscriptionGroupTable"]["exported"]["retryQueueNums"] == 4
    assert not {"TBW102", "broker-a", "DefaultCluster"} & whole["topicConfigTable"].keys()
    topics = exported(run, tmp_path, "-b", first, "-t", file="topic.json")
    assert topics.keys() == {"exportTime", "topicConfigTable"}
    assert topics["topicConfigTable"]["Exported"]["readQueueNums"] == 3
    groups = exported(run, tmp_path, *CLUSTER, "-g", file="subscriptionGroup.json")
    assert groups.keys() == {"exportTime", "subscriptionGroupTable"}


def test_an_exported_topic_can_be_made_again(
    run: Run, admin: Admin, tmp_path: Path, file: Callable[[object], str]
) -> None:
    first, second = admin.masters("DefaultCluster")
    run("updateTopic", "-b", first, "-t", "Carried", "-r", "3", "-w", "2")
    table = exported(run, tmp_path, "-b", first)["topicConfigTable"]
    run("updateTopicList", "-b", second, "-f", file([table["Carried"]]))
    assert admin.topic_configs(first)["Carried"] == admin.topic_configs(second)["Carried"]


def test_retry_topics_are_exported_on_request(run: Run, admin: Admin, tmp_path: Path) -> None:
    first, _ = admin.masters("DefaultCluster")
    admin.create_topic("%RETRY%exported", broker=first)
    names = exported(run, tmp_path, "-b", first)["topicConfigTable"].keys()
    special = exported(run, tmp_path, "-b", first, "-s")["topicConfigTable"].keys()
    assert special - names == {"%RETRY%exported"}


def test_what_cannot_be_exported(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused("exportMetadata", *CLUSTER, "-f", str(tmp_path / "file"))
    assert "cannot write" in said
    said = refused("exportMetadata", "-b", "127.0.0.1:1", code=exits.UNREACHABLE)
    assert "cannot connect to 127.0.0.1:1" in said
