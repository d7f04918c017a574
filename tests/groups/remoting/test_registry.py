"""The registry against a model of it, and what each change says."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.examples import examples

from steelyard.errors import ProtocolError
from steelyard.groups.remoting import registry as module
from steelyard.groups.remoting.registry import ClientChannel, GroupChange, Registry
from steelyard.wire.remoting.bodies import ConsumerData, SubscriptionData


def client(link: int, client_id: str) -> ClientChannel:
    return ClientChannel(link, f"10.0.0.{link}:1", client_id, "JAVA", 409)


def data(group: str, *topics: str, expression: str = "*", version: int = 1) -> ConsumerData:
    items = tuple(SubscriptionData(t, expression, sub_version=version) for t in topics)
    return ConsumerData(group, subscription_data_set=items)


LINKS = st.integers(1, 4)
IDS = st.sampled_from(("c1", "c2", "c3"))
GROUPS = st.sampled_from(("g1", "g2"))


class RegistryMachine(RuleBasedStateMachine):
    """The model: (group, link) -> client id and when it was heard."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.model: dict[tuple[str, int], tuple[str, int]] = {}
        self.now = 0

    def _ids(self, group: str) -> tuple[str, ...]:
        return tuple(sorted({i for (g, _), (i, _) in self.model.items() if g == group}))

    def _links(self, group: str) -> set[int]:
        return {link for g, link in self.model if g == group}

    def _verify(self, changes: list[GroupChange], before: dict[str, tuple[str, ...]]) -> None:
        """A group is announced when, and only when, its ids changed; joins also for a new connection."""
        for group in ("g1", "g2"):
            told = [change for change in changes if change.group == group]
            if self._ids(group) != before[group]:
                assert told
            if told:
                assert told[-1].members == self._ids(group)
                assert set(told[-1].links) == self._links(group)

    def _before(self) -> dict[str, tuple[str, ...]]:
        return {group: self._ids(group) for group in ("g1", "g2")}

    @rule(link=LINKS, client_id=IDS, group=GROUPS)
    def hear(self, link: int, client_id: str, group: str) -> None:
        self.now += 10
        before = self._before()
        known = self.model.get((group, link))
        self.model[group, link] = (client_id, self.now)
        heard = self.registry.heard(client(link, client_id), data(group, "t"), self.now)
        assert bool(heard.changes) == (known is None or known[0] != client_id)
        self._verify(list(heard.changes), before)

    @rule(link=LINKS, client_id=IDS, group=GROUPS)
    def unregister(self, link: int, client_id: str, group: str) -> None:
        before = self._before()
        if self.model.get((group, link), ("", 0))[0] == client_id:
            del self.model[group, link]
        change = self.registry.unregister(link, client_id, group)
        self._verify([change] if change else [], before)
        assert (change is not None) == (self._before() != before)

    @rule(link=LINKS)
    def close(self, link: int) -> None:
        before = self._before()
        self.model = {key: value for key, value in self.model.items() if key[1] != link}
        changes = self.registry.closed(link)
        self._verify(changes, before)
        assert all(change.cause == "closed" for change in changes)

    @rule(age=st.integers(0, 60))
    def expire(self, age: int) -> None:
        before = self._before()
        limit = self.now - age
        gone = {key for key, (_, at) in self.model.items() if at < limit}
        self.model = {key: value for key, value in self.model.items() if key not in gone}
        changes, links = self.registry.expire(limit)
        assert links == sorted({link for _, link in gone})
        self._verify(changes, before)

    @invariant()
    def agrees(self) -> None:
        self.registry.check()
        for group in ("g1", "g2"):
            assert self.registry.members(group) == self._ids(group)
            found = {member.client.link for member in self.registry.memberships(group)}
            assert found == self._links(group)
        assert self.registry.groups_of("t") == tuple(g for g in ("g1", "g2") if self._ids(g))


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=examples(40), stateful_step_count=25)


def test_a_change_tells_all_about_itself() -> None:
    registry = Registry()
    registry.heard(client(1, "b"), data("g", "t1"), 0)
    heard = registry.heard(client(2, "a"), data("g", "t2", "t1"), 5)
    assert heard.changes == (
        GroupChange("joined", "g", "a", "heartbeat", ("a", "b"), (1, 2), ("t1", "t2")),
    )
    heard = registry.heard(client(2, "a"), data("g", "t2"), 6)
    assert heard.changes == (
        GroupChange("joined", "g", "a", "subscription", ("a", "b"), (1, 2), ("t2",)),
    )
    assert registry.unregister(2, "a", "g") == GroupChange(
        "left", "g", "a", "unregistered", ("b",), (1,)
    )


