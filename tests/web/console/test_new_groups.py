"""Streams groups (KIP-1071) and share groups (KIP-932) as the console shows them, beside what their members are told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.waiting import until
from tests.web.console.asking import Events, ask, read
from tests.web.console.conftest import Consoles
from tests.web.console.group_members import (
    ShareReader,
    StreamsThread,
    Tasks,
    begin_share_group,
    streams_threads,
)


def line_of(address: str, group: str) -> Any:
    groups = read(address, "groups")["groups"]
    return next((one for one in groups if one["name"] == group), None)


def tasks_of(member: Any, what: str) -> Tasks:
    return frozenset(
        (each["subtopology"], number)
        for each in member["tasks"][what]
        for number in each["partitions"]
    )


def settled(threads: list[StreamsThread]) -> bool:
    """Whether everybody has what the coordinator wants to give it; each sends a heartbeat."""
    before = [(one.active, one.standby) for one in threads]
    for one in threads:
        one.beat()
    active = [task for one in threads for task in one.active]
    return (
        before == [(one.active, one.standby) for one in threads]
        and len(active) == len({*active}) == 4
        and all(one.active and one.standby for one in threads)
    )


@pytest.mark.parametrize("which", ["http", "kafka"])
def test_a_streams_group_is_what_its_members_are_told(consoles: Consoles, which: str) -> None:
    """1. One instance runs all tasks. 2. Another comes, and each has standbys of the other's state. 3. Both go."""
    address: str = getattr(consoles, which)
    group = f"app-{which}"
    path = f"groups/kafka/{group}"
    source = consoles.servers.topic(f"lines-{which}", 2)
    consoles.servers.fill(source, range(20), partitions=2)
    bootstrap = consoles.servers.bootstrap
    with streams_threads(bootstrap, group, source, "one", "two") as threads:
        first = threads[0]

        def runs_all() -> bool:
            first.beat()
            return len(first.active) == 4

        until(runs_all)
        until(lambda: settled(threads))
        for number in range(2):
            holder = next(one for one in threads if ("0", number) in one.active)
            holder.commit(source, number, 4 + number)

        def shown() -> Any:
            found = read(address, path)
            ends = {queue["key"]: queue["end"] for queue in found["queues"]}
            return ends.get(f"{source}/1") == 10 and len(found["queues"]) == 4 and found

        picture = until(shown)
        assert (picture["kind"], picture["state"]) == ("streams", "Stable")
        assert picture["protocol"].partition(":")[0] == "streams"
        assert picture["generation"] == picture["assignment_epoch"] == first.epoch
        assert (picture["rebalance"], picture["warning"]) == (None, None)
        members = {one["id"]: one for one in picture["members"]}
        assert members.keys() == {one.member_id for one in threads}
        for one in threads:
            member = members[one.member_id]
            assert (member["client_id"], member["host"]) == (one.member_id[:-3], "127.0.0.1")
            assert member["tasks"]["process_id"] == one.process_id
            assert tasks_of(member, "active") == one.active
            assert tasks_of(member, "standby") == one.standby
            assert tasks_of(member, "warmup") == frozenset()
            assert member["assigned"] == len(one.active)
        words, counts = f"{group}-words-repartition", f"{group}-counts-changelog"
        kinds = ("source_topics", "repartition_source_topics", "repartition_sink_topics")
        nothing: dict[str, list[str]] = {each: [] for each in (*kinds, "changelog_topics")}
        reads = nothing | {"id": "0", "source_topics": [source], "repartition_sink_topics": [words]}
        keeps = nothing | {
            "id": "1",
            "repartition_source_topics": [words],
            "changelog_topics": [counts],
        }
        assert picture["topology"] == {"epoch": 0, "subtopologies": [reads, keeps]}
        for queue in picture["queues"]:
            task = ("0" if queue["topic"] == source else "1", queue["queue"])
            assert queue["task"] == f"{task[0]}_{task[1]}"
            assert queue["owner"] == next(o.member_id for o in threads if task in o.active)
            assert queue["standbys"] == [o.member_id for o in threads if task in o.standby]
            assert (queue["next_owner"], queue["readers"], queue["warmups"]) == (None, [], [])
        lags = {queue["key"]: queue["lag"] for queue in picture["queues"]}
        assert lags == {f"{source}/0": 6, f"{source}/1": 5, f"{words}/0": 0, f"{words}/1": 0}
        until(lambda: (line := line_of(address, group)) and line["lag"] == 11)
        line = line_of(address, group)
        assert (line["kind"], line["members"]) == ("streams", 2)
        assert line["topics"] == sorted([source, words])
        assert read(address, f"{path}/what-if") == {"strategies": [], "results": []}
        refused = ask(address, f"{path}/what-if?strategy=range")
        assert refused.status == 404
        assert "their coordinator assigns tasks" in refused.body["error"]
        assert read(address, f"{path}/doctor")["findings"] == []
        for one in threads:
            one.leave()
    until(lambda: read(address, path)["state"] == "Empty")
    picture = read(address, path)
    assert picture["members"] == []
    assert {queue["owner"] for queue in picture["queues"]} == {None}
    assert picture["topology"]["subtopologies"], "who comes back finds the same topology"


