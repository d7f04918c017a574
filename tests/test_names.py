"""One name for one thing: public classes share a name only if they mean the same (listed below).

Not checked: `wire/kafka/messages`, whose structures have the names of Kafka's schemas, several of
which use one name for different structures; and `client/blocking`, generated from `client/aio`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import steelyard

SOURCES = Path(steelyard.__file__).parent
ELSEWHERE = ("client/blocking/", "wire/kafka/messages/")

Twins = dict[tuple[str, ...], set[str]]
"""Class names by the modules that define them."""

SAME_IN_BOTH_DIALECTS: Twins = {
    ("nodes/calls/kafka", "nodes/calls/remoting"): {"Outcome"},
    ("nodes/consumer/kafka/commits", "nodes/consumer/remoting/commits"): {"Commits"},
    ("nodes/consumer/kafka/contract", "nodes/consumer/remoting/contract"): {
        "Assign",
        "Assigned",
        "Assignment",
        "Commit",
        "Describe",
        "GiveBack",
        "Lost",
        "Pause",
        "Poll",
        "Resume",
        "Revoked",
        "Seek",
    },
    ("nodes/consumer/kafka/held", "nodes/consumer/remoting/held"): {"Held"},
    ("nodes/consumer/kafka/held", "nodes/consumer/remoting/holdings"): {"Holdings"},
    ("nodes/consumer/kafka/membership", "nodes/consumer/remoting/membership"): {"Membership"},
}
"""Parts of a consumer of either dialect; the wings do not import each other."""

SAME_IN_BOTH_DRIVERS: Twins = {("driver/links", "sim/dialects"): {"Decoding", "Dialect"}}
"""Parts of the real and of the simulated driver, which do not import each other either."""

SAME_OF_BOTH_ENDS: Twins = {
    ("nodes/broker/kafka/data/list_offsets", "nodes/consumer/kafka/contract"): {"ListOffsets"},
}
"""Kafka's name of a request, for the call that sends it and the handler that answers it."""

SAME_OF_SEVERAL_NODES: Twins = {
    (
        "nodes/broker/node",
        "nodes/consumer/kafka/contract",
        "nodes/consumer/remoting/contract",
        "nodes/producer/contract",
    ): {"Stop"},
    ("nodes/consumer/remoting/peers", "nodes/producer/peers"): {"Peers"},
    ("nodes/consumer/remoting/questions", "nodes/producer/contract"): {"FetchQueues"},
}
"""What RocketMQ's producers and consumers have in common, and the call that stops any node."""

SAME_IN_BOTH_SHELLS: Twins = {("embedded/aio", "embedded/server"): {"Server"}}
"""Public as `steelyard.aio.Server` and `steelyard.Server`, as the clients are."""

MOVES: Twins = {
    (
        "groups/kafka/classic/state",
        "groups/kafka/consumer/member",
        "groups/kafka/member/classic/states",
        "groups/kafka/member/consumer/states",
        "groups/kafka/streams/member",
        "groups/kafka/transactional_ids",
        "groups/remoting/ownership",
        "nodes/consumer/kafka/changes",
        "nodes/consumer/remoting/ordered",
    ): {"Move"}
}
"""The events of a state table (`steelyard.machine`), defined next to it; the reference
implementations name only the states."""

ALLOWED = {
    **SAME_IN_BOTH_DIALECTS,
    **SAME_IN_BOTH_DRIVERS,
    **SAME_OF_BOTH_ENDS,
    **SAME_OF_SEVERAL_NODES,
    **SAME_IN_BOTH_SHELLS,
    **MOVES,
}


def public_classes(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def repeated(sources: Mapping[str, str]) -> Twins:
    """The classes of several modules, by these modules. `sources`: the modules' texts."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, text in sorted(sources.items()):
        for name in public_classes(text):
            homes[name].append(module)
    found: Twins = defaultdict(set)
    for name, modules in homes.items():
        if len(modules) > 1:
            found[tuple(modules)].add(name)
    return dict(found)


def test_a_class_has_a_name_of_its_own() -> None:
    """Rename a class that fails here, with Kafka's or RocketMQ's term, or list it above."""
    paths = {path.relative_to(SOURCES).as_posix(): path for path in SOURCES.rglob("*.py")}
    sources = {
        name.removesuffix(".py"): path.read_text()
        for name, path in paths.items()
        if not name.startswith(ELSEWHERE)
    }
    assert len(sources) > 300
    assert repeated(sources) == ALLOWED


def test_a_name_that_stands_twice_is_found() -> None:
    sources = {
        "b": "class Committed: ...\nclass _Held: ...",
        "a": "class Committed: ...\nclass _Held: ...\nclass Poll: ...",
        "c": "class Committed: ...",
    }
    assert repeated(sources) == {("a", "b", "c"): {"Committed"}}
