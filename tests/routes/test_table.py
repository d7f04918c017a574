"""The route table against a model of it, and its rules one by one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples

from steelyard.routes import table as module
from steelyard.routes.table import BrokerRegistration, Full, Master, RouteTable
from steelyard.wire.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)


def broker(
    name: str = "a",
    *topics: str,
    address: str = "",
    broker_id: int = 0,
    cluster: str = "C",
    version: int = 1,
    state: int = 0,
    queues: int = 4,
    expiry_ms: int = 100,
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address or f"{name}:{broker_id}",
        ha_address=f"ha-{name}:{broker_id}",
        version=DataVersion(version, 0, state),
        topics={topic: TopicConfig(topic, queues, queues, 6) for topic in topics},
        expiry_ms=expiry_ms,
    )


def queues_of(table: RouteTable, topic: str) -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {q.broker_name: q.read_queue_nums for q in route.queue_datas}


def perms_of(table: RouteTable, *topics: str) -> list[int]:
    routes = map(table.route, topics)
    return [data.perm for route in routes if route is not None for data in route.queue_datas]


NAMES = st.sampled_from(("a", "b", "c"))
TOPICS = st.sets(st.sampled_from(("t1", "t2", "t3")))


class TableMachine(RuleBasedStateMachine):
    """Masters only: name -> (link, heard at, topics ever registered since it came)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.model: dict[str, tuple[int, int, set[str]]] = {}
        self.now = 0
        self.version = 0

    @rule(name=NAMES, topics=TOPICS, link=st.integers(1, 3), pause=st.integers(0, 60))
    def register(self, name: str, topics: set[str], link: int, pause: int) -> None:
        self.now += pause
        self.version += 1
        known = self.model.get(name, (0, 0, set[str]()))[2]
        self.model[name] = (link, self.now, known | topics)
        registration = broker(name, *sorted(topics), version=self.version)
        assert self.table.register(registration, link, self.now) == Master()

    @rule(name=NAMES)
    def unregister(self, name: str) -> None:
        self.model.pop(name, None)
        self.table.unregister("C", name, f"{name}:0")

    @rule(link=st.integers(1, 3))
    def close(self, link: int) -> None:
        gone = sorted(name for name, entry in self.model.items() if entry[0] == link)
        assert sorted(self.table.link_closed(link)) == [f"{name}:0" for name in gone]
        for name in gone:
            del self.model[name]

    @rule(pause=st.integers(0, 60))
    def expire(self, pause: int) -> None:
        self.now += pause
        gone = {name: e[0] for name, e in self.model.items() if e[1] + 100 < self.now}
        found = dict(self.table.expire(self.now))
        assert found == {f"{name}:0": link for name, link in gone.items()}
        for name in gone:
            del self.model[name]

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        if name in self.model:
            link, _, topics = self.model[name]
            self.model[name] = (link, self.now, topics)
        self.table.touch("C", f"{name}:0", self.now)

    @rule(topic=st.sampled_from(("t1", "t2")))
    def delete(self, topic: str) -> None:
        for _, _, topics in self.model.values():
            topics.discard(topic)
        self.table.delete_topic(topic)

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        for topic in ("t1", "t2", "t3"):
            names = {name for name, entry in self.model.items() if topic in entry[2]}
            assert queues_of(self.table, topic).keys() == names
        everything = set().union(*(entry[2] for entry in self.model.values()))
        assert set(self.table.topics()) == set(self.table.topics_of("C")) == everything
        assert self.table.cluster_info().broker_addr_table.keys() == self.model.keys()


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=examples(40), stateful_step_count=25)


def test_a_route_names_the_queues_and_the_brokers_that_have_them() -> None:
    table = RouteTable()
    table.register(broker("a", "t", "only-a"), 1, 0)
    table.register(broker("b", "t", queues=8), 2, 0)
    assert table.route("t") == TopicRouteData(
        (QueueData("a", 4, 4, 6), QueueData("b", 8, 8, 6)),
        (BrokerData("C", "a", {0: "a:0"}), BrokerData("C", "b", {0: "b:0"})),
    )
    assert table.route("nowhere") is None
    assert table.cluster_info() == ClusterInfo(
        {"a": BrokerData("C", "a", {0: "a:0"}), "b": BrokerData("C", "b", {0: "b:0"})},
        {"C": ("a", "b")},
    )


def test_a_broker_with_a_single_topic_is_welcome() -> None:
    table = RouteTable()
    assert table.register(broker("a", "t"), 1, 0) == Master()
    assert queues_of(table, "t") == {"a": 4}


def test_the_same_version_changes_nothing_but_adds_what_is_missing() -> None:
    table = RouteTable()
    table.register(broker("a", "t"), 1, 0)
    table.register(broker("a", "t", "t2", queues=9), 1, 0)
    assert queues_of(table, "t") == {"a": 4}
    assert queues_of(table, "t2") == {"a": 9}
    table.register(broker("a", "t", queues=9, version=2), 1, 0)
    assert queues_of(table, "t") == {"a": 9}
    assert table.version("C", "a:0") == DataVersion(2, 0)
    assert table.version("C", "nobody:0") is None


