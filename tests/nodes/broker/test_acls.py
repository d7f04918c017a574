"""The access rules on a broker's disk: added, deleted, merged from other brokers."""

from __future__ import annotations

import pytest
from tests.acl.test_rules import rule

from steelyard.acl.bindings import AclOperation, ResourceType
from steelyard.config import StoreConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.broker import acls as module
from steelyard.nodes.broker.acls import AclEntry, AclStore, check_entry
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store


def open_store(disk: MemoryDisk) -> AclStore:
    store = Store(disk, StoreConfig(), None)
    store.open(0)
    found = AclStore(store.table("acls"), ["User:root"])
    found.check()
    return found


def may_read(acls: AclStore, principal: str = "User:alice") -> bool:
    return acls.rules.allows(principal, "h", AclOperation.READ, ResourceType.TOPIC, "orders")


def test_rules_apply_at_once_and_after_a_restart() -> None:
    disk = MemoryDisk()
    acls = open_store(disk)
    assert may_read(acls, "User:root")
    assert not may_read(acls)
    acls.merge([acls.changed(rule()), acls.changed(rule("other"))])
    assert may_read(acls)
    acls.merge([acls.changed(rule("other"), is_deleted=True)])
    again = open_store(disk)
    assert may_read(again)
    assert again.bindings() == [rule()]
    assert again.digest == acls.digest != ""
    again.merge([again.changed(rule(), is_deleted=True)])
    assert not may_read(again)
    assert again.changed(rule()).version == 3


def test_a_deleted_rule_is_not_brought_back() -> None:
    one, other = open_store(MemoryDisk()), open_store(MemoryDisk())
    one.merge([one.changed(rule())])
    other.merge(one.all())
    one.merge([one.changed(rule(), is_deleted=True)])
    assert one.merge(other.all()) == []
    other.merge(one.all())
    assert other.bindings() == one.bindings() == []
    assert other.digest == one.digest


def test_only_so_many_deleted_rules_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_MAX", 3)
    acls = open_store(MemoryDisk())
    for number in range(5):
        acls.merge([acls.changed(rule(f"t{number}"))])
        acls.merge([acls.changed(rule(f"t{number}"), is_deleted=True)])
    assert [entry.binding.resource_name for entry in acls.all()] == ["t2", "t3", "t4"]


@pytest.mark.parametrize(
    "entry", [AclEntry(rule(""), 1), AclEntry(rule(principal="x"), 1), AclEntry(rule(), -1)]
)
def test_what_no_broker_sends(entry: AclEntry) -> None:
    check_entry(AclEntry(rule(), 1))
    with pytest.raises(ProtocolError):
        check_entry(entry)