def test_a_streams_group_while_it_rebalances(consoles: Consoles) -> None:
    """Who has to give up a task is named, and who runs it next."""
    source = consoles.servers.topic("moving", 2)
    bootstrap = consoles.servers.bootstrap
    with streams_threads(bootstrap, "app-moves", source, "holder", "comer") as threads:
        holder, comer = threads

        def runs_all() -> bool:
            holder.beat()
            return len(holder.active) == 4

        until(runs_all)
        comer.beat()

        def shown() -> Any:
            found = read(consoles.http, "groups/kafka/app-moves")
            return found["rebalance"] is not None and found

        holds = holder.active

        def is_told() -> bool:
            holder.beat()
            return holder.active != holds

        until(is_told)  # what to give up, and does not say that it has
        comer.beat()
        picture = until(shown)
        assert picture["state"] == "Reconciling"
        assert picture["rebalance"]["waits_for"] == [holder.member_id]
        assert "to give up tasks" in picture["rebalance"]["text"]
        moving = {q["task"] for q in picture["queues"] if q["next_owner"] == comer.member_id}
        assert moving == {f"{name}_{number}" for name, number in holds - holder.active}
        assert {queue["owner"] for queue in picture["queues"]} == {holder.member_id}
        until(lambda: settled(threads))
        until(lambda: read(consoles.http, "groups/kafka/app-moves")["rebalance"] is None)
        for one in threads:
            one.leave()


def test_an_application_without_its_topics_is_not_ready(consoles: Consoles) -> None:
    with streams_threads(consoles.servers.bootstrap, "app-early", "missing", "one") as (one,):
        one.beat()
        picture = read(consoles.http, "groups/kafka/app-early")
        assert picture["state"] == "NotReady"
        assert "missing or do not fit together" in picture["warning"]
        assert picture["rebalance"] is None
        one.leave()


@pytest.mark.parametrize("which", ["http", "kafka"])
def test_members_of_a_share_group_read_partitions_together(consoles: Consoles, which: str) -> None:
    """1. A group is at some offsets. 2. Three members read its two partitions. 3. They go. 4. Its
    offsets are reset."""
    address: str = getattr(consoles, which)
    group = f"team-{which}"
    path = f"groups/kafka/{group}"
    topic = consoles.servers.topic(f"tasks-{which}", 2)
    consoles.servers.fill(topic, range(20), partitions=2)
    bootstrap = consoles.servers.bootstrap
    begin_share_group(bootstrap, group, topic, {0: 3})
    with (
        ShareReader(bootstrap, group, "one") as one,
        ShareReader(bootstrap, group, "two") as two,
        ShareReader(bootstrap, group, "three") as three,
    ):
        readers = [one, three, two]  # by their ids
        one.beat(topic)
        two.beat(topic)
        with Events(address, f"kafka/{group}") as events:
            seen = iter(events)
            while next(seen)[0] != "group":
                pass
            three.beat(topic)
            while True:
                event, row = next(seen)
                if event == "rebalance" and len(row["members_after"]) == 3:
                    break
        assert (row["trigger"], row["moved"]) == ("joined", 0)
        for each in readers:
            each.beat()
        picture = read(address, path)
        assert (picture["kind"], picture["protocol"]) == ("share", "share: simple")
        assert (picture["state"], picture["rebalance"]) == ("Stable", None)
        assert picture["generation"] == picture["assignment_epoch"] == three.epoch
        assert [(m["id"], m["assigned"], m["tasks"]) for m in picture["members"]] == [
            (each.member_id, len(each.partitions), None) for each in readers
        ]
        queues = picture["queues"]
        for queue in queues:
            together = [each.member_id for each in readers if queue["queue"] in each.partitions]
            assert (queue["owner"], queue["readers"]) == (None, together)
        assert max(len(queue["readers"]) for queue in queues) > 1
        assert [(q["share_start"], q["lag"]) for q in queues] == [(3, 7), (None, None)]
        assert {(q["committed"], q["wait_ms"], q["task"]) for q in queues} == {(None, None, None)}
        line = until(lambda: (found := line_of(address, group)) and found["members"] == 3 and found)
        assert (line["kind"], line["lag"], line["topics"]) == ("share", 7, [topic])
        assert line["oldest_wait_ms"] is None
        history = read(address, f"{path}/rebalances")
        assert history["source"] == "observed"
        assert "read partitions together" in history["note"]
        assert read(address, f"{path}/what-if", members=3) == {"strategies": [], "results": []}
        assert read(address, f"{path}/doctor")["findings"] == []
        assert read(address, f"{path}/lag")["queues"].keys() <= {f"{topic}/0"}
        body = {"topic": topic, "to": "latest", "dry_run": False}
        refused = ask(consoles.changing, f"{path}/reset-offsets", method="POST", body=body)
        assert (refused.status, "3 members" in refused.body["error"]) == (409, True)
        one.leave()
        three.leave()
        two.beat()

        def reads_all() -> bool:
            return [q["readers"] for q in read(address, path)["queues"]] == [[two.member_id]] * 2

        until(reads_all)
        two.leave()
    until(lambda: read(address, path)["state"] == "Empty")
    titles = [each["title"] for each in read(address, f"{path}/doctor")["findings"]]
    assert titles == ["Nobody"]
    done = ask(consoles.changing, f"{path}/reset-offsets", method="POST", body=body)
    assert done.status == 200, done
    assert done.body["offsets"] == [
        {"queue": f"{topic}/0", "before": 3, "after": 10},
        {"queue": f"{topic}/1", "before": None, "after": 10},
    ]

    def is_reset() -> bool:
        found = read(address, path)["queues"]
        return [(q["share_start"], q["lag"]) for q in found] == [(10, 0), (10, 0)]

    until(is_reset)