def test_replicas_listen_learn_their_master_and_tell_no_topics() -> None:
    table = RouteTable()
    assert table.register(broker("a", "r", broker_id=1), 2, 0) == Master()
    assert table.route("r") is None
    table.register(broker("a", "t"), 1, 0)
    assert table.register(broker("a", "r", broker_id=1), 2, 0) == Master("a:0", "ha-a:0")
    route = table.route("t")
    assert route is not None
    assert route.broker_datas == (BrokerData("C", "a", {0: "a:0", 1: "a:1"}),)
    table.link_closed(1)
    route = table.route("t")
    assert route is not None
    assert route.broker_datas == (BrokerData("C", "a", {1: "a:1"}),)
    table.link_closed(2)
    assert table.route("t") is None


def test_a_replica_made_master_drops_its_old_id() -> None:
    table = RouteTable()
    table.register(broker("a", broker_id=1, address="x:1"), 1, 0)
    table.register(broker("a", "t", address="x:1"), 1, 0)
    assert table.cluster_info().broker_addr_table["a"].broker_addrs == {0: "x:1"}
    table.check()


def test_a_new_address_replaces_the_old_unless_that_knows_a_newer_state() -> None:
    table = RouteTable()
    table.register(broker("a", "t", address="x:1", state=3), 1, 0)
    assert table.register(broker("a", "t", address="y:1", state=2), 2, 0) == Master()
    assert table.cluster_info().broker_addr_table["a"].broker_addrs == {0: "x:1"}
    table.register(broker("a", "t", address="z:1", state=3), 3, 0)
    assert table.cluster_info().broker_addr_table["a"].broker_addrs == {0: "z:1"}
    table.link_closed(1)
    assert queues_of(table, "t") == {"a": 4}
    table.check()


def test_a_broker_that_changed_its_name_or_cluster_leaves_under_the_old_one() -> None:
    table = RouteTable()
    table.register(broker("a", "t", address="x:1"), 1, 0)
    table.register(broker("b", "t", address="x:1"), 1, 0)
    assert queues_of(table, "t") == {"b": 4}
    table.register(broker("b", "t", address="x:1", cluster="D"), 1, 0)
    assert table.cluster_info().cluster_addr_table == {"D": ("b",)}
    table.check()


def test_a_topic_is_forgotten_in_one_cluster_or_in_all() -> None:
    table = RouteTable()
    table.register(broker("a", "t"), 1, 0)
    table.register(broker("b", "t", cluster="D"), 2, 0)
    table.delete_topic("t", "nowhere")
    table.delete_topic("other", "C")
    table.delete_topic("t", "C")
    assert queues_of(table, "t") == {"b": 4}
    assert table.topics_of("C") == ()
    table.delete_topic("t")
    table.delete_topic("t")
    assert table.topics() == ()


def test_write_permission_is_taken_and_given_until_the_broker_says_otherwise() -> None:
    table = RouteTable()
    table.register(broker("a", "t", "t2"), 1, 0)

    def perm() -> int:
        route = table.route("t")
        assert route is not None
        return route.queue_datas[0].perm

    assert table.set_write_permission("a", allowed=False) == 2
    assert perm() == 4
    table.register(broker("a", "t"), 1, 0)
    assert perm() == 4
    assert table.set_write_permission("a", allowed=True) == 2
    assert perm() == 6
    assert table.set_write_permission("nobody", allowed=True) == 0


def test_a_new_topic_does_not_give_write_permissions_back() -> None:
    table = RouteTable()
    table.register(broker("a", "t", "t2"), 1, 0)
    table.set_write_permission("a", allowed=False)
    table.register(broker("a", "t", "t2", "new", version=2), 1, 0)
    assert perms_of(table, "t", "t2", "new") == [4, 4, 6]
    table.register(broker("a", "t", "t2", "new", version=3, queues=8), 1, 0)
    assert perms_of(table, "t", "t2", "new") == [6, 6, 6]
    table.set_write_permission("a", allowed=False)
    table.link_closed(1)
    table.register(broker("a", "t", "t2", "new", version=3, queues=8), 2, 0)
    assert perms_of(table, "t", "t2", "new") == [6, 6, 6]


def test_strangers_are_ignored() -> None:
    table = RouteTable()
    table.register(broker("a", "t"), 1, 0)
    table.unregister("C", "nobody", "x:1")
    table.unregister("D", "a", "a:0")
    table.touch("C", "x:1", 5)
    assert table.link_closed(9) == []
    assert queues_of(table, "t") == {"a": 4}


def test_settings() -> None:
    table = RouteTable()
    assert table.setting("n", "k") is None
    assert table.settings("n") is None
    assert table.put_setting("n", "k", "1") is None
    table.put_setting("n", "k", "2")
    table.put_setting("n", "l", "3")
    assert table.setting("n", "k") == "2"
    assert table.settings("n") == {"k": "2", "l": "3"}
    for key in ("k", "l", "l"):
        table.delete_setting("n", key)
    assert table.settings("n") is None
    table.check()


def test_limits_refuse_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RouteTable()
    monkeypatch.setattr(module, "BROKERS_MAX", 1)
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    monkeypatch.setattr(module, "KV_MAX", 1)
    assert table.register(broker("a", "t1", "t2"), 1, 0) == Master()
    assert isinstance(table.register(broker("b"), 2, 0), Full)
    assert isinstance(table.register(broker("a", "t3"), 1, 0), Full)
    assert table.register(broker("a", "t1", "t2", version=2), 1, 0) == Master()
    assert table.put_setting("n", "k", "1") is None
    assert isinstance(table.put_setting("m", "k", "1"), Full)
    assert table.put_setting("n", "k", "2") is None
    assert set(table.topics()) == {"t1", "t2"}
    table.check()