def test_another_id_on_a_connection_is_a_leave_and_a_join() -> None:
    registry = Registry()
    registry.heard(client(1, "old"), data("g", "t"), 0)
    changes = registry.heard(client(1, "new"), data("g", "t"), 1).changes
    assert [(c.kind, c.client_id, c.members) for c in changes] == [
        ("left", "old", ()),
        ("joined", "new", ("new",)),
    ]


def test_every_member_has_its_own_subscriptions() -> None:
    registry = Registry()
    registry.heard(client(1, "a"), data("g", "t", expression="red", version=5), 0)
    registry.heard(client(2, "b"), data("g", "t", expression="blue", version=9), 0)

    def wants(link: int, topic: str = "t") -> str | None:
        found = registry.subscription("g", link, topic)
        return None if found is None else found.data.sub_string

    assert (wants(1), wants(2), wants(3)) == ("red", "blue", "blue")
    assert wants(1, "other") is None
    assert {t: s.data.sub_version for t, s in registry.subscriptions("g").items()} == {"t": 9}


def test_two_live_connections_of_one_id_are_reported_once_until_one_is_gone() -> None:
    registry = Registry()

    def beat(link: int, now: int) -> bool:
        return registry.heard(client(link, "same"), data("g", "t"), now).duplicate is not None

    assert [beat(1, 0), beat(2, 5), beat(1, 10), beat(2, 15), beat(1, 20)] == [
        False,
        False,
        True,
        False,
        False,
    ]
    registry.closed(1)
    registry.closed(2)
    assert [beat(3, 30), beat(4, 35), beat(3, 40)] == [False, False, True]


def test_a_reconnect_is_no_duplicate() -> None:
    registry = Registry()
    registry.heard(client(1, "c"), data("g", "t"), 0)
    for now in (10, 20, 30):
        assert registry.heard(client(2, "c"), data("g", "t"), now).duplicate is None


def test_there_is_a_limit_to_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMBERSHIPS_MAX", 2)
    registry = Registry()
    registry.heard(client(1, "a"), data("g"), 0)
    registry.producer_heard(client(1, "a"), "p", 0)
    with pytest.raises(ProtocolError, match="more than 2"):
        registry.heard(client(2, "b"), data("g"), 0)
    with pytest.raises(ProtocolError, match="more than 2"):
        registry.producer_heard(client(1, "a"), "p2", 0)
    registry.heard(client(1, "a"), data("g", "t"), 1)
    registry.producer_heard(client(1, "a"), "p", 1)
    registry.closed(1)
    registry.heard(client(2, "b"), data("g"), 2)
    registry.check()


def test_producers_come_and_go() -> None:
    registry = Registry()
    registry.producer_heard(client(1, "a"), "p", 0)
    registry.producer_heard(client(2, "b"), "p", 9)
    assert [c.client_id for c in registry.producers("p")] == ["a", "b"]
    registry.producer_unregister(1, "somebody else", "p")
    registry.producer_unregister(1, "a", "nowhere")
    assert len(registry.producers("p")) == 2
    assert registry.expire(5) == ([], [1])
    registry.producer_unregister(2, "b", "p")
    assert registry.producers("p") == ()
    registry.check()


def test_a_client_with_producers_is_found_by_its_id_on_its_newest_connection() -> None:
    registry = Registry()
    assert registry.producer_link("a") is None
    registry.producer_heard(client(1, "a"), "p", 0)
    registry.producer_heard(client(1, "a"), "q", 0)
    registry.producer_heard(client(2, "b"), "p", 0)
    registry.producer_heard(client(3, "a"), "p", 0)
    registry.check()
    assert (registry.producer_link("a"), registry.producer_link("b")) == (3, 2)
    registry.closed(3)
    registry.producer_unregister(1, "a", "p")
    assert registry.producer_link("a") == 1
    registry.producer_heard(client(1, "c"), "q", 0)
    assert (registry.producer_link("a"), registry.producer_link("c")) == (None, 1)
    registry.check()
    registry.closed(1)
    assert registry.producer_link("c") is None
    registry.check()


def test_those_who_are_dropped_together_are_all_gone_from_what_is_told() -> None:
    registry = Registry()
    registry.heard(client(1, "a"), data("g", "t"), 10)
    registry.heard(client(2, "b"), data("g", "t"), 20)
    registry.heard(client(3, "b"), data("g", "t"), 30)
    registry.heard(client(4, "c"), data("g", "t"), 20)
    changes, links = registry.expire(30)
    assert changes == [
        GroupChange("left", "g", "a", "expired", ("b",), (3,), heard_at=10),
        GroupChange("left", "g", "c", "expired", ("b",), (3,), heard_at=20),
    ]
    assert links == [1, 2, 4]
