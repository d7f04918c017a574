"""The API's description, and an API that keeps to it: whatever is asked, the answer is one that the description has.

`./dev peers` asks more, and clusters of Apache's, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.web.console.asking import ask, in_path, read
from tests.web.console.conftest import Consoles
from tests.web.console.descriptions import keeps_to_the_description
from tests.web.console.group_members import begin_share_group, streams_threads

from steelyard import Producer, PushConsumer
from steelyard.web.console import answers, operations
from steelyard.web.console.openapi import SCHEMAS, document
from steelyard.web.console.operations import OPERATIONS, PREFIX

EXAMPLES = 5
"""Requests of each operation."""


@pytest.fixture(scope="module")
def known(consoles: Consoles) -> dict[str, list[str]]:
    """Names of a cluster with groups, topics and messages of both dialects, so that requests find something."""
    topic = consoles.servers.topic("api", 3)
    consoles.servers.fill(topic, range(20), partitions=3)
    with Producer("makers", consoles.servers.nameservers) as producer:
        for _ in range(10):
            producer.send("Api", b'{"a": 1}')
        consumer = PushConsumer("api-group", consoles.servers.nameservers, lambda one: None)
        with consumer.subscribe("Api"):
            pass
    bootstrap = consoles.servers.bootstrap
    begin_share_group(bootstrap, "api-share", topic, {0: 1})
    with streams_threads(bootstrap, "api-streams", topic, "one") as (one,):
        one.beat()  # it stays a member after that, for the time of a session
    return {
        "dialect": ["kafka", "rocketmq"],
        "group": ["api-group", "api-share", "api-streams", "nobody"],
        "topic": [topic, "Api", "nothing"],
        "queue": [f"{topic}/0", "Api/broker-0/0"],
        "from": ["earliest", "latest", "0", "1700000000000", "next:0=3"],
    }


@pytest.mark.parametrize(
    ("one", "which"),
    [
        pytest.param(one, which, id=f"{one.name}-{which}")
        for one in OPERATIONS
        if one.answer is not None
        for which in ("http", "changing", "kafka")
        if one.is_change or which != "changing"  # which is the same otherwise
    ],
)
def test_answers_are_those_of_the_description(
    consoles: Consoles, known: dict[str, list[str]], one: operations.ApiOperation, which: str
) -> None:
    keeps_to_the_description(getattr(consoles, which), one, known, EXAMPLES)


def test_the_description_is_served_and_complete(consoles: Consoles) -> None:
    found = read(consoles.http, "/openapi.json")
    assert found == document()
    assert found["openapi"].startswith("3.1")
    served = {
        (path, method.upper()) for path, methods in found["paths"].items() for method in methods
    }
    assert served == {(PREFIX + one.path, one.method) for one in OPERATIONS}
    names = {
        name
        for name, kind in vars(answers).items()
        if isinstance(kind, type) and issubclass(kind, answers.ApiAnswer)
    }
    described = found["components"]["schemas"]
    assert names - described.keys() == {"ApiAnswer"}
    for name, schema in described.items():
        assert schema["description"], name
        if name in names:
            assert set(schema["required"]) == set(schema["properties"]), name
    text = str(found)
    for name in described:
        assert name == "Question" or f"{SCHEMAS}{name}'" in text, f"nothing refers to {name}"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_methods_that_are_not_supported(consoles: Consoles, method: str) -> None:
    found = ask(consoles.http, "topics", method=method)
    assert (found.status, found.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "groups/kafka",
        "groups/kafka/a/b/c",
        "/api/v1/",
        "/api/v1",
        "/api/v2/groups",
        f"groups/{in_path('a/b')}",
    ],
)
def test_paths_that_are_none(consoles: Consoles, path: str) -> None:
    found = ask(consoles.http, path)
    assert found.status == 404
    assert found.body["error"]


@pytest.mark.parametrize("path", ["groups/mqtt/a", "groups/mqtt/a/lag", "topics/mqtt/a"])
def test_below_an_unknown_dialect_there_is_nothing(consoles: Consoles, path: str) -> None:
    found = ask(consoles.http, path)
    assert found.status == 404
    assert found.body["error"] == "dialect is 'mqtt'; expected one of: kafka, rocketmq"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("groups/kafka/%ff", "not UTF-8"),
        ("groups/kafka/a?x=%ff", "not one of names and values"),
        ("groups/kafka/a/lag?minutes=1&minutes=2", "given twice"),
        ("groups/kafka/a/lag?group=b", "unknown parameter 'group'"),
        ("cluster?group=b", "there is no parameter 'group' here"),
        ("cluster?" + "&".join(f"a{n}=1" for n in range(200)), "not one of names and values"),
    ],
)
def test_queries_that_cannot_be_read(consoles: Consoles, path: str, words: str) -> None:
    found: Any = ask(consoles.http, path)
    assert found.status == 400
    assert words in found.body["error"]
